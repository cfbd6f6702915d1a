//! The command line's short forms of credentials, hosts and grants.

use super::{
    Flags,
    rules::{REFRESH_DEFAULT, Said, words},
};
use crate::{
    capability::is_name,
    method::Method,
    policy::{Credential, Grant, Kind, Policy, Source},
    refusal::quote,
};

/// A flag's value does not have its form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{flag} {rule}")]
pub struct BadForm {
    flag: &'static str,
    rule: String,
}

impl Flags {
    /// Adds what the flags say to what the file says. A name may stand in one of the two. Answers every flag that is wrong.
    pub(super) fn add_forms(&self, policy: &mut Policy) -> Vec<BadForm> {
        let mut wrong = Vec::new();
        policy.egress.unrestricted |= self.unrestricted;
        let hosts = each("--allow-host", &self.allow_host, words::pattern, &mut wrong);
        policy.egress.allow_hosts.extend(hosts);
        let networks = each("--allow-private", &self.allow_private, words::network, &mut wrong);
        policy.egress.allow_private.extend(networks);
        for credential in each("--credential", &self.credential, credential, &mut wrong) {
            let name = credential.name.clone();
            if policy.credentials.insert(name.clone(), credential).is_some() {
                wrong.push(bad("--credential", format!("{name} is there already: keep one of the two")));
            }
        }
        for (tool, grant) in each("--tool-egress", &self.tool_egress, grant, &mut wrong) {
            if policy.grants.insert(tool.clone(), grant).is_some() {
                wrong.push(bad("--tool-egress", format!("{tool} has a grant already: keep one of the two")));
            }
        }
        wrong
    }

    /// Takes note of what flags may have meant that are wrong.
    pub(super) fn note_unread(&self, forms: &[BadForm], said: &mut Said) {
        let names = self.credential.iter().filter_map(|text| text.split_once('=')).map(|(name, _)| name.to_owned());
        said.unread(names, forms.iter().any(|form| form.flag == "--allow-host"));
    }
}

/// Every value of a flag that is right.
fn each<T>(
    flag: &'static str,
    values: &[String],
    read: impl Fn(&str) -> Result<T, String>,
    wrong: &mut Vec<BadForm>,
) -> Vec<T> {
    let kept = |text: &String| read(text).map_err(|rule| wrong.push(bad(flag, rule))).ok();
    values.iter().filter_map(kept).collect()
}

/// `NAME=VAR[@PRINCIPAL]`. The value is not repeated: somebody may have put a secret where the variable's name belongs.
fn credential(text: &str) -> Result<Credential, String> {
    let form = || "is not NAME=VAR or NAME=VAR@PRINCIPAL, where VAR names an environment variable".to_owned();
    let (name, rest) = text.split_once('=').filter(|(name, _)| is_name(name)).ok_or_else(form)?;
    let (variable, owner) = match rest.split_once('@') {
        Some((variable, owner)) => (variable, Some(words::owner(owner)?)),
        None => (rest, None),
    };
    if !words::is_variable(variable) {
        return Err(form());
    }
    let source = Source::Env(variable.to_owned());
    let refresh = REFRESH_DEFAULT;
    Ok(Credential { name: name.to_owned(), kind: Kind::Bearer, source, hosts: None, owner, refresh })
}

/// `TOOL:CREDS:METHODS`.
fn grant(text: &str) -> Result<(String, Grant), String> {
    let parts: Vec<_> = text.split(':').collect();
    let (tool, credentials, methods) = match parts[..] {
        [tool, credentials] => (tool, credentials, ""),
        [tool, credentials, methods] => (tool, credentials, methods),
        _ => return Err(format!("{} is not TOOL:CREDENTIALS:METHODS", quote(text))),
    };
    words::tool(tool)?;
    let list = |list: &str| list.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let methods = match &list(methods)[..] {
        [] => Method::READING.to_vec(),
        given => given.iter().map(|word| words::method(word)).collect::<Result<_, _>>()?,
    };
    Ok((tool.to_owned(), Grant { credentials: list(credentials), methods, ..Grant::default() }))
}

fn bad(flag: &'static str, rule: String) -> BadForm {
    BadForm { flag, rule }
}
