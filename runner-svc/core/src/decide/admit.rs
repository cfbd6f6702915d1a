//! Takes in what comes from outside: which event it becomes, or why it is declined.

use content_digest::Digest;
use serde::Deserialize as _;
use serde_json::Value;

use crate::{
    doubt::{self, Verdict},
    event::{Event, Exchange, NOTE_BYTES_MAX},
    fan_out, fit,
    input::{DOCUMENT_BYTES_MAX, Declined, Input, PAUSES_MAX, REJECTIONS_PER_ASK_MAX},
    key::{EffectKey, EffectKind},
    model,
    outcome::{EffectOutcome, Failure, FailureCause, FailureCode, Usage},
    payload::Payload,
    state::{Flight, State, Task},
    text::{cut, quoted},
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
        return answered(state, Answer { tool_call_id, by: note(&by), answer, is_error }, at_ms);
    }
    if state.outcome().is_some() {
        return Err(match input {
            Input::Pause { .. } | Input::Resume { .. } => Declined::NotPausable { state: "has ended" },
            _ => Declined::Finished,
        });
    }
    match input {
        Input::Result { key, outcome, usage } => result(state, key, outcome, usage),
        Input::Lost { key, why } => lost(state, key, &why),
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
        Input::Revoked { tokens } if state.owes_revocation() => taken(Event::TokensRevoked { tokens }),
        Input::Revoked { .. } => Err(Declined::NotRevoking),
        Input::Pause { .. } | Input::Resume { .. } if state.cancel().is_some() => {
            Err(Declined::NotPausable { state: "is being canceled" })
        }
        Input::Pause { .. } if state.pause().is_some() => nothing(),
        Input::Pause { by } => paused(state, Event::PauseRequested { by: note(&by) }),
        Input::Resume { .. } if state.pause().is_none() => nothing(),
        Input::Resume { by } => taken(Event::Resumed { by: note(&by) }),
        Input::TakeOver { fence, .. } if fence <= state.fence() => {
            Err(Declined::StaleFence { last: state.fence(), found: fence })
        }
        Input::TakeOver { holder, fence } => taken(Event::LeaseTaken { holder: note(&holder), fence }),
    }
}

fn taken(event: Event) -> Result<Admitted, Declined> {
    Ok(Admitted { event: Some(event), declined: None })
}

