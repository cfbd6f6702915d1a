//! The file's rules: `[policy]`, `[vault]`, `[credentials.NAME]` and `[grants.TOOL]`. Values that could be secrets are never
//! repeated.

mod credentials;
mod places;
mod shown;
mod unsaid;
pub mod words;

use std::{collections::BTreeMap, fmt, ops::Range, path::PathBuf};

use proto::{serve::ServeArgs, telemetry::TelemetryArgs};
use serde::Deserialize;
use toml::Spanned;

pub use credentials::REFRESH_DEFAULT;
use credentials::{CredentialTable, VaultTable};
pub use places::Places;
pub use shown::shown;

use crate::{
    artifact::ArtifactCeilings,
    method::Method,
    origin::{Reach, reach},
    policy::{Egress, Grant, Kind, Policy, Source},
    refusal::{cut, quote},
};

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

/// Everything that is wrong, one line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRules(Vec<BadRule>);

impl BadRules {
    /// Each of them, at least one.
    pub fn each(&self) -> &[BadRule] {
        &self.0
    }

    /// The same with the lines of those that only say their key.
    pub fn placed(mut self, places: &Places) -> Self {
        for rule in self.0.iter_mut().filter(|rule| rule.line.is_none()) {
            // `[grants.pay] hosts: ` is `grants.pay.hosts`.
            let key = rule.key.trim_end_matches(": ").replace('[', "").replace("] ", ".");
            rule.line = places.line(&key);
        }
        self
    }
}

impl std::error::Error for BadRules {}

impl fmt::Display for BadRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// Keys that nobody knows that are named at once.
const UNKNOWN_KEYS_MAX: usize = 32;

/// The whole file. The other settings are here to be known by name and kind; they are layered elsewhere.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "settings beside the rules are only checked here")]
struct Document {
    #[serde(default)]
    policy: PolicyTable,
    vault: Option<Spanned<VaultTable>>,
    #[serde(default)]
    credentials: BTreeMap<String, Spanned<CredentialTable>>,
    #[serde(default)]
    grants: BTreeMap<String, Spanned<GrantTable>>,
    egress_listen: Option<std::net::SocketAddr>,
    egress_url: Option<String>,
    token_keys: Option<PathBuf>,
    replica: Option<String>,
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
struct GrantTable {
    #[serde(default)]
    credentials: Vec<String>,
    methods: Option<Spanned<Vec<Spanned<String>>>>,
    hosts: Option<Spanned<Vec<Spanned<String>>>>,
    definitions: Option<Spanned<Vec<Spanned<String>>>>,
    rate: Option<Spanned<String>>,
    #[serde(default)]
    idempotency_key: bool,
    artifacts: Option<Spanned<ArtifactCeilings>>,
}

/// The file's shape. A line whose key nobody knows is a mistake, and is then read over, so that it hides no other.
fn document(text: &str, mistakes: &mut Vec<BadRule>) -> Option<Document> {
    let mut text = text.to_owned();
    for _ in 0..UNKNOWN_KEYS_MAX {
        let mut cause: toml::de::Error = match toml::from_str(&text) {
            Ok(document) => return Some(document),
            Err(cause) => cause,
        };
        let (unknown, span) = (cause.message().starts_with("unknown field"), cause.span());
        // Without the text the error does not show the line as it stands, which may hold a secret.
        cause.set_input(None);
        let rule = cut(&unsaid::of(&cause.to_string()), 256);
        let line = span.as_ref().map(|span| line_of(&text, span));
        mistakes.push(BadRule { line, key: String::new(), rule });
        let at = span.filter(|_| unknown)?.start;
        let begin = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let end = text[at..].find('\n').map_or(text.len(), |newline| at + newline);
        if text[begin..end].trim_start().starts_with('[') {
            // Without their head a table's lines would be another one's.
            return None;
        }
        text.replace_range(begin..end, &" ".repeat(end - begin));
        // A value of several lines is no whole without its first one.
        toml::from_str::<toml::Table>(&text).ok()?;
    }
    None
}

/// Reads the rules of a file's text, and names every mistake that stands by itself.
pub fn policy_of(text: &str) -> Result<Policy, BadRules> {
    let mut mistakes = Vec::new();
    let Some(document) = document(text, &mut mistakes) else { return Err(BadRules(mistakes)) };
    let reader = Reader { text };
    let (hosts, inner) = (&document.policy.allow_hosts, &document.policy.allow_private);
    let policy = Policy {
        egress: Egress {
            unrestricted: document.policy.unrestricted,
            allow_hosts: reader.all("[policy] allow_hosts", hosts, words::pattern, &mut mistakes),
            allow_private: reader.all("[policy] allow_private", inner, words::network, &mut mistakes),
        },
        vault: kept(reader.vault(document.vault.as_ref()), &mut mistakes).flatten(),
        credentials: reader.credentials(&document.credentials, &mut mistakes),
        grants: reader.grants(&document.grants, &mut mistakes),
    };
    mistakes.sort_by_key(|mistake| mistake.line);
    if mistakes.is_empty() { Ok(policy) } else { Err(BadRules(mistakes)) }
}

/// What was read; a mistake goes to the others.
fn kept<T>(read: Result<T, BadRule>, mistakes: &mut Vec<BadRule>) -> Option<T> {
    read.map_err(|mistake| mistakes.push(mistake)).ok()
}

/// Checks what no single rule shows: that grants speak of credentials that are there, and that the broker itself may call whom
/// the credentials need.
pub fn check_whole(policy: &Policy) -> Result<(), BadRules> {
    let mut mistakes = Vec::new();
    let mut mistake = |key: String, rule: String| mistakes.push(BadRule { line: None, key, rule });
    for (tool, grant) in &policy.grants {
        for name in grant.credentials.iter().filter(|name| !policy.credentials.contains_key(*name)) {
            let rule =
                format!("{} is no credential: add [credentials.NAME] or --credential, or take it out", quote(name));
            mistake(format!("[grants.{tool}] credentials: "), rule);
        }
    }
    let reached = |origin| policy.egress.unrestricted || reach(&policy.egress.allow_hosts, origin) == Reach::Here;
    let outside =
        |origin| format!("{origin} is not in [policy] allow_hosts: what the broker calls itself is no exception");
    for (name, credential) in &policy.credentials {
        if let Kind::OAuth(oauth) = &credential.kind
            && !reached(oauth.token_url.origin())
        {
            mistake(format!("[credentials.{name}] token_url: "), outside(oauth.token_url.origin()));
        }
        let vault = credential.sources().into_iter().any(|source| matches!(source, Source::Vault { .. }));
        if vault && policy.vault.is_none() {
            let rule = "vault: needs a [vault] with its address and token".to_owned();
            mistake(format!("[credentials.{name}] from: "), rule);
        }
    }
    if let Some(vault) = policy.vault.as_ref().filter(|vault| !reached(vault.address.origin())) {
        mistake("[vault] address: ".to_owned(), outside(vault.address.origin()));
    }
    if mistakes.is_empty() { Ok(()) } else { Err(BadRules(mistakes)) }
}

/// Reads rules of one text, to name their lines.
pub struct Reader<'a> {
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

