//! `decide`: what follows from a state. Pure: the clock comes in as an argument.

mod admit;

use crate::{
    event::{Event, Fired},
    manifest::OnDangling,
    outcome::{EffectOutcome, Failure, FailureCause, FailureCode, RunOutcome, Usage},
    state::{Flight, State, Task},
};

pub use self::admit::{Admitted, admit};

/// The event that has to follow now, without anything coming from outside; none when the run waits.
///
/// The driver asks again after each event until nothing follows, and commits them together with the event that began it.
/// Verification asks the same question of the same state.
pub fn next(state: &State, at_ms: u64) -> Option<Event> {
    if state.outcome().is_some() {
        return None;
    }
    if let Some(cancel) = state.cancel() {
        let nothing_in_flight = state.flights().next().is_none();
        let canceled = || RunOutcome::Canceled { by: cancel.by.clone(), reason: cancel.reason.clone() };
        return nothing_in_flight.then(|| finished(state, canceled()));
    }
    if let Some(flight) = state.next_in_doubt() {
        return Some(in_doubt(state, flight));
    }
    if !state.is_open() {
        return between_supersteps(state, at_ms);
    }
    if let Some(task) = state.next_to_dispatch() {
        return Some(dispatch(state, task, at_ms));
    }
    if state.flights().next().is_some() {
        return None;
    }
    Some(collected(state, at_ms))
}

/// Nothing is known of an effect whose process is gone.
fn in_doubt(state: &State, flight: &Flight) -> Event {
    let key = flight.key.clone();
    match state.manifest().on_dangling {
        OnDangling::Redispatch => Event::Redelivered { key },
        OnDangling::Fail => {
            let detail = format!(
                "{key} was in flight when its process ended, and on_dangling is `fail`: look whether it happened, then \
                 start a new run"
            );
            let failure = Failure::permanent(FailureCause::Unknown, &detail).coded(FailureCode::DanglingIntent);
            Event::ResultRecorded { key, outcome: EffectOutcome::Failed { failure }, usage: Usage::default() }
        }
    }
}

fn between_supersteps(state: &State, at_ms: u64) -> Option<Event> {
    if let Some((node, failure)) = state.first_failure() {
        let outcome = RunOutcome::Failed { node: node.to_owned(), failure: failure.clone() };
        return Some(finished(state, outcome));
    }
    let Some(demand) = state.demand(at_ms) else {
        let backing_off = state.schedule().next_due_ms().is_some();
        return (!backing_off).then(|| finished(state, at_rest(state)));
    };
    if let Some((axis, limit)) = state.manifest().budgets.exhausted(state.spent(), &demand) {
        return Some(finished(state, RunOutcome::BudgetExhausted { axis, limit }));
    }
    Some(Event::SuperstepOpened { superstep: state.superstep() + 1 })
}

/// No node is ready and none will be.
fn at_rest(state: &State) -> RunOutcome {
    if state.schedule().reached_an_end(state.plan().graph()) {
        return RunOutcome::Completed { output: state.document().clone() };
    }
    let node = state.schedule().stalled_at().unwrap_or(0);
    RunOutcome::Stalled { node: state.plan().nodes()[node].clone() }
}

fn dispatch(state: &State, task: &Task, at_ms: u64) -> Event {
    let key = state.next_key(task);
    let input = state.input_of(task).digest();
    match state.pinned(task.node).tool.effect_class() {
        Some(class) => Event::IntentRecorded { key, input, class },
        None => {
            let deadline_ms = state.manifest().ask_ttl_ms.map(|ttl_ms| at_ms.saturating_add(ttl_ms));
            Event::AskRaised { key, input, deadline_ms }
        }
    }
}

/// Every effect of the superstep settled: retries, unless a node failed for good, then the close.
fn collected(state: &State, at_ms: u64) -> Event {
    if let Some(task) = state.next_retrying().filter(|_| state.first_failure().is_none()) {
        let attempt = state.schedule().attempts(task) + 1;
        return Event::RetryScheduled { node: state.plan().nodes()[task.node].clone(), attempt, due_ms: at_ms };
    }
    match state.closing() {
        Ok(closing) => Event::SuperstepClosed {
            superstep: state.superstep(),
            state: closing.text.digest(),
            fired: Fired::new(closing.fired),
        },
        Err(too_large) => {
            let max = crate::STATE_BYTES_MAX;
            let detail = format!("the state with this node's result would be over {max} bytes: let results be smaller");
            let failure = Failure::permanent(FailureCause::ExecutorError, &detail).coded(FailureCode::TooLarge);
            let node = state.plan().nodes()[too_large.node].clone();
            finished(state, RunOutcome::Failed { node, failure })
        }
    }
}

fn finished(state: &State, outcome: RunOutcome) -> Event {
    Event::RunFinished { outcome, spent: *state.spent() }
}
