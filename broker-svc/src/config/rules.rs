//! The file's rules: `[policy]`, `[vault]`, `[credentials.NAME]` and `[grants.TOOL]`. Values that could be secrets are never
//! repeated.

mod credentials;
mod grants;
mod places;
mod reader;
mod shown;
mod unsaid;
mod whole;
pub mod words;

use std::{fmt, ops::Range, path::PathBuf};

use proto::{serve::ServeArgs, telemetry::TelemetryArgs};
use serde::{Deserialize, de::IgnoredAny};
use toml::{
    Spanned,
    de::{DeString, DeTable, DeValue},
};

pub use credentials::REFRESH_DEFAULT;
pub use places::Places;
use reader::{Reader, Section};
pub use shown::shown;
pub use whole::{Mentions, check_whole};

use crate::policy::{Egress, Policy};

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
    /// Of these.
    pub fn of(mistakes: Vec<BadRule>) -> Self {
        Self(mistakes)
    }

    /// Each of them.
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

/// Mistakes of form that are named at once.
const FORM_MISTAKES_MAX: usize = 32;

/// The settings beside the rules, to be known by name and kind; they are layered elsewhere.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    policy: IgnoredAny,
    vault: IgnoredAny,
    credentials: IgnoredAny,
    grants: IgnoredAny,
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

/// What a file says, right or wrong.
pub struct Said {
    /// What could be read. Not to be used where there are mistakes.
    pub policy: Policy,
    /// What is wrong with single rules, in the order of their lines.
    pub mistakes: Vec<BadRule>,
    /// What rules that could not be read say of others; none where the text has no form to read rules from.
    pub mentions: Option<Mentions>,
}

/// Reads the rules of a file's text, and names every mistake that stands by itself.
pub fn policy_of(text: &str) -> Result<Policy, BadRules> {
    let Said { policy, mistakes, .. } = Said::of(text);
    if mistakes.is_empty() { Ok(policy) } else { Err(BadRules(mistakes)) }
}

impl Default for Said {
    /// What no file says.
    fn default() -> Self {
        Self { policy: Policy::default(), mistakes: Vec::new(), mentions: Some(Mentions::default()) }
    }
}

impl Said {
    /// Reads a file's text.
    pub fn of(text: &str) -> Self {
        let (reader, mut mentions) = (Reader::new(text), Mentions::default());
        let (table, mut causes) = DeTable::parse_recoverable(text);
        // A key that stands there twice leaves the others what they are. Of a text that is no TOML nothing else is known.
        let whole = causes.iter().all(|cause| cause.message().starts_with("duplicate key"));
        causes.truncate(FORM_MISTAKES_MAX);
        for cause in causes {
            reader.malformed(cause, None);
        }
        let policy = if whole { read(&reader, &table, &mut mentions) } else { Policy::default() };
        let mut mistakes = reader.into_mistakes();
        mistakes.sort_by_key(|mistake| mistake.line);
        Self { policy, mistakes, mentions: whole.then_some(mentions) }
    }

    /// Takes note of flags that could not be read: who speaks of what they say makes no further mistake.
    pub fn unread(&mut self, credentials: impl Iterator<Item = String>, egress: bool) {
        if let Some(mentions) = &mut self.mentions {
            mentions.credentials.extend(credentials);
            mentions.egress_unread |= egress;
        }
    }

    /// Adds what no single rule shows, and puts all in the order of their lines.
    pub fn check(&mut self, places: &Places) {
        let Some(mentions) = self.mentions.take() else { return };
        let found = BadRules(mentions.check(&self.policy)).placed(places);
        self.mistakes.extend(found.0);
        self.mistakes.sort_by_key(|mistake| mistake.line);
    }
}

fn read<'a>(reader: &'a Reader<'a>, table: &'a Spanned<DeTable<'a>>, mentions: &mut Mentions) -> Policy {
    let mut policy = Policy::default();
    for (key, value) in table.get_ref().iter() {
        match key.get_ref().as_ref() {
            "policy" => {
                let before = reader.count();
                policy.egress = egress(reader, value);
                mentions.egress_unread = reader.count() > before;
            }
            "vault" => policy.vault = credentials::vault(reader, value, mentions),
            "credentials" => policy.credentials = credentials::all(reader, value, mentions),
            "grants" => policy.grants = grants::all(reader, value),
            _ => setting(reader, key, value),
        }
    }
    policy
}

fn egress<'a>(reader: &'a Reader<'a>, value: &'a Spanned<DeValue<'a>>) -> Egress {
    let keys = ["unrestricted", "allow_hosts", "allow_private"];
    let Some(table) = reader.section("[policy]".to_owned(), value, &keys) else { return Egress::default() };
    Egress {
        unrestricted: table.flag("unrestricted"),
        allow_hosts: table.entries("allow_hosts", words::pattern),
        allow_private: table.entries("allow_private", words::network),
    }
}

/// Checks one setting beside the rules; of a section each by itself.
fn setting<'a>(reader: &Reader<'_>, key: &Spanned<DeString<'a>>, value: &Spanned<DeValue<'a>>) {
    let parts: Vec<_> = match (key.get_ref().as_ref(), value.get_ref()) {
        ("serve" | "telemetry", DeValue::Table(section)) => {
            let part = |(inner, of_it): (&Spanned<DeString<'a>>, &Spanned<DeValue<'a>>)| {
                let section = Spanned::new(value.span(), DeValue::Table(alone(inner, of_it)));
                (of_it.span(), alone(key, &section))
            };
            section.iter().map(part).collect()
        }
        _ => vec![(value.span(), alone(key, value))],
    };
    for (at, part) in parts {
        let read = Settings::deserialize(toml::de::Deserializer::from(Spanned::new(at.clone(), part)));
        if let Err(cause) = read {
            reader.malformed(cause, Some(at));
        }
    }
}

/// A table of one key.
fn alone<'a>(key: &Spanned<DeString<'a>>, value: &Spanned<DeValue<'a>>) -> DeTable<'a> {
    let mut table = DeTable::new();
    table.insert(key.clone(), value.clone());
    table
}

fn line_of(text: &str, span: &Range<usize>) -> usize {
    text.as_bytes()[..span.start.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}
