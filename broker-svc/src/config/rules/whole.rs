//! What no single rule shows: that rules speak of rules that are there, and that the broker itself may call whom they need.

use std::collections::BTreeSet;

use super::{BadRule, BadRules};
use crate::{
    origin::{Origin, Reach, reach},
    policy::{Kind, Policy, Source, VaultServer},
    refusal::quote,
};

/// What rules say of each other. Also of those that are wrong elsewhere: a mistake does not hide these.
#[derive(Default)]
pub struct Mentions {
    /// The credentials that there are.
    pub credentials: BTreeSet<String>,
    /// Whom credentials have their tokens from, by the credential's name.
    pub token_urls: Vec<(String, Origin)>,
    /// The credentials whose values come from Vault.
    pub from_vault: Vec<String>,
    /// Whether there is a `[vault]`.
    pub has_vault: bool,
    /// Where it is.
    pub vault_address: Option<Origin>,
    /// The egress policy cannot be read: nothing is said of who is outside of it.
    pub egress_unread: bool,
}

/// Checks a policy whose single rules are right.
pub fn check_whole(policy: &Policy) -> Result<(), BadRules> {
    let mistakes = Mentions::default().check(policy);
    if mistakes.is_empty() { Ok(()) } else { Err(BadRules(mistakes)) }
}

impl Mentions {
    /// Checks a policy, and what is known of rules that it does not hold because something else is wrong with them.
    pub fn check(mut self, policy: &Policy) -> Vec<BadRule> {
        self.learn(policy);
        let mut mistakes = Vec::new();
        let mut mistake = |key: String, rule: String| mistakes.push(BadRule { line: None, key, rule });
        for (tool, grant) in &policy.grants {
            for name in grant.credentials.iter().filter(|name| !self.credentials.contains(*name)) {
                let rule =
                    format!("{} is no credential: add [credentials.NAME] or --credential, or take it out", quote(name));
                mistake(format!("[grants.{tool}] credentials: "), rule);
            }
        }
        let egress = &policy.egress;
        let outside = |origin: &Origin| {
            !egress.unrestricted && reach(&egress.allow_hosts, origin) != Reach::Here && !self.egress_unread
        };
        let rule =
            |origin| format!("{origin} is not in [policy] allow_hosts: what the broker calls itself is no exception");
        for (name, origin) in self.token_urls.iter().filter(|(_, origin)| outside(origin)) {
            mistake(format!("[credentials.{name}] token_url: "), rule(origin));
        }
        for name in self.from_vault.iter().filter(|_| !self.has_vault) {
            let rule = "vault: needs a [vault] with its address and token".to_owned();
            mistake(format!("[credentials.{name}] from: "), rule);
        }
        if let Some(origin) = self.vault_address.as_ref().filter(|origin| outside(origin)) {
            mistake("[vault] address: ".to_owned(), rule(origin));
        }
        mistakes
    }

    /// Adds a credential, as far as it is known.
    pub fn credential(&mut self, name: &str, kind: Option<&Kind>, source: Option<&Source>) {
        self.credentials.insert(name.to_owned());
        if let Some(Kind::OAuth(oauth)) = kind {
            self.token_urls.push((name.to_owned(), oauth.token_url.origin().clone()));
        }
        let further = kind.and_then(Kind::further_source);
        if source.into_iter().chain(further).any(|source| matches!(source, Source::Vault { .. })) {
            self.from_vault.push(name.to_owned());
        }
    }

    fn learn(&mut self, policy: &Policy) {
        for (name, credential) in &policy.credentials {
            self.credential(name, Some(&credential.kind), Some(&credential.source));
        }
        if let Some(VaultServer { address, .. }) = &policy.vault {
            (self.has_vault, self.vault_address) = (true, Some(address.origin().clone()));
        }
    }
}
