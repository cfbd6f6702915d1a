//! `broker-svc check CONFIG`: every mistake, then what is probably not meant.

use std::{fmt::Write as _, path::Path};

use super::Shown;
use crate::{
    config::{ConfigError, Flags},
    destination,
    origin::{Origin, Pattern, Reach, reach},
    policy::Policy,
};

/// Checks a file.
pub fn check(file: &Path) -> Shown {
    let (policy, places) = match Flags::of_file(file).checked() {
        Ok(checked) => checked,
        Err(cause) => return mistaken(file, &cause),
    };
    let warnings = doubts(&policy);
    let mut text = String::new();
    for (key, doubt) in &warnings {
        let words = format!("{}: {doubt}", shown_key(key));
        line(&mut text, "warning", &words, file, places.line(key));
    }
    let _infallible = writeln!(
        text,
        "{}: fine, {}; {}, {}, policy digest {}",
        file.display(),
        counted(warnings.len(), "warning"),
        counted(policy.credentials.len(), "credential"),
        counted(policy.grants.len(), "grant"),
        policy.digest().to_hex()
    );
    Shown { text, good: true }
}

fn mistaken(file: &Path, cause: &ConfigError) -> Shown {
    let mut text = String::new();
    let count = match cause {
        ConfigError::Rules { rules, .. } => {
            for rule in rules.each() {
                let words = format!("{}{}", rule.key, rule.rule);
                line(&mut text, "error", &words, file, rule.line);
            }
            rules.each().len()
        }
        other => {
            line(&mut text, "error", &other.to_string(), file, None);
            1
        }
    };
    let _infallible = writeln!(text, "{}: {}", file.display(), counted(count, "error"));
    Shown { text, good: false }
}

fn line(text: &mut String, level: &str, words: &str, file: &Path, line: Option<usize>) {
    let place = line.map_or_else(String::new, |line| format!(":{line}"));
    let _infallible = writeln!(text, "{level}: {words}\n  --> {}{place}\n", file.display());
}

/// `[grants.pay] hosts` for `grants.pay.hosts`.
fn shown_key(key: &str) -> String {
    match key.rsplit_once('.') {
        Some((table @ ("policy" | "vault"), key)) => format!("[{table}] {key}"),
        Some((table, key)) if table.contains('.') => format!("[{table}] {key}"),
        _ => format!("[{key}]"),
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// What is no mistake and still probably not meant: rules that can never allow anything, or allow everything.
pub fn doubts(policy: &Policy) -> Vec<(String, String)> {
    let mut doubts = Vec::new();
    let mut doubt = |key: String, text: String| doubts.push((key, text));
    let egress = &policy.egress;
    if egress.unrestricted {
        doubt("policy.unrestricted".into(), "granted tools reach every public host over https".into());
    } else if egress.allow_hosts.is_empty() {
        doubt("policy".into(), "allow_hosts is empty: every call is refused".into());
    }
    if policy.grants.is_empty() {
        doubt("grants".into(), "no tool is granted anything: every tool is refused a token".into());
    }
    for origin in exact(&egress.allow_hosts) {
        if let Err(refusal) = destination::check_host(&origin.host, &egress.allow_private) {
            doubt("policy.allow_hosts".into(), format!("{origin} can never be reached: {}", refusal.text));
        }
    }
    for network in egress.allow_private.iter().filter(|network| destination::is_metadata_alone(network)) {
        doubt("policy.allow_private".into(), format!("{network} is a metadata service, which is never reached"));
    }
    let outside = |origin: &Origin| !egress.unrestricted && reach(&egress.allow_hosts, origin) != Reach::Here;
    for (tool, grant) in &policy.grants {
        for origin in grant.hosts.iter().flat_map(|hosts| exact(hosts)).filter(outside) {
            let text = format!("{origin} is not in [policy] allow_hosts: calls there are refused");
            doubt(format!("grants.{tool}.hosts"), text);
        }
    }
    for (name, credential) in &policy.credentials {
        for origin in credential.hosts.iter().flat_map(|hosts| exact(hosts)).filter(outside) {
            let text = format!("{origin} is not in [policy] allow_hosts: the credential can never go there");
            doubt(format!("credentials.{name}.hosts"), text);
        }
        if !policy.grants.values().any(|grant| grant.credentials.contains(name)) {
            doubt(format!("credentials.{name}"), "it is granted to no tool".into());
        }
    }
    doubts
}

fn exact(patterns: &[Pattern]) -> impl Iterator<Item = Origin> {
    patterns.iter().filter_map(Pattern::only)
}
