//! Tools: a definition says what a tool is, an execution what it did.

use runner_core::capability;
use serde_json::{Map, Value};

use super::{document::Document, schema};
use crate::catalogue::grain::{BadGrain, Draft, Item};

/// Members with a typed field.
pub const FIELDS: [&str; 30] = [
    "actor_execution_environment",
    "annotations",
    "async_mode",
    "call_batch_id",
    "capabilities",
    "content",
    "correlation_id",
    "duration_ms",
    "error",
    "examples",
    "executor_kind",
    "executor_uri",
    "expires_at_sec",
    "failure_cause",
    "failure_detail",
    "input",
    "input_schema",
    "is_error",
    "kind",
    "locked_params",
    "output_schema",
    "parent_task_id",
    "runtime",
    "runtime_limits",
    "spec_hash",
    "status",
    "strict",
    "tool_call_id",
    "tool_description",
    "tool_name",
];

const TEXTS: [&str; 8] = [
    "call_batch_id",
    "correlation_id",
    "error",
    "executor_uri",
    "failure_detail",
    "parent_task_id",
    "spec_hash",
    "tool_description",
];

const RUNTIMES: [&str; 3] = [NATIVE, "wasm32-areev", IO_RUNTIME];
const NATIVE: &str = "native";
/// The one runtime that has capabilities.
const IO_RUNTIME: &str = "wasm32-areev-io";
const STATUSES: [&str; 3] = ["pending", "completed", "failed"];
const CAUSES: [&str; 6] =
    ["timeout", "executor_error", "schema_validation_failed", "user_aborted", "unknown", "context_overflow"];
const ENVIRONMENTS: [&str; 3] = ["server_side_host", "client_side_attested", "client_side_unattested"];

const LIMITS: [&str; 6] =
    ["fuel", "max_pages", "max_calls", "max_response_bytes", "max_request_bytes", "max_blob_bytes"];
/// Most bytes that a definition may ask for in one request or response.
const EXCHANGE_BYTES_MAX: u64 = 32 << 20;

const ANNOTATIONS: [&str; 3] = ["destructive", "idempotent", "read_only"];

/// Sets a tool's own fields.
pub fn fill(draft: &mut Draft, document: &Document<'_>) -> Result<(), BadGrain> {
    draft.set("tool_name", Item::text(document.required_text("tool_name")?));
    if document.one_of("kind", &["definition", "execution"])? == Some("definition") {
        draft.set("kind", Item::text("definition"));
    }
    if document.one_of("executor_kind", &["host", "client"])? == Some("client") {
        draft.set("executor_kind", Item::text("client"));
    }
    for name in TEXTS {
        draft.set_text(name, document.strict_text(name)?);
    }
    for name in ["strict", "async_mode"] {
        if let Some(value) = document.strict_bool(name)? {
            draft.set(name, Item::Bool(value));
        }
    }
    for name in ["input_schema", "output_schema"] {
        if let Some(value) = document.get(name) {
            draft.set(name, Item::of(&schema::checked(name, value)?));
        }
    }
    execution(draft, document)?;
    code(draft, document)?;
    if let Some(params) = document.strict_object("locked_params")? {
        draft.set("locked_params", Item::object(params, |key| key));
    }
    if let Some(examples) = document.strict_list("examples")? {
        draft.set("examples", Item::List(examples.iter().map(Item::of).collect()));
    }
    if let Some(answers) = document.strict_object("annotations")? {
        draft.set("annotations", annotations(answers)?);
    }
    Ok(())
}

