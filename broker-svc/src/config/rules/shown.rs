//! The rules as they would stand in a file: names and places, never values.

use crate::policy::{Policy, sorted};

/// The rules as tables.
pub fn shown(policy: &Policy) -> toml::Table {
    let list = |items: Vec<String>| toml::Value::Array(items.into_iter().map(toml::Value::String).collect());
    let text = |text: &str| toml::Value::String(text.to_owned());
    let mut table = toml::Table::new();
    let mut egress = toml::Table::new();
    egress.insert("unrestricted".to_owned(), policy.egress.unrestricted.into());
    egress.insert("allow_hosts".to_owned(), list(sorted(&policy.egress.allow_hosts)));
    egress.insert("allow_private".to_owned(), list(sorted(&policy.egress.allow_private)));
    table.insert("policy".to_owned(), egress.into());
    if let Some(server) = &policy.vault {
        let mut vault = toml::Table::new();
        vault.insert("address".to_owned(), text(server.address.url().as_str()));
        vault.insert("token".to_owned(), text(&server.token.to_string()));
        if let Some(namespace) = &server.namespace {
            vault.insert("namespace".to_owned(), text(namespace));
        }
        table.insert("vault".to_owned(), vault.into());
    }
    let credentials = policy.credentials.iter().map(|(name, credential)| {
        let mut entry = toml::Table::new();
        entry.insert("kind".to_owned(), text(&credential.kind.to_string()));
        entry.insert("from".to_owned(), text(&credential.source.to_string()));
        for (key, value) in credential.kind.details() {
            let value = match key {
                "scopes" => list(value.split(' ').map(str::to_owned).collect()),
                _ => text(&value),
            };
            entry.insert(key.to_owned(), value);
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
        if !grant.definitions.is_empty() {
            entry.insert("definitions".to_owned(), list(sorted(&grant.definitions)));
        }
        if let Some(rate) = &grant.rate {
            entry.insert("rate".to_owned(), text(&rate.to_string()));
        }
        if grant.idempotency_key {
            entry.insert("idempotency_key".to_owned(), true.into());
        }
        if !grant.artifacts.are_zero() {
            let mut artifacts = toml::Table::new();
            for (key, bytes) in [
                ("max_request_bytes", grant.artifacts.max_request_bytes),
                ("max_response_bytes", grant.artifacts.max_response_bytes),
            ] {
                artifacts.insert(key.to_owned(), i64::try_from(bytes).unwrap_or(i64::MAX).into());
            }
            entry.insert("artifacts".to_owned(), artifacts.into());
        }
        (tool.clone(), toml::Value::from(entry))
    });
    table.insert("grants".to_owned(), toml::Value::Table(grants.collect()));
    table
}
