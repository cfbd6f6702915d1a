//! What becomes of an effect that settled: its result waits for the close, its failure for another attempt or the run's end.

use content_digest::Digest;

use super::{Done, State, Task, apply::Applied, dialogue::Then};
use crate::{
    fan_out,
    key::{EffectKey, EffectKind},
    outcome::{EffectOutcome, Failure, Usage},
    retry,
};

impl State {
    pub(super) fn settled(&mut self, key: &EffectKey, outcome: &EffectOutcome, usage: &Usage) -> Applied {
        let task = self.in_flight(key)?;
        self.spent.use_up(usage);
        if let Some(child) = &usage.child {
            self.spent_by_child(&child.spent);
        }
        let flight = self.flights.remove(&task);
        let ran_short = flight.is_some_and(|flight| flight.reserved.used_up_short(usage, flight.egress_calls));
        self.in_doubt.remove(&task);
        self.doubts.remove(&task);
        if self.model_of(&task).is_some() {
            self.settled_in_dialogue(task, key, outcome)?;
            self.next_wave();
            return Ok(());
        }
        match outcome {
            EffectOutcome::Completed { output } => {
                let sends = fan_out::read(output, &self.sender(&task))?;
                self.results.insert(task, Done { output: output.clone(), sends });
            }
            EffectOutcome::Failed { .. } if ran_short => {
                // It ran into the end of the run's budget, not into its own limit: it is due again, with a higher budget.
                self.to_dispatch.insert(task);
            }
            EffectOutcome::Failed { failure } => self.failed(task, key, failure),
        }
        self.next_wave();
        Ok(())
    }

    fn settled_in_dialogue(&mut self, task: Task, key: &EffectKey, outcome: &EffectOutcome) -> Applied {
        match self.dialogue_settled(&task, key, outcome) {
            Then::Effect => {
                self.to_dispatch.insert(task);
            }
            Then::Result(output) => {
                let sends = fan_out::read(&output, &self.sender(&task))?;
                self.results.insert(task, Done { output, sends });
            }
            Then::Failure(failure) => self.failed(task, &EffectKey { kind: EffectKind::Llm, ..key.clone() }, &failure),
        }
        Ok(())
    }

    pub(super) fn discarded(&mut self, key: &EffectKey, usage: &Usage) -> Applied {
        if !self.has_settled(key) {
            return Err(format!("{key} has not settled before"));
        }
        self.spent.use_up(usage);
        Ok(())
    }

    /// A strict definition's input does not fit: the attempt failed without a dispatch.
    pub(super) fn input_refused(&mut self, key: &EffectKey, input: Digest, failure: &Failure) -> Applied {
        let (task, _) = self.attempted(key, input)?;
        self.failed(task, key, failure);
        Ok(())
    }

    fn failed(&mut self, task: Task, key: &EffectKey, failure: &Failure) {
        self.schedule.failed_once(&task);
        let retries = self.plan.retries_of(&key.node);
        if retry::allows(failure, key.kind, self.schedule.failures(&task), retries) {
            self.retrying.insert(task);
        } else {
            self.failures.insert(task, failure.clone());
        }
    }

    /// The task that is tried again.
    pub(super) fn retry_scheduled(
        &mut self,
        task_path: &str,
        node: &str,
        attempt: u32,
        due_ms: u64,
    ) -> Result<Task, String> {
        let node_index = self.plan.index_of(node).unwrap_or(usize::MAX);
        let task = Task { path: task_path.to_owned(), node: node_index };
        if !self.retrying.remove(&task) || self.schedule.attempts(&task) + 1 != attempt {
            return Err(format!("attempt {attempt} of node {} is not to be made", crate::text::shown(node)));
        }
        self.schedule.make_ready(&task, due_ms);
        Ok(task)
    }
}
