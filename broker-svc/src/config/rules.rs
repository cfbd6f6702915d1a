//! The file's rules: `[policy]`, `[vault]`, `[credentials.NAME]` and `[grants.TOOL]`. Values that could be secrets are never
//! repeated.

mod credentials;
mod shown;
pub mod words;

use std::{collections::BTreeMap, ops::Range, path::PathBuf};

use proto::{serve::ServeArgs, telemetry::TelemetryArgs};
use serde::Deserialize;
use toml::Spanned;

pub use credentials::REFRESH_DEFAULT;
use credentials::{CredentialTable, VaultTable};
pub use shown::shown;

use crate::{
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
    rate: Option<Spanned<String>>,
    #[serde(default)]
    idempotency_key: bool,
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
            allow_hosts: reader.each("[policy] allow_hosts", &document.policy.allow_hosts, words::pattern)?,
            allow_private: reader.each("[policy] allow_private", &document.policy.allow_private, words::network)?,
        },
        vault: reader.vault(document.vault.as_ref())?,
        credentials: reader.credentials(&document.credentials)?,
        grants: reader.grants(&document.grants)?,
    })
}

/// Checks what no single rule shows: that grants speak of credentials that are there, and that the broker itself may call whom
/// the credentials need.
pub fn check_whole(policy: &Policy) -> Result<(), BadRule> {
    for (tool, grant) in &policy.grants {
        if let Some(name) = grant.credentials.iter().find(|name| !policy.credentials.contains_key(*name)) {
            let rule =
                format!("{} is no credential: add [credentials.NAME] or --credential, or take it out", quote(name));
            return Err(BadRule { line: None, key: format!("[grants.{tool}] credentials: "), rule });
        }
    }
    let reached = |origin| policy.egress.unrestricted || reach(&policy.egress.allow_hosts, origin) == Reach::Here;
    let outside =
        |origin| format!("{origin} is not in [policy] allow_hosts: what the broker calls itself is no exception");
    for (name, credential) in &policy.credentials {
        if let Kind::OAuth(oauth) = &credential.kind
            && !reached(oauth.token_url.origin())
        {
            let key = format!("[credentials.{name}] token_url: ");
            return Err(BadRule { line: None, key, rule: outside(oauth.token_url.origin()) });
        }
        let vault = credential.sources().into_iter().any(|source| matches!(source, Source::Vault { .. }));
        if vault && policy.vault.is_none() {
            let key = format!("[credentials.{name}] from: ");
            return Err(BadRule {
                line: None,
                key,
                rule: "vault: needs a [vault] with its address and token".to_owned(),
            });
        }
    }
    match &policy.vault {
        Some(vault) if !reached(vault.address.origin()) => {
            Err(BadRule { line: None, key: "[vault] address: ".to_owned(), rule: outside(vault.address.origin()) })
        }
        _ => Ok(()),
    }
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

    fn grants(&self, tables: &BTreeMap<String, Spanned<GrantTable>>) -> Result<BTreeMap<String, Grant>, BadRule> {
        let mut grants = BTreeMap::new();
        for (name, table) in tables {
            let key = |key: &str| format!("[grants.{}] {key}", cut(name, 64));
            words::tool(name).map_err(|rule| self.bad("[grants]", &table.span(), rule))?;
            let GrantTable { credentials, methods, hosts, rate, idempotency_key } = table.get_ref();
            let methods = match methods {
                Some(methods) => self.filled(&key("methods"), methods, words::method)?,
                None => Method::READING.to_vec(),
            };
            let grant = Grant {
                credentials: credentials.clone(),
                methods,
                hosts: hosts.as_ref().map(|hosts| self.filled(&key("hosts"), hosts, words::pattern)).transpose()?,
                idempotency_key: *idempotency_key,
                rate: self.one(&key("rate"), rate, words::rate)?,
            };
            grants.insert(name.clone(), grant);
        }
        Ok(grants)
    }
}

fn line_of(text: &str, span: &Range<usize>) -> usize {
    text.as_bytes()[..span.start.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}
