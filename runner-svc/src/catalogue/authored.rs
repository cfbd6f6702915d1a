//! What this system asks of the definitions and plans that are authored in it, beyond the grain format.

use serde_json::{Map, Value};

use super::grain::{BadGrain, Grain, GrainType, author};

/// Longest tool name, in bytes.
const TOOL_NAME_BYTES_MAX: usize = 64;

/// Authors a definition. It need not say that it is one.
pub fn definition(mut members: Map<String, Value>, namespace: &str, now_ms: i64) -> Result<Grain, BadGrain> {
    match members.get("kind").filter(|kind| !kind.is_null()) {
        None => {}
        Some(kind) if kind == "definition" => {}
        Some(_) => return Err(BadGrain::new("kind", "must be \"definition\", or be left out")),
    }
    members.insert("kind".to_owned(), Value::from("definition"));
    let name = members.get("tool_name").and_then(Value::as_str).unwrap_or_default();
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    if name.is_empty() || name.len() > TOOL_NAME_BYTES_MAX || !name.bytes().all(is_allowed) {
        let rule = format!("must be 1 to {TOOL_NAME_BYTES_MAX} of A-Z a-z 0-9 _ . -");
        return Err(BadGrain::new("tool_name", rule));
    }
    readable(author::from_members(GrainType::Tool, &members, namespace, now_ms)?)
}

/// Authors a plan.
pub fn plan(members: &Map<String, Value>, namespace: &str, now_ms: i64) -> Result<Grain, BadGrain> {
    readable(author::from_members(GrainType::Workflow, members, namespace, now_ms)?)
}

/// Passes a grain on that the strict reader accepts. The format lets an author add a field that is named like the short form of a
/// typed one; such a grain could be stored, but not read again.
fn readable(grain: Grain) -> Result<Grain, BadGrain> {
    Grain::decode(grain.bytes().to_vec())
}
