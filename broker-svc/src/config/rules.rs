//! The file's rules: `[policy]`, `[credentials.NAME]` and `[grants.TOOL]`. Values that could be secrets are never repeated.

use std::{collections::BTreeMap, ops::Range, path::PathBuf};

use http::HeaderName;
use ipnet::IpNet;
use proto::{serve::ServeArgs, telemetry::TelemetryArgs};
use serde::Deserialize;
use toml::Spanned;

use crate::{
    capability::is_name,
    headers,
    method::Method,
    origin::Pattern,
    policy::{Credential, Egress, Grant, Kind, Policy, Source, sorted},
    refusal::{cut, quote},
};

/// Longest tool name or principal, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// Kinds and sources that a later release brings.
const LATER_KINDS: &[&str] = &["basic", "query", "oauth2_client_credentials", "oauth2_refresh", "aws_sigv4"];
const LATER_SOURCES: &[&str] = &["vault:", "cmd:"];

/// One rule is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{key}{rule}", line.map_or_else(String::new, |line| format!("line {line}: ")))]
pub struct BadRule {
    /// The line, from 1.
    pub line: Option<usize>,
    /// The key, with a colon; empty where only the line is known.
    pub key: String,
    /// What is wrong.
    pub rule: String,
}

/// The whole file. The other settings are here to be known by name and kind; they are layered elsewhere.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "settings beside the rules are only checked here")]
struct Document {
    #[serde(default)]
    policy: PolicyTable,
    #[serde(default)]
    credentials: BTreeMap<String, Spanned<CredentialTable>>,
    #[serde(default)]
    grants: BTreeMap<String, Spanned<GrantTable>>,
    egress_listen: Option<std::net::SocketAddr>,
    egress_url: Option<String>,
    upstream_ca: Option<PathBuf>,
    call_timeout: Option<proto::serve::Drain>,
    max_calls_in_flight: Option<u32>,
    serve: Option<ServeArgs>,
    telemetry: Option<TelemetryArgs>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PolicyTable {
    unrestricted: bool,
    allow_hosts: Vec<Spanned<String>>,
    allow_private: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CredentialTable {
    kind: Option<Spanned<String>>,
    from: Option<Spanned<String>>,
    hosts: Option<Spanned<Vec<Spanned<String>>>>,
    owner: Option<Spanned<String>>,
    header: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantTable {
    #[serde(default)]
    credentials: Vec<String>,
    methods: Option<Spanned<Vec<Spanned<String>>>>,
    hosts: Option<Spanned<Vec<Spanned<String>>>>,
    rate: Option<Spanned<toml::Value>>,
}

/// Reads the rules of a file's text.
pub fn policy_of(text: &str) -> Result<Policy, BadRule> {
    let document: Document = toml::from_str(text).map_err(|mut cause| {
        let line = cause.span().map(|span| line_of(text, &span));
        // Without the text the error does not show the line as it stands, which may hold a secret.
        cause.set_input(None);
        BadRule { line, key: String::new(), rule: cut(&cause.to_string().trim().replace('\n', " "), 256) }
    })?;
    let reader = Reader { text };
    Ok(Policy {
        egress: Egress {
            unrestricted: document.policy.unrestricted,
            allow_hosts: reader.each("[policy] allow_hosts", &document.policy.allow_hosts, pattern)?,
            allow_private: reader.each("[policy] allow_private", &document.policy.allow_private, network)?,
        },
        credentials: reader.credentials(&document.credentials)?,
        grants: reader.grants(&document.grants)?,
    })
}

/// Checks what no single rule shows: that grants speak of credentials that are there.
pub fn check_whole(policy: &Policy) -> Result<(), BadRule> {
    for (tool, grant) in &policy.grants {
        if let Some(name) = grant.credentials.iter().find(|name| !policy.credentials.contains_key(*name)) {
            let rule =
                format!("{} is no credential: add [credentials.NAME] or --credential, or take it out", quote(name));
            return Err(BadRule { line: None, key: format!("[grants.{tool}] credentials: "), rule });
        }
    }
    Ok(())
}

struct Reader<'a> {
    text: &'a str,
}

impl Reader<'_> {
    fn bad(&self, key: &str, span: &Range<usize>, rule: impl Into<String>) -> BadRule {
        BadRule { line: Some(line_of(self.text, span)), key: format!("{key}: "), rule: rule.into() }
    }

    fn each<T>(
        &self,
        key: &str,
        items: &[Spanned<String>],
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, BadRule> {
        items.iter().map(|item| read(item.get_ref()).map_err(|rule| self.bad(key, &item.span(), rule))).collect()
    }

    /// A list that, where it is written, holds something: an empty one would read as nothing to one and as all to another.
    fn filled<T>(
        &self,
        key: &str,
        list: &Spanned<Vec<Spanned<String>>>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, BadRule> {
        if list.get_ref().is_empty() {
            return Err(self.bad(key, &list.span(), "an empty list: write an entry or leave the key out"));
        }
        self.each(key, list.get_ref(), read)
    }

    fn credentials(
        &self,
        tables: &BTreeMap<String, Spanned<CredentialTable>>,
    ) -> Result<BTreeMap<String, Credential>, BadRule> {
        let mut credentials = BTreeMap::new();
        for (name, table) in tables {
            let key = |key: &str| format!("[credentials.{name}] {key}");
            if !is_name(name) {
                let rule = "the name may have 1 to 64 letters, digits, `_`, `-` and `.`";
                return Err(self.bad(&format!("[credentials.{}]", quote(name)), &table.span(), rule));
            }
            let missing = |what: &str, hint: &str| self.bad(&key(what), &table.span(), format!("missing: {hint}"));
            let CredentialTable { kind, from, hosts, owner: of, header } = table.get_ref();
            let kind = kind.as_ref().ok_or_else(|| missing("kind", "write \"bearer\" or \"header\""))?;
            let from = from.as_ref().ok_or_else(|| missing("from", "write \"env:VARIABLE\" or \"file:/path\""))?;
            let hosts = hosts.as_ref().ok_or_else(|| missing("hosts", "say where this secret may go"))?;
            let owner =
                of.as_ref().map(|of| owner(of.get_ref()).map_err(|rule| self.bad(&key("owner"), &of.span(), rule)));
            let credential = Credential {
                name: name.clone(),
                kind: self.kind(name, kind, header.as_ref())?,
                source: source(from.get_ref()).map_err(|rule| self.bad(&key("from"), &from.span(), rule))?,
                hosts: Some(self.filled(&key("hosts"), hosts, pattern)?),
                owner: owner.transpose()?,
            };
            credentials.insert(name.clone(), credential);
        }
        Ok(credentials)
    }

    fn kind(&self, name: &str, kind: &Spanned<String>, header: Option<&Spanned<String>>) -> Result<Kind, BadRule> {
        let (kind_key, header_key) = (format!("[credentials.{name}] kind"), format!("[credentials.{name}] header"));
        match (kind.get_ref().as_str(), header) {
            ("bearer", None) => Ok(Kind::Bearer),
            ("bearer", Some(header)) => {
                Err(self.bad(&header_key, &header.span(), "a bearer token goes in Authorization: leave the key out"))
            }
            ("header", None) => {
                Err(self.bad(&header_key, &kind.span(), "missing: name the header, such as \"X-Api-Key\""))
            }
            ("header", Some(header)) => match HeaderName::from_bytes(header.get_ref().as_bytes()) {
                Ok(slot) if slot == http::header::AUTHORIZATION || !headers::is_brokers(slot.as_str()) => {
                    Ok(Kind::Header(slot))
                }
                Ok(_) => Err(self.bad(
                    &header_key,
                    &header.span(),
                    "this header is the broker's own: it cannot carry a credential",
                )),
                Err(_) => Err(self.bad(&header_key, &header.span(), "no header name")),
            },
            (later, _) if LATER_KINDS.contains(&later) => {
                Err(self.bad(&kind_key, &kind.span(), format!("{later} is not in this release: use bearer or header")))
            }
            (other, _) => {
                Err(self.bad(&kind_key, &kind.span(), format!("{} is no kind: write bearer or header", quote(other))))
            }
        }
    }

    fn grants(&self, tables: &BTreeMap<String, Spanned<GrantTable>>) -> Result<BTreeMap<String, Grant>, BadRule> {
        let mut grants = BTreeMap::new();
        for (name, table) in tables {
            let key = |key: &str| format!("[grants.{}] {key}", cut(name, 64));
            tool(name).map_err(|rule| self.bad("[grants]", &table.span(), rule))?;
            let GrantTable { credentials, methods, hosts, rate } = table.get_ref();
            if let Some(rate) = rate {
                return Err(self.bad(&key("rate"), &rate.span(), "rates are not in this release: leave the key out"));
            }
            let methods = match methods {
                Some(methods) => self.filled(&key("methods"), methods, method)?,
                None => Method::READING.to_vec(),
            };
            let hosts = hosts.as_ref().map(|hosts| self.filled(&key("hosts"), hosts, pattern)).transpose()?;
            grants.insert(name.clone(), Grant { credentials: credentials.clone(), methods, hosts });
        }
        Ok(grants)
    }
}

/// A host pattern.
pub fn pattern(text: &str) -> Result<Pattern, String> {
    Pattern::parse(text).map_err(|cause| cause.to_string())
}

/// A network in its normal form.
pub fn network(text: &str) -> Result<IpNet, String> {
    let network: IpNet = text.parse().map_err(|_| format!("{} is no network: write 10.0.0.0/8", quote(text)))?;
    if network == network.trunc() {
        Ok(network)
    } else {
        Err(format!("{network} has host bits: write {}", network.trunc()))
    }
}

/// A method's word.
pub fn method(text: &str) -> Result<Method, String> {
    Method::parse(text)
        .ok_or_else(|| format!("{} is no method: write GET, HEAD, POST, PUT, PATCH or DELETE", quote(text)))
}

/// A tool's name.
pub fn tool(text: &str) -> Result<(), String> {
    if text.is_empty() || text.len() > NAME_BYTES_MAX || text.chars().any(char::is_control) {
        return Err(format!("{} is no tool's name", quote(text)));
    }
    Ok(())
}

/// A principal.
pub fn owner(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > NAME_BYTES_MAX || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("no principal: write one such as user:runner".to_owned());
    }
    Ok(text.to_owned())
}

/// Whether a text can name an environment variable.
pub fn is_variable(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn source(text: &str) -> Result<Source, String> {
    if let Some(later) = LATER_SOURCES.iter().find(|later| text.starts_with(**later)) {
        return Err(format!("{later} is not in this release: use env: or file:"));
    }
    match text.split_once(':') {
        Some(("env", name)) if is_variable(name) => Ok(Source::Env(name.to_owned())),
        Some(("file", path)) if path.starts_with('/') => Ok(Source::File(path.into())),
        _ => {
            Err("the place of the value, never the value: write \"env:VARIABLE\" or \"file:/absolute/path\"".to_owned())
        }
    }
}

/// The rules as they would stand in a file.
pub fn shown(policy: &Policy) -> toml::Table {
    let list = |items: Vec<String>| toml::Value::Array(items.into_iter().map(toml::Value::String).collect());
    let text = |text: &str| toml::Value::String(text.to_owned());
    let mut table = toml::Table::new();
    let mut egress = toml::Table::new();
    egress.insert("unrestricted".to_owned(), policy.egress.unrestricted.into());
    egress.insert("allow_hosts".to_owned(), list(sorted(&policy.egress.allow_hosts)));
    egress.insert("allow_private".to_owned(), list(sorted(&policy.egress.allow_private)));
    table.insert("policy".to_owned(), egress.into());
    let credentials = policy.credentials.iter().map(|(name, credential)| {
        let mut entry = toml::Table::new();
        entry.insert("kind".to_owned(), text(&credential.kind.to_string()));
        entry.insert("from".to_owned(), text(&credential.source.to_string()));
        if let Kind::Header(slot) = &credential.kind {
            entry.insert("header".to_owned(), text(slot.as_str()));
        }
        if let Some(hosts) = &credential.hosts {
            entry.insert("hosts".to_owned(), list(sorted(hosts)));
        }
        if let Some(owner) = &credential.owner {
            entry.insert("owner".to_owned(), text(owner));
        }
        (name.clone(), toml::Value::from(entry))
    });
    table.insert("credentials".to_owned(), toml::Value::Table(credentials.collect()));
    let grants = policy.grants.iter().map(|(tool, grant)| {
        let mut entry = toml::Table::new();
        entry.insert("credentials".to_owned(), list(sorted(&grant.credentials)));
        entry.insert("methods".to_owned(), list(sorted(&grant.methods)));
        if let Some(hosts) = &grant.hosts {
            entry.insert("hosts".to_owned(), list(sorted(hosts)));
        }
        (tool.clone(), toml::Value::from(entry))
    });
    table.insert("grants".to_owned(), toml::Value::Table(grants.collect()));
    table
}

fn line_of(text: &str, span: &Range<usize>) -> usize {
    text.as_bytes()[..span.start.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}
