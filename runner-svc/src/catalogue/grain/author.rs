//! Authoring: a JSON document becomes a grain, with every rule of the format checked and every omission filled in.

mod common;
mod document;
mod memory;
mod namespace;
mod schema;
mod tool;
mod workflow;

use serde_json::{Map, Value};

use super::{BadGrain, Draft, Grain, GrainType};
use document::Document;

pub use namespace::check_spelling as check_namespace_spelling;

/// Deepest nesting of a document.
const DEPTH_MAX: usize = 127;

/// Authors a grain from JSON text. Numbers are read as `serde_json` reads them without features: an integer of 64 bits stays one,
/// whatever else is a float, by a conversion that is part of the format.
///
/// `namespace` and `now_ms` (milliseconds since 1970) hold where the document does not say its own.
pub fn from_json(kind: GrainType, text: &str, namespace: &str, now_ms: i64) -> Result<Grain, BadGrain> {
    from_members(kind, &members(text)?, namespace, now_ms)
}

/// Authors a grain from a document's members.
pub fn from_members(
    kind: GrainType,
    members: &Map<String, Value>,
    namespace: &str,
    now_ms: i64,
) -> Result<Grain, BadGrain> {
    if members.values().any(|value| !is_within(value, DEPTH_MAX - 1)) {
        return Err(BadGrain::whole(format!("the document is nested deeper than {DEPTH_MAX} levels")));
    }
    let document = Document::new(members, namespace);
    let typed: &[&str] = match kind {
        GrainType::Tool => &tool::FIELDS,
        GrainType::Workflow => &workflow::FIELDS,
        GrainType::State => &memory::STATE_FIELDS,
        GrainType::Fact => &memory::FACT_FIELDS,
        GrainType::Observation => &memory::OBSERVATION_FIELDS,
        other => return Err(BadGrain::new("type", format!("a {} cannot be authored here", other.name()))),
    };
    common::check(&document)?;
    let mut draft = Draft::new(kind, document.namespace(), document.created_at_ms(now_ms));
    match kind {
        GrainType::Tool => tool::fill(&mut draft, &document)?,
        GrainType::Workflow => workflow::fill(&mut draft, &document)?,
        GrainType::State => memory::state(&mut draft, &document),
        GrainType::Fact => memory::fact(&mut draft, &document)?,
        _ => memory::observation(&mut draft, &document)?,
    }
    common::fill(&mut draft, &document, typed)?;
    draft.seal()
}

/// A document's members.
pub fn members(text: &str) -> Result<Map<String, Value>, BadGrain> {
    match serde_json::from_str(text) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err(BadGrain::whole("the document must be a JSON object")),
        Err(error) => Err(BadGrain::whole(format!("the document is no JSON: {error}"))),
    }
}

/// Whether a value opens at most so many levels. Looks no deeper than that.
fn is_within(value: &Value, levels: usize) -> bool {
    let Some(inside) = levels.checked_sub(1) else { return !value.is_array() && !value.is_object() };
    match value {
        Value::Array(values) => values.iter().all(|value| is_within(value, inside)),
        Value::Object(members) => members.values().all(|value| is_within(value, inside)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}
