//! `on_dangling: ask`. A person is asked what became of an effect that was in flight when its process ended, and decides.

use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::{
    key::{EffectKey, EffectKind},
    outcome::{EffectOutcome, Failure, FailureCause, FailureCode},
    payload::Payload,
    pinned::PinnedTool,
    state::Flight,
    text::shown,
};

/// Questions about one effect are numbered by its dispatches, below the effect's own number.
const DISPATCHES_BITS: u32 = 16;

/// What a person decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Send it again, with the same idempotency key.
    Redispatch,
    /// It failed.
    Fail(Failure),
    /// It had this result.
    Result(Payload),
}

/// An answer's document.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer<'a> {
    decision: Decision,
    #[serde(default, borrow)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Decision {
    Redispatch,
    Fail,
    Result,
}

/// What the answer must fit.
pub(crate) fn schema() -> &'static Value {
    static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
        json!({
            "type": "object",
            "required": ["decision"],
            "properties": {
                "decision": {
                    "enum": ["redispatch", "fail", "result"],
                    "description": "send it again with the same idempotency key, let it fail, or take `result` as its result",
                },
                "result": {"description": "with `result`: what the effect answered"},
                "reason": {"type": "string", "description": "with `fail`: why"},
            },
            "additionalProperties": false,
        })
    });
    &SCHEMA
}

/// The question, for people.
pub(crate) fn question(effect: &EffectKey, tool: &PinnedTool) -> String {
    format!(
        "{effect} (tool {}) was in flight when its process ended, and nobody knows whether it happened. Look, then decide: \
         redispatch, fail, or result",
        shown(&tool.tool_name)
    )
}

/// The ask's key. It differs from the effect's by its kind, and from the question after another crash by its number.
pub(crate) fn ask_key(effect: &Flight) -> EffectKey {
    let dispatches = effect.dispatches.min((1 << DISPATCHES_BITS) - 1);
    let effect_seq = (effect.key.effect_seq << DISPATCHES_BITS) | dispatches;
    EffectKey { kind: EffectKind::Ask, effect_seq, ..effect.key.clone() }
}

/// The ask's input: the effect by its names, and what it was given.
pub(crate) fn ask_input(effect: &Flight, tool: &PinnedTool, run_id: &str) -> Payload {
    let key = &effect.key;
    let names = json!({
        "node": key.node,
        "task_path": key.task_path,
        "attempt": key.attempt,
        "effect_seq": key.effect_seq,
        "kind": key.kind.as_str(),
        "tool_name": tool.tool_name,
        "tool_call_id": key.tool_call_id(run_id).to_hex(),
        "idempotency_key": key.idempotency_key(run_id, effect.input.text()).to_hex(),
        "dispatches": effect.dispatches,
        "exchanges": effect.exchanges.len(),
    });
    // The input's text goes in as it is: every digit of it.
    Payload::new(format!(r#"{{"effect":{names},"input":{}}}"#, effect.input.text()))
}

/// Reads an answer that fits the schema.
///
/// # Errors
/// Why it cannot be followed.
pub(crate) fn verdict(answer: &Payload, by: &str, effect: &EffectKey) -> Result<Verdict, String> {
    let answer: Answer<'_> = serde_json::from_str(answer.text()).map_err(|error| error.to_string())?;
    match (answer.decision, answer.result) {
        (Decision::Redispatch, None) => Ok(Verdict::Redispatch),
        (Decision::Fail, None) => Ok(Verdict::Fail(failure(effect, by, &answer.reason))),
        (Decision::Result, Some(result)) => Ok(Verdict::Result(Payload::new(result.get()))),
        (Decision::Result, None) => Err("the decision `result` needs the member `result`".to_owned()),
        (Decision::Redispatch | Decision::Fail, Some(_)) => {
            Err("`result` goes with the decision `result` only".to_owned())
        }
    }
}

/// What follows from how the ask settled.
pub(crate) fn settled(outcome: &EffectOutcome, by: Option<&String>, effect: &EffectKey) -> Verdict {
    let who = by.map_or("nobody", String::as_str);
    match outcome {
        // An answer that cannot be followed was never taken.
        EffectOutcome::Completed { output } => {
            verdict(output, who, effect).unwrap_or_else(|problem| Verdict::Fail(failure(effect, who, &problem)))
        }
        EffectOutcome::Failed { failure: ended } => Verdict::Fail(failure(effect, who, ended.detail.text())),
    }
}

fn failure(effect: &EffectKey, by: &str, why: &str) -> Failure {
    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
    let detail = format!("{effect} was in flight when its process ended, and {by} let it fail{why}");
    Failure::permanent(FailureCause::Unknown, &detail).coded(FailureCode::DanglingIntent)
}
