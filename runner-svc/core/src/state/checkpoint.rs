//! How far a run's plan is while nothing is in flight: what a fork with the same plan goes on from.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Done, Schedule, State, Task};
use crate::{budget::Spent, fan_out, payload::Payload, plan::Plan, reserve::Wave};

/// Everything of a state that its document does not say. Written into the manifest of a fork.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    superstep: u64,
    /// Whether the last superstep is open: only of a run that ended in it because a budget was spent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    open: bool,
    schedule: Schedule,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    to_dispatch: BTreeSet<Task>,
    /// Results of the open superstep, as their texts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    results: Vec<(Task, String)>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    retrying: BTreeSet<Task>,
    spent: Spent,
}

impl State {
    /// Whether a fork could go on from here: nothing is in flight, no model is asked, the run has not ended and is not being canceled, and no node
    /// failed for good.
    pub fn is_forkable(&self) -> bool {
        let rests = self.flights.is_empty() && self.dialogues.is_empty() && self.failures.is_empty();
        rests && self.cancel.is_none() && self.outcome.is_none()
    }

    /// How far the plan is; none where no fork could go on.
    pub fn checkpoint(&self) -> Option<Checkpoint> {
        self.is_forkable().then(|| Checkpoint {
            superstep: self.superstep,
            open: self.open,
            schedule: self.schedule.clone(),
            to_dispatch: self.to_dispatch.clone(),
            results: self.results.iter().map(|(task, done)| (task.clone(), done.output.text().to_owned())).collect(),
            retrying: self.retrying.clone(),
            spent: self.spent,
        })
    }

    /// Supersteps that it has opened.
    pub fn supersteps(&self) -> u64 {
        self.superstep
    }

    /// Goes on from a checkpoint, which comes from a manifest and is checked like anything from outside.
    pub(super) fn resume_from(&mut self, checkpoint: &Checkpoint) -> Result<(), String> {
        if !checkpoint.is_of(&self.plan) {
            return Err("RUN-E010: the checkpoint is not one of this plan".to_owned());
        }
        let stored_bytes = self.spent.storage_bytes;
        self.superstep = checkpoint.superstep;
        self.open = checkpoint.open;
        self.schedule = checkpoint.schedule.clone();
        self.to_dispatch.clone_from(&checkpoint.to_dispatch);
        self.retrying.clone_from(&checkpoint.retrying);
        self.spent = checkpoint.spent;
        self.spent.storage_bytes = self.spent.storage_bytes.saturating_add(stored_bytes);
        self.opened_wall_ms = self.spent.wall_ms;
        self.wave = Wave::after(&self.spent);
        for (task, text) in &checkpoint.results {
            let output = Payload::new(text.as_str());
            let sends = fan_out::read(&output, &self.sender(task)).map_err(|problem| format!("RUN-E010: {problem}"))?;
            self.results.insert(task.clone(), Done { output, sends });
        }
        Ok(())
    }
}

impl Checkpoint {
    fn is_of(&self, plan: &Plan) -> bool {
        let mut tasks = self.to_dispatch.iter().chain(&self.retrying).chain(self.results.iter().map(|(task, _)| task));
        self.schedule.is_of(plan) && tasks.all(|task| self.schedule.knows(task)) && (self.open || self.is_between())
    }

    fn is_between(&self) -> bool {
        self.to_dispatch.is_empty() && self.retrying.is_empty() && self.results.is_empty()
    }
}
