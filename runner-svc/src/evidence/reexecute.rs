//! Executes a run's modules again while its journal is verified, and compares what they give.

use std::time::Duration;

use runner_core::{
    entry::Entry,
    event::Event,
    manifest::Manifest,
    outcome::{EffectOutcome, FailureCause, Usage},
    owed::{Dispatch, Owed, owed},
    pinned::EffectClass,
    state::State,
    verify::Replay,
};

use crate::dispatch::{Dispatcher, Effect, Ending};

/// Longest time of one effect that is executed again; it took less when it was recorded, or failed by its own timeout.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// Which modules are executed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Those that can only compute.
    Pure,
    /// Those with brokered calls too: they are answered from the recorded exchanges, nothing goes out.
    AllWasm,
}

/// Executes modules again, one after the other. Used on a thread that may block.
pub struct Reexecution<'a> {
    /// Where modules run.
    pub dispatcher: &'a Dispatcher,
    /// Which.
    pub which: Which,
    /// The longest time of an effect whose node names none.
    pub effect_timeout: Duration,
    /// What drives the calls.
    pub runtime: tokio::runtime::Handle,
}

/// A module could not be executed again: that says nothing of the run.
#[derive(Debug, thiserror::Error)]
#[error("event {sequence}: the module of {effect} could not be executed again: {detail}")]
pub struct NotExecuted {
    /// The event that holds its result.
    pub sequence: u64,
    /// The effect.
    pub effect: String,
    /// What happened instead.
    pub detail: String,
}

/// What became of one event.
#[derive(Debug, PartialEq, Eq)]
pub enum Again {
    /// It is no result of such a module, or its end cannot be had again: a timeout, a cancel.
    Not,
    /// The module gave the same.
    Same,
    /// It gave something else.
    Different(String),
}

impl Reexecution<'_> {
    /// Looks at the next event, before the replay takes it.
    ///
    /// # Errors
    /// The module could not be executed.
    pub fn look(&self, replay: &Replay, entry: &Entry) -> Result<Again, NotExecuted> {
        let Event::ResultRecorded { key, outcome, usage } = entry.event() else { return Ok(Again::Not) };
        let Some(dispatch) = replay.state().and_then(|state| self.dispatch(state, entry)) else {
            return Ok(Again::Not);
        };
        if !repeatable(outcome, *usage) {
            return Ok(Again::Not);
        }
        let Some(state) = replay.state() else { return Ok(Again::Not) };
        let effect = self.effect(state.manifest(), dispatch);
        let settled = self.runtime.block_on(self.dispatcher.execute_again(effect));
        let not_executed = |detail: String| {
            let (sequence, effect) = (entry.sequence(), key.to_string());
            NotExecuted { sequence, effect, detail }
        };
        let again = match ended(settled.ending).map_err(not_executed)? {
            Ok(outcome) => outcome,
            Err(different) => return Ok(different),
        };
        let Some(Event::ResultRecorded { outcome: again, .. }) = replay.result(key, again, settled.usage) else {
            return Ok(Again::Not);
        };
        Ok(compared((outcome, *usage), (&again, settled.usage)))
    }

    fn dispatch(&self, state: &State, entry: &Entry) -> Option<Dispatch> {
        let key = entry.event().key()?;
        let dispatch = owed(state).into_iter().find_map(|owed| match owed {
            Owed::Dispatch(dispatch) if dispatch.key == *key => Some(*dispatch),
            _ => None,
        })?;
        match (dispatch.class, self.which) {
            (EffectClass::Pure, _) | (EffectClass::Brokered, Which::AllWasm) => Some(dispatch),
            _ => None,
        }
    }

    fn effect(&self, manifest: &Manifest, dispatch: Dispatch) -> Effect {
        let mut effect = Effect::of(manifest, dispatch, self.effect_timeout);
        effect.timeout = effect.timeout.min(TIMEOUT_MAX);
        effect
    }
}

/// Whether the same end can be had again: a result, or a failure of a guest that ran.
fn repeatable(outcome: &EffectOutcome, usage: Usage) -> bool {
    match outcome {
        EffectOutcome::Completed { .. } => true,
        EffectOutcome::Failed { failure } => match failure.cause {
            FailureCause::ExecutorError | FailureCause::SchemaValidationFailed => usage.fuel > 0,
            FailureCause::Timeout | FailureCause::UserAborted | FailureCause::Unknown => false,
        },
    }
}