fn nothing() -> Result<Admitted, Declined> {
    Ok(Admitted { event: None, declined: None })
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

fn lost(state: &State, key: EffectKey, why: &str) -> Result<Admitted, Declined> {
    let flight = in_flight(state, &key)?;
    if state.is_ask(flight) || state.ask_about(&key).is_some() {
        return Err(Declined::NotInFlight { key });
    }
    // A run that is being canceled waits for the effect's end, and this is one.
    if state.cancel().is_some() {
        let failure = Failure::permanent(FailureCause::Unknown, why);
        let outcome = EffectOutcome::Failed { failure };
        return taken(Event::ResultRecorded { key, outcome, usage: Usage::default() });
    }
    taken(Event::EffectLost { key, why: note(why) })
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

/// An answer of a person, in the order: open, deadline, who, document. The same answer of the same person again changes
/// nothing and is not declined: it is a call that was repeated.
fn answered(state: &State, said: Answer, at_ms: u64) -> Result<Admitted, Declined> {
    let tool_call_id = said.tool_call_id;
    let raised = state.ask_raised(&tool_call_id).ok_or(Declined::AskUnknown { tool_call_id })?;
    let Some(flight) = state.flight(&raised.key).filter(|_| raised.settled.is_none()) else {
        let again = || taken_as(raised.key.clone(), &said);
        return match &raised.settled {
            Some(settled) if settled.is_repeated_by(&again()) => nothing(),
            settled => Err(Declined::AskSettled { tool_call_id, settled: settled.clone() }),
        };
    };
    let key = flight.key.clone();
    if flight.deadline_ms.is_some_and(|deadline_ms| at_ms >= deadline_ms) {
        return evidence(expired(flight), Declined::AskExpired { tool_call_id });
    }
    match wrong(state, &key, &said) {
        Some(declined) => rejected(state, key, said.by, declined),
        None => taken(taken_as(key, &said)),
    }
}

/// Why an answer to an open ask is not taken; none when it is.
fn wrong(state: &State, key: &EffectKey, said: &Answer) -> Option<Declined> {
    if let Some(tie) = state.manifest().tie_of(&said.by) {
        return Some(Declined::SelfApproval { by: said.by.clone(), tie });
    }
    let bad = |problem: String| Some(Declined::BadDocument { what: "the answer", problem });
    let value = match said_as(&said.answer) {
        Ok(value) => value,
        Err(problem) => return bad(problem),
    };
    if said.is_error {
        return None;
    }
    if asks_for_tasks(&said.answer) {
        return bad(format!("has the reserved key `{}`: only a tool asks for tasks", fan_out::SEND_KEY));
    }
    misfit(state, key, &said.answer, &value).map(|reason| Declined::WrongAnswer { reason: note(&reason) })
}

/// The evidence of an answer that is not taken, as far as the journal has room for it.
fn rejected(state: &State, key: EffectKey, by: String, declined: Declined) -> Result<Admitted, Declined> {
    let reason = match &declined {
        Declined::WrongAnswer { reason } => reason.clone(),
        other => note(&other.to_string()),
    };
    let kept = state.rejections(&key);
    let event = Event::AskRejected { key, by, reason: reason.clone() };
    let many = (kept >= REJECTIONS_PER_ASK_MAX)
        .then(|| format!("{kept} rejected answers to the ask are recorded, at most {REJECTIONS_PER_ASK_MAX} are"));
    match many.or_else(|| no_room(state, &event)) {
        Some(bound) => Err(Declined::TooManyRejections { bound, reason }),
        None => evidence(event, declined),
    }
}

/// A pause, as often as a run may be paused. A pause that comes with the parent's is bounded with the parent's.
fn paused(state: &State, event: Event) -> Result<Admitted, Declined> {
    let Event::PauseRequested { by } = &event else { return taken(event) };
    if state.is_parent(by) {
        return taken(event);
    }
    let pauses = state.pauses();
    let many =
        (pauses >= PAUSES_MAX).then(|| format!("the run was paused {pauses} times, at most {PAUSES_MAX} are taken"));
    match many.or_else(|| no_room(state, &event)) {
        Some(bound) => Err(Declined::TooManyPauses { bound }),
        None => taken(event),
    }
}

/// Why what a person made an event of would take the journal over its budget; none while it does not.
fn no_room(state: &State, event: &Event) -> Option<String> {
    /// What the record has beside its event: number, time, hash of the one before.
    const ENVELOPE_BYTES_MAX: u64 = 256;
    let limit = state.manifest().budgets.max_storage_bytes?;
    let bytes = (event.to_json().len() as u64).saturating_add(ENVELOPE_BYTES_MAX);
    let stored = state.spent().storage_bytes;
    (stored.saturating_add(bytes) > limit)
        .then(|| format!("the journal has {stored} bytes of max_storage_bytes {limit}, too few for {bytes} more"))
}

/// Reads what a person said.
///
/// # Errors
/// What is wrong with it, to be put behind its name.
fn said_as(answer: &Payload) -> Result<Value, String> {
    let bytes = answer.len_bytes();
    if bytes > DOCUMENT_BYTES_MAX {
        return Err(format!("has {bytes} bytes, over {DOCUMENT_BYTES_MAX}"));
    }
    if answer.text().trim().is_empty() {
        return Err("is empty: give one JSON text".to_owned());
    }
    answer.parse().map_err(|error| format!("is no JSON: {error}"))
}

/// The event that takes an answer.
fn taken_as(key: EffectKey, said: &Answer) -> Event {
    let Answer { by, answer, is_error, .. } = said;
    let outcome = if *is_error {
        let failure = Failure::new(FailureCause::UserAborted, &refusal_text(by, answer));
        EffectOutcome::Failed { failure }
    } else {
        EffectOutcome::Completed { output: answer.clone() }
    };
    Event::AskAnswered { key, by: by.clone(), outcome }
}

/// Why an answer is not taken.
fn misfit(state: &State, key: &EffectKey, answer: &Payload, value: &Value) -> Option<String> {
    let node = state.node_of(key)?;
    let Some((_, effect)) = state.doubt(key) else { return fit::answer(&node.tool, value) };
    if let Some(problem) = fit::misfit(doubt::schema(), value) {
        return Some(format!("it is no decision: {problem}"));
    }
    match doubt::verdict(answer, "", &effect.key) {
        Err(problem) => Some(problem),
        Ok(Verdict::Result(output)) => {
            unusable(state, &effect.key, &output).map(|failure| failure.detail.text().to_owned())
        }
        Ok(Verdict::Redispatch | Verdict::Fail(_)) => None,
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
    let said = quoted(&said);
    if said.trim().is_empty() { format!("{by} refused") } else { format!("{by} refused: {said}") }
}

fn first_expired(state: &State, at_ms: u64) -> Option<&Flight> {
    state.asks().map(|ask| ask.flight).find(|flight| flight.deadline_ms.is_some_and(|deadline_ms| at_ms >= deadline_ms))
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
