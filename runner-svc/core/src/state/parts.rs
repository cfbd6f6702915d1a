//! The fan-out tasks of a run: made at the close of the superstep in which they were asked for, gone when they settled.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Task;
use crate::{fan_out::Send, payload::Payload};

/// Every task that has not settled for good.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Parts {
    #[serde(with = "rows")]
    rows: BTreeMap<Task, Part>,
    /// For each parent (the path of a task, the id of a static node) the tasks that it asked for so far.
    sent: BTreeMap<String, usize>,
    /// Tasks made so far.
    made: usize,
}

/// One task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// Its own input.
    #[serde(with = "crate::payload::text")]
    pub(crate) input: Payload,
    /// How deep it lies: 1 when a static node asked for it.
    pub(crate) depth: usize,
    /// Not dispatched before this, in milliseconds since 1970.
    pub(crate) due_ms: u64,
    /// Attempts so far.
    pub(crate) attempts: u32,
    /// Failures so far.
    pub(crate) failures: u32,
}

/// Rows as a list: JSON has no keys but texts.
mod rows {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize as _, Serializer};

    use super::{Part, Task};

    pub(super) fn serialize<S: Serializer>(rows: &BTreeMap<Task, Part>, serializer: S) -> Result<S::Ok, S::Error> {
        rows.iter().collect::<Vec<_>>().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<Task, Part>, D::Error> {
        Ok(Vec::<(Task, Part)>::deserialize(deserializer)?.into_iter().collect())
    }
}

impl Parts {
    /// Every task that has not settled for good.
    pub(super) fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.rows.keys()
    }

    pub(crate) fn get(&self, task: &Task) -> Option<&Part> {
        self.rows.get(task)
    }

    pub(super) fn get_mut(&mut self, task: &Task) -> Option<&mut Part> {
        self.rows.get_mut(task)
    }

    /// Tasks made so far, the settled ones among them.
    pub(crate) fn made(&self) -> usize {
        self.made
    }

    /// Tasks that a parent asked for so far.
    pub(crate) fn sent_by(&self, parent: &str) -> usize {
        self.sent.get(parent).copied().unwrap_or(0)
    }

    /// Makes a task: its path is the parent's with the next ordinal.
    pub(super) fn make(&mut self, parent: &str, depth: usize, send: Send) -> Task {
        let ordinal = self.sent.entry(parent.to_owned()).or_insert(0);
        let task = Task { path: format!("{parent}/{ordinal:04}"), node: send.node };
        *ordinal += 1;
        self.made += 1;
        let part = Part { input: send.input, depth, due_ms: 0, attempts: 0, failures: 0 };
        self.rows.insert(task.clone(), part);
        task
    }

    /// The task settled for good.
    pub(super) fn remove(&mut self, task: &Task) {
        self.rows.remove(task);
    }
}
