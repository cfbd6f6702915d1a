//! `[grants.TOOL]`.

use std::collections::BTreeMap;

use toml::{Spanned, de::DeValue};

use super::{Reader, Section, words};
use crate::{artifact::ArtifactCeilings, method::Method, policy::Grant, refusal::cut};

/// Longest tool name that is repeated, in bytes.
const NAME_SHOWN_BYTES_MAX: usize = 64;
/// The keys of a grant.
const KEYS: [&str; 7] = ["credentials", "methods", "hosts", "definitions", "rate", "idempotency_key", "artifacts"];
/// The keys of its artifacts.
const ARTIFACTS: [&str; 2] = ["max_request_bytes", "max_response_bytes"];

/// Every grant. One with a mistake is there with what could be read of it.
pub fn all<'a>(reader: &'a Reader<'a>, value: &'a Spanned<DeValue<'a>>) -> BTreeMap<String, Grant> {
    let read = |(name, table): (&str, &'a Spanned<DeValue<'a>>)| {
        if let Err(rule) = words::tool(name) {
            reader.bad("[grants]", &table.span(), rule);
        }
        let shown = format!("[grants.{}]", cut(name, NAME_SHOWN_BYTES_MAX));
        Some((name.to_owned(), grant(&reader.section(shown, table, &KEYS)?)))
    };
    reader.tables("[grants]", value).filter_map(read).collect()
}

fn grant(table: &Section<'_>) -> Grant {
    Grant {
        credentials: table.entries("credentials", |name| Ok(name.to_owned())),
        methods: table.filled("methods", words::method).unwrap_or_else(|| Method::READING.to_vec()),
        hosts: table.filled("hosts", words::pattern),
        definitions: table.filled("definitions", words::definition).unwrap_or_default(),
        rate: table.text("rate", words::rate),
        idempotency_key: table.flag("idempotency_key"),
        artifacts: table.below("artifacts", &ARTIFACTS).map(|table| artifacts(&table)).unwrap_or_default(),
    }
}

fn artifacts(table: &Section<'_>) -> ArtifactCeilings {
    let [request, response] = ARTIFACTS.map(|key| table.bytes(key));
    let ceilings = ArtifactCeilings {
        max_request_bytes: request.unwrap_or_default(),
        max_response_bytes: response.unwrap_or_default(),
    };
    // One that is no number is named already, and is no ceiling of nothing.
    let unread = ARTIFACTS.into_iter().zip([request, response]).any(|(key, read)| table.has(key) && read.is_none());
    for rule in ceilings.mistakes().into_iter().filter(|_| !(unread && ceilings.are_zero())) {
        table.bad("", rule);
    }
    ceilings
}
