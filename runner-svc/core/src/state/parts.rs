//! The fan-out tasks of a run: made at the close of the superstep in which they were asked for, gone when they settled.

use std::collections::BTreeMap;

use super::Task;
use crate::{fan_out::Send, payload::Payload};

/// Every task that has not settled for good.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    rows: BTreeMap<Task, Part>,
    /// For each parent (the path of a task, the id of a static node) the tasks that it asked for so far.
    sent: BTreeMap<String, usize>,
    /// Tasks made so far.
    made: usize,
}

/// One task.
#[derive(Debug)]
pub(crate) struct Part {
    /// Its own input.
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

impl Parts {
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
