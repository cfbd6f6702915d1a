//! Takes in what comes from outside: which event it becomes, or why it is declined.

use content_digest::Digest;
use serde::Deserialize as _;
use serde_json::Value;

use crate::{
    event::{Event, Exchange, NOTE_BYTES_MAX},
    fan_out, fit,
    input::{DOCUMENT_BYTES_MAX, Declined, Input},
    key::{EffectKey, EffectKind},
    model,
    outcome::{EffectOutcome, Failure, FailureCause, FailureCode, Usage},
    payload::Payload,
    state::{Flight, State, Task},
    text::cut,
};

/// What becomes of an input.
#[derive(Debug)]
pub struct Admitted {
    /// The event to record; none when the input changes nothing (a tick before every deadline).
    pub event: Option<Event>,
    /// Set when the event is only the evidence of an input that is declined all the same.
    pub declined: Option<Declined>,
}

/// Decides what an input becomes. Nothing must be due by itself ([`super::next`]) when it is asked.
///
/// # Errors
/// The input is declined and leaves no trace.
pub fn admit(state: &State, input: Input, at_ms: u64) -> Result<Admitted, Declined> {
    if let Input::Answer { tool_call_id, by, answer, is_error } = input {
        let flight = open_ask(state, tool_call_id)?;
        return answered(state, flight, Answer { tool_call_id, by: note(&by), answer, is_error }, at_ms);
    }
    if state.outcome().is_some() {
        return Err(Declined::Finished);
    }
    match input {
        Input::Result { key, outcome, usage } => result(state, key, outcome, usage),
        Input::Exchange { key, exchange } => exchanged(state, key, exchange),
        Input::Egress { key, refused, record } => {
            in_flight(state, &key)?;
            readable("the audit record", &record)?;
            taken(if refused { Event::EgressRefused { key, record } } else { Event::EgressCalled { key, record } })
        }
        Input::Answer { tool_call_id, .. } => Err(Declined::AskUnknown { tool_call_id }),
        Input::Tick => Ok(Admitted { event: first_expired(state, at_ms).map(expired), declined: None }),
        Input::Cancel { .. } if state.cancel().is_some() => Err(Declined::Canceling),
        Input::Cancel { by, reason } => taken(Event::CancelRequested { by: note(&by), reason: note(&reason) }),
        Input::TakeOver { fence, .. } if fence <= state.fence() => {
            Err(Declined::StaleFence { last: state.fence(), found: fence })
        }
        Input::TakeOver { holder, fence } => taken(Event::LeaseTaken { holder: note(&holder), fence }),
    }
}

fn taken(event: Event) -> Result<Admitted, Declined> {
    Ok(Admitted { event: Some(event), declined: None })
}

fn evidence(event: Event, declined: Declined) -> Result<Admitted, Declined> {
    Ok(Admitted { event: Some(event), declined: Some(declined) })
}

fn result(state: &State, key: EffectKey, outcome: EffectOutcome, usage: Usage) -> Result<Admitted, Declined> {
    if state.has_settled(&key) {
        let output = match &outcome {
            EffectOutcome::Completed { output } => Some(output.digest()),
            EffectOutcome::Failed { .. } => None,
        };
        return evidence(Event::ResultDiscarded { key: key.clone(), output, usage }, Declined::NotInFlight { key });
    }
    let flight = in_flight(state, &key)?;
    if flight.key.kind == EffectKind::Ask {
        return Err(Declined::NotInFlight { key });
    }
    let outcome = match outcome {
        EffectOutcome::Completed { output } => match unusable(state, &key, &output) {
            Some(failure) => EffectOutcome::Failed { failure },
            None => EffectOutcome::Completed { output },
        },
        EffectOutcome::Failed { failure } => EffectOutcome::Failed { failure },
    };
    taken(Event::ResultRecorded { key, outcome, usage })
}

/// Why a result cannot be taken as one.
fn unusable(state: &State, key: &EffectKey, output: &Payload) -> Option<Failure> {
    let value = match document(output) {
        Ok(value) => value,
        Err(failure) => return Some(failure),
    };
    let task = state.task_of(key)?;
    if state.model_of(&task).is_some() {
        return unusable_in_dialogue(state, &task, key, value);
    }
    if let Err(refused) = fan_out::read(output, &state.sender(&task)) {
        return Some(Failure::permanent(FailureCause::SchemaValidationFailed, &refused));
    }
    fit::result(&state.node_of(key)?.tool, value)
}

/// The same of an effect of an abstract node: a tool's result is for the model; only what the model ends with is the node's.
fn unusable_in_dialogue(state: &State, task: &Task, key: &EffectKey, value: Value) -> Option<Failure> {
    if key.kind == EffectKind::Tool {
        return fit::result(&state.node_of(key)?.tool, value);
    }
    let result = model::Answer::deserialize(value).ok().filter(|answer| answer.tool_calls.is_empty())?.result()?;
    let refused = fan_out::read(&result, &state.sender(task)).err()?;
    Some(Failure::new(FailureCause::SchemaValidationFailed, &refused))
}