/// What an execution says of itself.
fn execution(draft: &mut Draft, document: &Document<'_>) -> Result<(), BadGrain> {
    // Null is an input like any other.
    if let Some(input) = document.members().get("input") {
        draft.set("input", Item::of(input));
    }
    draft.set_text("tool_content", document.text("content"));
    draft.set_text("tool_call_id", document.text("tool_call_id"));
    if let Some(is_error) = document.get("is_error").and_then(Value::as_bool) {
        draft.set("is_error", Item::Bool(is_error));
    }
    if let Some(ms) = document.integer("duration_ms").filter(|ms| *ms >= 0) {
        draft.set("duration_ms", Item::integer(ms));
    }
    if document.get("expires_at_sec").is_some() {
        let seconds = document.integer("expires_at_sec");
        let seconds = seconds.ok_or_else(|| BadGrain::new("expires_at_sec", "must be a whole number"))?;
        draft.set("expires_at_sec", Item::integer(seconds));
    }
    draft.set_text("status", document.one_of("status", &STATUSES)?);
    draft.set_text("failure_cause", document.one_of("failure_cause", &CAUSES)?);
    let environment = document.one_of("actor_execution_environment", &ENVIRONMENTS)?;
    draft.set_text("actor_execution_environment", environment);
    Ok(())
}

/// What a definition says of its code.
fn code(draft: &mut Draft, document: &Document<'_>) -> Result<(), BadGrain> {
    let runtime = document.one_of("runtime", &RUNTIMES)?;
    if runtime.is_some_and(|runtime| runtime != NATIVE) && document.get("executor_uri").is_none() {
        return Err(BadGrain::new("runtime", "names no executor_uri: name the code as cas://sha256:<64 hex digits>"));
    }
    draft.set_text("runtime", runtime);
    if let Some(limits) = document.strict_object("runtime_limits")? {
        limits.iter().try_for_each(|(key, value)| limit(key, value))?;
        draft.set("runtime_limits", Item::object(limits, |key| key));
    }
    match (document.get("capabilities"), runtime == Some(IO_RUNTIME)) {
        (Some(declared), true) => {
            capability::check(declared).map_err(|malformed| BadGrain::new("capabilities", malformed.to_string()))?;
            draft.set("capabilities", Item::of(declared));
            Ok(())
        }
        (Some(_), false) => Err(BadGrain::new("capabilities", format!("need the runtime {IO_RUNTIME}"))),
        (None, true) => Err(BadGrain::new(
            "capabilities",
            format!("the runtime {IO_RUNTIME} needs a declaration; [] declares none"),
        )),
        (None, false) => Ok(()),
    }
}

fn limit(key: &str, value: &Value) -> Result<(), BadGrain> {
    if !LIMITS.contains(&key) {
        return Err(BadGrain::new(key, format!("is no limit: {}", LIMITS.join(", "))));
    }
    let number = value.as_u64().ok_or_else(|| BadGrain::new(key, "must be a whole number from 0"))?;
    let is_exchange = matches!(key, "max_response_bytes" | "max_request_bytes");
    if is_exchange && !(1..=EXCHANGE_BYTES_MAX).contains(&number) {
        return Err(BadGrain::new(key, format!("must be 1 to {EXCHANGE_BYTES_MAX}")));
    }
    Ok(())
}

/// Always all three answers; an absent one is no.
fn annotations(answers: &Map<String, Value>) -> Result<Item, BadGrain> {
    if let Some(unknown) = answers.keys().find(|key| !ANNOTATIONS.contains(&key.as_str())) {
        return Err(BadGrain::new(unknown, format!("is no annotation: {}", ANNOTATIONS.join(", "))));
    }
    let answer = |name: &str| match answers.get(name) {
        None => Ok(false),
        Some(answer) => answer.as_bool().ok_or_else(|| BadGrain::new(name, "must be true or false")),
    };
    if answer("destructive")? && answer("read_only")? {
        return Err(BadGrain::new("annotations", "a tool cannot be both read_only and destructive"));
    }
    let entries = ANNOTATIONS.iter().map(|name| Ok(((*name).to_owned(), Item::Bool(answer(name)?))));
    entries.collect::<Result<Vec<_>, BadGrain>>().map(Item::Map)
}
