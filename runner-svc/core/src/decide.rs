//! `decide`: what follows from a state. Pure: the clock comes in as an argument.

mod admit;

use content_digest::Digest;

use crate::{
    budget::Axis,
    doubt::{self, Verdict},
    event::{Event, Fired},
    fit,
    key::EffectKey,
    manifest::OnDangling,
    outcome::{EffectOutcome, Failure, FailureCause, FailureCode, RunOutcome, Usage},
    state::{Cancel, Flight, Overfull, State, Task},
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
        return canceling(state, cancel);
    }
    if let Some((flight, verdict)) = state.next_verdict() {
        return Some(decided(flight, verdict));
    }
    if let Some(flight) = state.next_in_doubt() {
        return Some(in_doubt(state, flight, at_ms));
    }
    if !state.is_open() {
        return between_supersteps(state, at_ms);
    }
    if let Some((task, _)) = state.next_to_dispatch() {
        return Some(dispatch(state, task, at_ms));
    }
    if state.flights().next().is_some() {
        return None;
    }
    Some(collected(state, at_ms))
}

/// Nothing is known of an effect whose process is gone.
fn in_doubt(state: &State, flight: &Flight, at_ms: u64) -> Event {
    let key = flight.key.clone();
    match state.manifest().on_dangling {
        OnDangling::Redispatch => Event::Redelivered { key },
        OnDangling::Fail => {
            let detail = format!(
                "{key} was in flight when its process ended, and on_dangling is `fail`: look whether it happened, then \
                 start a new run"
            );
            let failure = Failure::permanent(FailureCause::Unknown, &detail).coded(FailureCode::DanglingIntent);
            failed(key, failure)
        }
        OnDangling::Ask => {
            let tool = state.node_of(&key).map(|node| &node.tool);
            let input = tool.map_or(Digest::ZERO, |tool| doubt::ask_input(flight, tool, state.run_id()).digest());
            Event::AskRaised { key: doubt::ask_key(flight), input, deadline_ms: ask_deadline(state, at_ms) }
        }
    }
}

/// A person said what became of an effect, or nobody did in time.
fn decided(flight: &Flight, verdict: &Verdict) -> Event {
    let key = flight.key.clone();
    match verdict {
        Verdict::Redispatch => Event::Redelivered { key },
        Verdict::Fail(failure) => failed(key, failure.clone()),
        Verdict::Result(output) => {
            let outcome = EffectOutcome::Completed { output: output.clone() };
            Event::ResultRecorded { key, outcome, usage: Usage::default() }
        }
    }
}

fn failed(key: EffectKey, failure: Failure) -> Event {
    Event::ResultRecorded { key, outcome: EffectOutcome::Failed { failure }, usage: Usage::default() }
}

fn ask_deadline(state: &State, at_ms: u64) -> Option<u64> {
    state.manifest().ask_ttl_ms.map(|ttl_ms| at_ms.saturating_add(ttl_ms))
}

/// Questions close at once, effects as they stop; the run ends when nothing is in flight and its tokens are revoked.
fn canceling(state: &State, cancel: &Cancel) -> Option<Event> {
    if cancel.settles {
        if let Some(ask) = state.next_ask_to_close() {
            let failure = Failure::permanent(FailureCause::UserAborted, "closed: the run was canceled");
            return Some(failed(ask.key.clone(), failure));
        }
        if !cancel.tokens_ended {
            return None;
        }
    }
    let nothing_in_flight = state.flights().next().is_none();
    let canceled = || RunOutcome::Canceled { by: cancel.by.clone(), reason: cancel.reason.clone() };
    nothing_in_flight.then(|| finished(state, canceled()))
}

fn between_supersteps(state: &State, at_ms: u64) -> Option<Event> {
    if let Some((node, failure)) = state.first_failure() {
        if let Some(limit) = out_of_time(state, failure) {
            return Some(finished(state, RunOutcome::BudgetExhausted { axis: Axis::WallMs, limit }));
        }
        let outcome = RunOutcome::Failed { node: node.to_owned(), failure: failure.clone() };
        return Some(finished(state, outcome));
    }
    let Some(demand) = state.demand(at_ms) else {
        let backing_off = state.schedule().next_due_ms().is_some();
        return (!backing_off).then(|| finished(state, at_rest(state)));
    };
    if state.pause().is_some() {
        return None;
    }
    if let Some((axis, limit)) = state.manifest().budgets.exhausted(state.spent(), &demand) {
        return Some(finished(state, RunOutcome::BudgetExhausted { axis, limit }));
    }
    Some(Event::SuperstepOpened { superstep: state.superstep() + 1 })
}

/// An effect waits no longer than the run's budget of time: when it is spent, that is why the effect timed out.
fn out_of_time(state: &State, failure: &Failure) -> Option<u64> {
    let budgets = &state.manifest().budgets;
    let spent = state.manifest().wave_effects_max.is_some() && budgets.is_spent(Axis::WallMs, state.spent());
    budgets.max_wall_ms.filter(|_| spent && failure.cause == FailureCause::Timeout)
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
    let (input, tool) = (state.input_of(task), &state.pinned(state.executing(task)).tool);
    // What a model gave was held to the schema when it gave it.
    if let Some(failure) = fit::input(tool, &input).filter(|_| state.model_of(task).is_none()) {
        return Event::InputRefused { key, input: input.digest(), failure };
    }
    let input = input.digest();
    match tool.effect_class() {
        Some(class) => Event::IntentRecorded { key, input, class },
        None => {
            let deadline_ms = ask_deadline(state, at_ms);
            Event::AskRaised { key, input, deadline_ms }
        }
    }
}

/// Every effect of the superstep settled: retries, unless a task failed for good, then the close.
fn collected(state: &State, at_ms: u64) -> Event {
    if let Some(task) = state.next_retrying().filter(|_| !state.has_failed()) {
        return retry(state, task, at_ms);
    }
    match state.closing() {
        Ok(closing) => Event::SuperstepClosed {
            superstep: state.superstep(),
            state: closing.text.digest(),
            fired: Fired::new(closing.fired),
        },
        Err(overfull) => {
            let (node, detail) = match overfull {
                Overfull::State { node } => {
                    let max = crate::STATE_BYTES_MAX;
                    (
                        node,
                        format!("the state with this node's result would be over {max} bytes: let results be smaller"),
                    )
                }
                Overfull::Tasks { node } => {
                    let max = crate::fan_out::TASKS_PER_RUN_MAX;
                    (node, format!("with what this node sends the run would have over {max} tasks: send fewer"))
                }
            };
            let failure = Failure::permanent(FailureCause::ExecutorError, &detail).coded(FailureCode::TooLarge);
            finished(state, RunOutcome::Failed { node: state.plan().nodes()[node].clone(), failure })
        }
    }
}

/// The next attempt of a failed task: at once, or after the node's delay.
fn retry(state: &State, task: &Task, at_ms: u64) -> Event {
    let key = state.next_key(task);
    let delay_ms = state
        .manifest()
        .backoff_of(&key.node)
        .map_or(0, |backoff| backoff.delay_ms(state.schedule().failures(task), key.tool_call_id(state.run_id())));
    let EffectKey { task_path, node, attempt, .. } = key;
    Event::RetryScheduled { task_path, node, attempt, due_ms: at_ms.saturating_add(delay_ms) }
}

fn finished(state: &State, outcome: RunOutcome) -> Event {
    Event::RunFinished { outcome, spent: *state.spent() }
}