/// Reads a result or an answer.
///
/// # Errors
/// Why it is no document.
fn document(output: &Payload) -> Result<Value, Failure> {
    let bytes = output.len_bytes();
    if bytes > DOCUMENT_BYTES_MAX {
        let detail =
            format!("RESULT_TOO_LARGE: the result has {bytes} bytes, over {DOCUMENT_BYTES_MAX}: return a reference");
        return Err(Failure::permanent(FailureCause::ExecutorError, &detail).coded(FailureCode::TooLarge));
    }
    let error = |error| Failure::new(FailureCause::ExecutorError, &format!("the output is not JSON: {error}"));
    output.parse().map_err(error)
}

fn exchanged(state: &State, key: EffectKey, exchange: Exchange) -> Result<Admitted, Declined> {
    let flight = in_flight(state, &key)?;
    let expected = u32::try_from(flight.exchanges.len()).unwrap_or(u32::MAX);
    if exchange.ordinal != expected {
        return Err(Declined::ExchangeOutOfOrder { key, expected, found: exchange.ordinal });
    }
    readable("the response of an exchange", &exchange.response)?;
    if let Some(record) = &exchange.record {
        readable("the audit record", record)?;
    }
    taken(Event::ExchangeRecorded { key, exchange })
}

/// What a person said to an ask.
struct Answer {
    tool_call_id: Digest,
    by: String,
    answer: Payload,
    is_error: bool,
}

/// An answer of a person, in the order: deadline, who, document.
fn answered(state: &State, flight: &Flight, said: Answer, at_ms: u64) -> Result<Admitted, Declined> {
    let Answer { tool_call_id, by, answer, is_error } = said;
    let key = flight.key.clone();
    if flight.deadline_ms.is_some_and(|deadline_ms| at_ms >= deadline_ms) {
        return evidence(expired(flight), Declined::AskExpired { tool_call_id });
    }
    if state.manifest().was_started_by(&by) {
        let declined = Declined::SelfApproval { by: by.clone() };
        return evidence(Event::AskRejected { key, by, reason: note(&declined.to_string()) }, declined);
    }
    if is_error {
        let failure = Failure::new(FailureCause::UserAborted, &refusal_text(&by, &answer));
        return taken(Event::AskAnswered { key, by, outcome: EffectOutcome::Failed { failure } });
    }
    let value = document(&answer)
        .map_err(|failure| Declined::BadDocument { what: "the answer", problem: failure.detail.text().to_owned() })?;
    if asks_for_tasks(&answer) {
        let problem = format!("has the reserved key `{}`: only a tool asks for tasks", fan_out::SEND_KEY);
        return Err(Declined::BadDocument { what: "the answer", problem });
    }
    match state.node_of(&key).and_then(|node| fit::answer(&node.tool, &value)) {
        Some(reason) => {
            let reason = note(&reason);
            evidence(Event::AskRejected { key, by, reason: reason.clone() }, Declined::WrongAnswer { reason })
        }
        None => taken(Event::AskAnswered { key, by, outcome: EffectOutcome::Completed { output: answer } }),
    }
}

fn asks_for_tasks(answer: &Payload) -> bool {
    let has_key = |answer: serde_json::Value| answer.get(fan_out::SEND_KEY).is_some();
    fan_out::may_send(answer) && answer.parse().is_ok_and(has_key)
}

/// What a refusing person said, a JSON text without its quotes.
fn refusal_text(by: &str, answer: &Payload) -> String {
    let said = match answer.parse() {
        Ok(Value::String(text)) => text,
        Ok(Value::Null) => String::new(),
        _ => answer.text().to_owned(),
    };
    if said.trim().is_empty() { format!("{by} refused") } else { format!("{by} refused: {said}") }
}

fn open_ask(state: &State, tool_call_id: Digest) -> Result<&Flight, Declined> {
    let key = state.ask_raised(&tool_call_id).ok_or(Declined::AskUnknown { tool_call_id })?;
    state.flight(key).ok_or(Declined::AskSettled { tool_call_id })
}

fn first_expired(state: &State, at_ms: u64) -> Option<&Flight> {
    state.flights().find(|flight| flight.deadline_ms.is_some_and(|deadline_ms| at_ms >= deadline_ms))
}

fn expired(flight: &Flight) -> Event {
    let failure = Failure::new(FailureCause::Timeout, "nobody answered before the ask's deadline");
    let key = flight.key.clone();
    Event::ResultRecorded { key, outcome: EffectOutcome::Failed { failure }, usage: Usage::default() }
}

fn in_flight<'a>(state: &'a State, key: &EffectKey) -> Result<&'a Flight, Declined> {
    state.flight(key).ok_or_else(|| Declined::NotInFlight { key: key.clone() })
}

fn readable(what: &'static str, payload: &Payload) -> Result<(), Declined> {
    let bytes = payload.len_bytes();
    if bytes > DOCUMENT_BYTES_MAX {
        return Err(Declined::BadDocument { what, problem: format!("has {bytes} bytes, over {DOCUMENT_BYTES_MAX}") });
    }
    payload.parse().map(|_| ()).map_err(|error| Declined::BadDocument { what, problem: format!("is no JSON: {error}") })
}

fn note(text: &str) -> String {
    cut(text, NOTE_BYTES_MAX - 4)
}
