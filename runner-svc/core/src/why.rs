//! Why an unfinished run is not finished: what it waits for, since when, and what would unblock it.

use crate::{
    key::{EffectKey, EffectKind},
    state::{Flight, State},
    text::shown,
};

/// One thing that an unfinished run waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// What, such as ``effect of node `work` ``.
    pub what: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// What would unblock it.
    pub unblocked_by: String,
}

/// Most things that are told one by one.
pub const WAITING_MAX: usize = 100;

/// What the run waits for, in the plan's order, the first hundred things one by one. Never empty for an unfinished run, empty
/// for a finished one.
pub fn why(state: &State) -> Vec<Waiting> {
    if state.outcome().is_some() {
        return Vec::new();
    }
    if let (Some(cancel), true) = (state.cancel(), state.owes_revocation()) {
        return vec![Waiting {
            what: format!("end of the run's egress tokens after cancel by {}", cancel.by),
            since_ms: cancel.at_ms,
            unblocked_by: "the credential broker's answer, or a quarter of a second".to_owned(),
        }];
    }
    let mut flights = state.flights();
    let mut waiting: Vec<Waiting> = flights.by_ref().take(WAITING_MAX).map(|flight| of_flight(state, flight)).collect();
    if let Some(next) = flights.next() {
        let more = flights.count() + 1;
        waiting.push(Waiting { what: format!("{more} more effects"), ..of_flight(state, next) });
    }
    if let Some(pause) = state.pause() {
        let what = match waiting.is_empty() {
            true => format!("someone to resume the run, which {} paused", pause.by),
            false => format!("the end of the open superstep, to pause there for {}", pause.by),
        };
        waiting.push(Waiting { what, since_ms: pause.at_ms, unblocked_by: "ResumeRun".to_owned() });
    }
    if waiting.is_empty() {
        waiting.push(nothing_in_flight(state));
    }
    waiting
}

fn of_flight(state: &State, flight: &Flight) -> Waiting {
    let node = shown(&flight.key.node);
    if let Some(cancel) = state.cancel() {
        let what = format!("stop of {} after cancel by {}", flight.key, cancel.by);
        let unblocked_by = "its executor reporting that it stopped".to_owned();
        return Waiting { what, since_ms: cancel.at_ms, unblocked_by };
    }
    if flight.key.kind == EffectKind::Ask {
        let id = flight.key.tool_call_id(state.run_id());
        return of_ask(state, flight, format!("answer to ask {id} of node {node}"));
    }
    if let Some(ask) = state.ask_about(&flight.key) {
        let id = ask.key.tool_call_id(state.run_id());
        let what = format!("decision on ask {id}: {} was in flight when its process ended", flight.key);
        return of_ask(state, ask, what);
    }
    if let Some(child) = crate::child::run_id_of(&state.manifest().run_id, &flight.key) {
        let what = format!("child run {child} of node {node}");
        return Waiting { what, since_ms: flight.since_ms, unblocked_by: "its end".to_owned() };
    }
    let EffectKey { task_path, attempt, .. } = &flight.key;
    let task = if task_path.is_empty() { String::new() } else { format!(", task {}", shown(task_path)) };
    let what = format!("effect of node {node}{task}, attempt {attempt}, dispatched {} time(s)", flight.dispatches);
    let unblocked_by = match state.manifest().timeout_ms_of(&flight.key.node) {
        Some(timeout_ms) => format!("its result, or its timeout of {timeout_ms} ms"),
        None => "its result, or the runner's timeout".to_owned(),
    };
    Waiting { what, since_ms: flight.since_ms, unblocked_by }
}

fn of_ask(state: &State, ask: &Flight, what: String) -> Waiting {
    let starter = &state.manifest().principal;
    let mut unblocked_by = format!("RespondToAsk by someone other than {starter}");
    if ask.deadline_ms.is_some() {
        unblocked_by.push_str(", or the ask's deadline");
    }
    Waiting { what, since_ms: ask.since_ms, unblocked_by }
}

fn nothing_in_flight(state: &State) -> Waiting {
    let since_ms = state.last_at_ms();
    match state.schedule().next_due_ms().filter(|due_ms| *due_ms > since_ms) {
        Some(due_ms) => Waiting {
            what: "the next attempt of a failed node, which is backing off".to_owned(),
            since_ms,
            unblocked_by: format!("the clock reaching {due_ms} ms"),
        },
        None => Waiting {
            what: "the runner's next decision".to_owned(),
            since_ms,
            unblocked_by: "the runner that holds the run's lease".to_owned(),
        },
    }
}