/// How the second execution ended, or what that alone says of the run.
///
/// # Errors
/// It did not come to an end of its own.
fn ended(ending: Ending) -> Result<Result<EffectOutcome, Again>, String> {
    match ending {
        Ending::Outcome(EffectOutcome::Failed { failure }) if failure.cause == FailureCause::Timeout => {
            Err(failure.shown())
        }
        Ending::Outcome(outcome) => Ok(Ok(outcome)),
        Ending::NotJournaled => Ok(Err(Again::Different("it makes a call that is not recorded".to_owned()))),
        Ending::Canceled | Ending::Left => Err("it was stopped".to_owned()),
        Ending::InDoubt { why } => Err(why),
    }
}

/// Compares what was recorded with what came again: how it ended, with what, and what it used.
fn compared((recorded, used): (&EffectOutcome, Usage), (again, uses): (&EffectOutcome, Usage)) -> Again {
    match difference(recorded, again).or_else(|| fuel(used, uses)) {
        None => Again::Same,
        Some(problem) => Again::Different(problem),
    }
}

/// The field in which two ends differ. Texts of failures are for people and may be worded anew.
fn difference(recorded: &EffectOutcome, again: &EffectOutcome) -> Option<String> {
    match (recorded, again) {
        (EffectOutcome::Completed { output }, EffectOutcome::Completed { output: again }) => {
            (output.digest() != again.digest()).then(|| {
                let (bytes, digest) = (output.len_bytes(), output.digest());
                format!("output has to be {digest} ({bytes} bytes), found {} ({})", again.digest(), again.len_bytes())
            })
        }
        (EffectOutcome::Failed { failure }, EffectOutcome::Failed { failure: again }) => (failure.cause != again.cause)
            .then(|| format!("cause has to be {}, found {}", failure.cause.as_str(), again.cause.as_str())),
        (EffectOutcome::Completed { .. }, EffectOutcome::Failed { failure }) => {
            Some(format!("status has to be completed, found failed: {}", failure.shown()))
        }
        (EffectOutcome::Failed { failure }, EffectOutcome::Completed { .. }) => {
            Some(format!("status has to be failed ({}), found completed", failure.shown()))
        }
    }
}

/// Fuel is compared where both executions tell it.
fn fuel(recorded: Usage, again: Usage) -> Option<String> {
    let told = recorded.fuel > 0 && again.fuel > 0;
    (told && recorded.fuel != again.fuel).then(|| format!("fuel has to be {}, found {}", recorded.fuel, again.fuel))
}

#[cfg(test)]
mod tests {
    use runner_core::payload::Payload;

    use super::*;

    fn completed(text: &str) -> EffectOutcome {
        EffectOutcome::Completed { output: Payload::new(text) }
    }

    fn used(fuel: u64) -> Usage {
        Usage { fuel, ..Usage::default() }
    }

    #[test]
    fn another_output_and_another_fuel_are_each_told_and_fuel_that_one_side_does_not_tell_is_not_compared() {
        let again = |text: &str, fuel| compared((&completed("{}"), used(7)), (&completed(text), used(fuel)));
        assert_eq!(again("{}", 7), Again::Same);
        assert_eq!(again("{}", 8), Again::Different("fuel has to be 7, found 8".to_owned()));
        assert!(matches!(again("[]", 7), Again::Different(problem) if problem.starts_with("output has to be")));
        assert_eq!(again("{}", 0), Again::Same);
    }

    #[test]
    fn a_call_that_is_not_recorded_makes_the_run_another_one_and_a_stop_says_nothing_of_it() {
        let Ok(Err(Again::Different(problem))) = ended(Ending::NotJournaled) else { panic!("it counts as the same") };
        assert!(problem.contains("a call that is not recorded"), "{problem}");
        assert_eq!(ended(Ending::Outcome(completed("{}"))), Ok(Ok(completed("{}"))));
        assert!(ended(Ending::Canceled).is_err() && ended(Ending::Left).is_err());
    }
}
