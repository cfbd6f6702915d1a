//! The fields that every type has, and whatever else a document says.

use serde_json::{Map, Value};

use super::{document::Document, namespace};
use crate::catalogue::grain::{BadGrain, Draft, Item, Relation};

/// Most links to other grains.
const RELATIONS_MAX: usize = 64;
/// Longest relation type, in bytes.
const RELATION_BYTES_MAX: usize = 256;
/// Longest run id, in bytes.
const RUN_ID_BYTES_MAX: usize = 128;
/// The relation of an execution to its plan; the node's id follows.
const STEP_ACTION: &str = "mg:step_action:";

/// Members with a place of their own, or none: never extras.
const COMMON: [&str; 20] = [
    "author_did",
    "confidence",
    "context",
    "created_at",
    "derived_from",
    "embedding_text",
    "grain_type",
    "importance",
    "namespace",
    "related_to",
    "source_type",
    "structural_tags",
    "supersession_justification",
    "system_valid_from",
    "system_valid_to",
    "tags",
    "type",
    "user_id",
    "valid_from",
    "valid_to",
];

/// Members that a document cannot set: they are kept in the grain's context.
const SWEPT: [&str; 13] = [
    "consolidation_level",
    "content_refs",
    "embedding_refs",
    "failure_count",
    "invalidation_policy",
    "origin_did",
    "origin_namespace",
    "provenance_chain",
    "success_count",
    "superseded_by",
    "supersession_auth",
    "temporal_type",
    "verification_status",
];

/// What must hold whatever the type.
pub fn check(document: &Document<'_>) -> Result<(), BadGrain> {
    if let Some(name) = document.namespace() {
        namespace::check(name)?;
    }
    if let Some((name, _)) = document.members().iter().find(|(_, value)| has_nul(value)) {
        return Err(BadGrain::new(name, "has a U+0000"));
    }
    if let Some(run_id) = document.get("run_id") {
        let text = run_id.as_str().unwrap_or("");
        if text.trim().is_empty() || text.len() > RUN_ID_BYTES_MAX || text.chars().any(char::is_control) {
            let rule = format!("must be text of 1 to {RUN_ID_BYTES_MAX} bytes without control characters, not blank");
            return Err(BadGrain::new("run_id", rule));
        }
    }
    match document.float("confidence") {
        Some(confidence) if !(0.0..=1.0).contains(&confidence) => Err(BadGrain::new("confidence", "must be 0 to 1")),
        _ => Ok(()),
    }
}

/// Sets the common fields, the context, and as extras whatever is neither common nor in `typed`.
pub fn fill(draft: &mut Draft, document: &Document<'_>, typed: &[&str]) -> Result<(), BadGrain> {
    for name in ["user_id", "source_type", "embedding_text", "derived_from", "author_did"] {
        draft.set_text(name, document.text(name));
    }
    for name in ["valid_from", "valid_to", "system_valid_from", "system_valid_to"] {
        if let Some(ms) = document.integer(name) {
            draft.set(name, Item::integer(ms));
        }
    }
    for name in ["confidence", "importance"] {
        if let Some(value) = document.float(name) {
            draft.set(name, Item::Float(value));
        }
    }
    let tags = tags(document);
    if !tags.is_empty() {
        draft.set("tags", Item::List(tags));
    }
    draft.relations(&relations(document)?);
    let mut context = Map::new();
    for (name, value) in document.members() {
        let name = name.as_str();
        if value.is_null() || typed.contains(&name) || COMMON.contains(&name) {
            continue;
        }
        if SWEPT.contains(&name) {
            context.insert(name.to_owned(), value.clone());
        } else {
            draft.extra(name, value.clone());
        }
    }
    if !context.is_empty() {
        draft.set_context(Value::Object(context));
    }
    Ok(())
}

fn has_nul(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.contains('\0'))
}

/// The older name is looked at only where the newer is absent altogether.
fn tags(document: &Document<'_>) -> Vec<Item> {
    let members = document.members();
    let source = members.get("tags").or_else(|| members.get("structural_tags")).and_then(Value::as_array);
    source.into_iter().flatten().filter_map(Value::as_str).map(Item::text).collect()
}

fn relations(document: &Document<'_>) -> Result<Vec<Relation>, BadGrain> {
    let links = document.strict_list("related_to")?.map_or(&[][..], Vec::as_slice);
    if links.len() > RELATIONS_MAX {
        return Err(bad_link(format!("has {} links; at most {RELATIONS_MAX}", links.len())));
    }
    links.iter().map(relation).collect()
}

fn relation(link: &Value) -> Result<Relation, BadGrain> {
    let members = link.as_object().ok_or_else(|| bad_link("must be a list of objects"))?;
    if let Some(unknown) = members.keys().find(|key| !matches!(key.as_str(), "hash" | "relation_type" | "weight")) {
        return Err(BadGrain::new(unknown, "is no member of a link: hash, relation_type, weight"));
    }
    let text = |name| members.get(name).and_then(Value::as_str).unwrap_or("");
    let (hash, relation_type) = (text("hash"), text("relation_type"));
    if hash.len() != 64 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(bad_link("a link's hash must be 64 hex digits"));
    }
    if relation_type.trim().is_empty()
        || relation_type.len() > RELATION_BYTES_MAX
        || relation_type.chars().any(char::is_control)
    {
        let rule = format!("a relation_type is 1 to {RELATION_BYTES_MAX} bytes without control characters, not blank");
        return Err(bad_link(rule));
    }
    if relation_type.strip_prefix(STEP_ACTION).is_some_and(|node| node.trim().is_empty()) {
        return Err(bad_link(format!("{STEP_ACTION} needs a node id after it")));
    }
    let weight = match members.get("weight") {
        None | Some(Value::Null) => None,
        Some(weight) => Some(weight.as_f64().ok_or_else(|| bad_link("a link's weight must be a number"))?),
    };
    Ok(Relation { hash: hash.to_owned(), relation_type: relation_type.to_owned(), weight })
}

fn bad_link(rule: impl Into<String>) -> BadGrain {
    BadGrain::new("related_to", rule)
}
