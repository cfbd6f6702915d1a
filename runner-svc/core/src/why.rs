//! Why an unfinished run is not finished: what it waits for, since when, and what would unblock it.

use crate::{
    key::{EffectKey, EffectKind},
    manifest::Tie,
    state::{BackingOff, Flight, State},
    text::{instant, quoted, shown},
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
    /// Of an ask, everybody who cannot answer it; empty of anything else.
    pub barred: Vec<String>,
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
            barred: Vec::new(),
        }];
    }
    let mut flights = state.flights();
    let mut waiting: Vec<Waiting> = flights.by_ref().take(WAITING_MAX).map(|flight| of_flight(state, flight)).collect();
    if let Some(next) = flights.next() {
        let more = flights.count() + 1;
        waiting.push(Waiting { what: format!("{more} more effects"), ..of_flight(state, next) });
    }
    let in_flight = !waiting.is_empty();
    if state.cancel().is_none() {
        waiting.extend(backing_off(state));
    }
    if let Some(pause) = state.pause() {
        let what = match in_flight {
            true => format!("the end of the open superstep, to pause there for {}", pause.by),
            false => format!("someone to resume the run, which {} paused", pause.by),
        };
        waiting.push(Waiting { what, since_ms: pause.at_ms, unblocked_by: "ResumeRun".to_owned(), barred: Vec::new() });
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
        return Waiting { what, since_ms: cancel.at_ms, unblocked_by, barred: Vec::new() };
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
        return Waiting { what, since_ms: flight.since_ms, unblocked_by: "its end".to_owned(), barred: Vec::new() };
    }
    let EffectKey { task_path, attempt, .. } = &flight.key;
    let task = if task_path.is_empty() { String::new() } else { format!(", task {}", shown(task_path)) };
    let what = format!("effect of node {node}{task}, attempt {attempt}, dispatched {} time(s)", flight.dispatches);
    let unblocked_by = match state.manifest().timeout_ms_of(&flight.key.node) {
        Some(timeout_ms) => format!("its result, or its timeout of {timeout_ms} ms"),
        None => "its result, or the runner's timeout".to_owned(),
    };
    Waiting { what, since_ms: flight.since_ms, unblocked_by, barred: Vec::new() }
}

fn of_ask(state: &State, ask: &Flight, what: String) -> Waiting {
    let barred: Vec<String> = state.manifest().starters().map(|(name, _)| name.to_owned()).collect();
    let mut unblocked_by = format!("RespondToAsk by someone other than {}", starters(state));
    if ask.deadline_ms.is_some() {
        unblocked_by.push_str(", or the ask's deadline");
    }
    Waiting { what, since_ms: ask.since_ms, unblocked_by, barred }
}

/// Everybody who cannot answer the run's asks, and why, the first ten of them.
fn starters(state: &State) -> String {
    const NAMED_MAX: usize = 10;
    let mut starters = state.manifest().starters();
    let named = starters.by_ref().take(NAMED_MAX).map(|(name, tie)| {
        let why = match tie {
            Tie::Starter => "started the run",
            Tie::Initiator => "on whose behalf",
            Tie::Before => "of a run that it was forked from",
        };
        format!("{} ({why})", quoted(name))
    });
    let named = named.collect::<Vec<_>>().join(", ");
    match starters.count() {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// One line for each failed task that waits for its next attempt, the first hundred of them.
fn backing_off(state: &State) -> Vec<Waiting> {
    let mut tasks = state.backing_off();
    let mut waiting: Vec<Waiting> = tasks.by_ref().take(WAITING_MAX).map(|task| of_backing_off(state, &task)).collect();
    if let Some(next) = tasks.next() {
        let more = tasks.count() + 1;
        waiting.push(Waiting { what: format!("{more} more attempts, backing off"), ..of_backing_off(state, &next) });
    }
    waiting
}

fn of_backing_off(state: &State, task: &BackingOff<'_>) -> Waiting {
    let BackingOff { node, task_path, attempt, attempts, since_ms, due_ms } = *task;
    let of_task = if task_path.is_empty() { String::new() } else { format!(", task {}", shown(task_path)) };
    let what = format!("node {}{of_task}, backing off before attempt {attempt} of {attempts}", shown(node));
    let due = instant(due_ms);
    let unblocked_by = match state.is_open() {
        true => format!("its retry at {due}, once the open superstep has closed"),
        false => format!("its retry at {due}"),
    };
    Waiting { what, since_ms, unblocked_by, barred: Vec::new() }
}

fn nothing_in_flight(state: &State) -> Waiting {
    Waiting {
        what: "the runner's next decision".to_owned(),
        since_ms: state.last_at_ms(),
        unblocked_by: "the runner that holds the run's lease".to_owned(),
        barred: Vec::new(),
    }
}