    /// Every entry that is one.
    fn all<T>(
        &self,
        key: &str,
        items: &[Spanned<String>],
        read: impl Fn(&str) -> Result<T, String>,
        mistakes: &mut Vec<BadRule>,
    ) -> Vec<T> {
        let read = |item: &Spanned<String>| read(item.get_ref()).map_err(|rule| self.bad(key, &item.span(), rule));
        items.iter().filter_map(|item| kept(read(item), mistakes)).collect()
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

    /// A text that may be left out.
    fn one<T>(
        &self,
        key: &str,
        text: &Option<Spanned<String>>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, BadRule> {
        text.as_ref().map(|text| read(text.get_ref()).map_err(|rule| self.bad(key, &text.span(), rule))).transpose()
    }

    fn grants(
        &self,
        tables: &BTreeMap<String, Spanned<GrantTable>>,
        mistakes: &mut Vec<BadRule>,
    ) -> BTreeMap<String, Grant> {
        let grants = tables.iter().map(|(name, table)| (name.clone(), self.grant(name, table)));
        grants.filter_map(|(name, grant)| Some((name, kept(grant, mistakes)?))).collect()
    }

    fn grant(&self, name: &str, table: &Spanned<GrantTable>) -> Result<Grant, BadRule> {
        let key = |key: &str| format!("[grants.{}] {key}", cut(name, 64));
        words::tool(name).map_err(|rule| self.bad("[grants]", &table.span(), rule))?;
        let GrantTable { credentials, methods, hosts, definitions, rate, idempotency_key, artifacts } = table.get_ref();
        let artifacts = artifacts.as_ref().map(|written| {
            written.get_ref().checked().map_err(|rule| self.bad(&key("artifacts"), &written.span(), rule))
        });
        let definitions = definitions.as_ref().map(|list| self.filled(&key("definitions"), list, words::definition));
        let methods = match methods {
            Some(methods) => self.filled(&key("methods"), methods, words::method)?,
            None => Method::READING.to_vec(),
        };
        Ok(Grant {
            credentials: credentials.clone(),
            methods,
            hosts: hosts.as_ref().map(|hosts| self.filled(&key("hosts"), hosts, words::pattern)).transpose()?,
            definitions: definitions.transpose()?.unwrap_or_default(),
            idempotency_key: *idempotency_key,
            rate: self.one(&key("rate"), rate, words::rate)?,
            artifacts: artifacts.transpose()?.unwrap_or_default(),
        })
    }
}

fn line_of(text: &str, span: &Range<usize>) -> usize {
    text.as_bytes()[..span.start.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}
