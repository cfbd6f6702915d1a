//! States, facts and observations: what is remembered of a run.

use serde_json::Value;

use super::document::Document;
use crate::catalogue::grain::{BadGrain, Draft, Item};

/// A state's members with a typed field. Its `context` is common to all types.
pub const STATE_FIELDS: [&str; 4] = ["context_data", "data", "history", "plan"];
/// A fact's members with a typed field.
pub const FACT_FIELDS: [&str; 3] = ["object", "relation", "subject"];
/// An observation's members with a typed field; most of them a document cannot set, and they are left out.
pub const OBSERVATION_FIELDS: [&str; 11] = [
    "compression_ratio",
    "content",
    "frame_id",
    "object",
    "observation_mode",
    "observation_scope",
    "observer_id",
    "observer_model",
    "observer_type",
    "subject",
    "sync_group",
];

/// Sets a state's own fields.
pub fn state(draft: &mut Draft, document: &Document<'_>) {
    let members = document.members();
    let context = ["context", "data", "context_data"].into_iter().find_map(|name| members.get(name));
    draft.set("context", context.map_or_else(|| Item::Map(Vec::new()), Item::of));
    let listed = |name| document.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let plan: Vec<_> = listed("plan").iter().filter_map(Value::as_str).map(Item::text).collect();
    if !plan.is_empty() {
        draft.set("plan", Item::List(plan));
    }
    let history: Vec<_> = listed("history").iter().map(Item::of).collect();
    if !history.is_empty() {
        draft.set("history", Item::List(history));
    }
}

/// Sets a fact's own fields.
pub fn fact(draft: &mut Draft, document: &Document<'_>) -> Result<(), BadGrain> {
    for name in ["subject", "relation", "object"] {
        draft.set(name, Item::text(document.required_text(name)?));
    }
    Ok(())
}

/// Sets an observation's own fields.
pub fn observation(draft: &mut Draft, document: &Document<'_>) -> Result<(), BadGrain> {
    let content = document.required_text("content")?;
    draft.set("observer_id", Item::text(document.text("observer_id").unwrap_or("unknown")));
    draft.set("observer_type", Item::text(document.text("observer_type").unwrap_or("agent")));
    draft.set_text("subject", document.text("subject"));
    draft.set("object", Item::text(document.text("object").unwrap_or(content)));
    Ok(())
}
