//! A run and the child runs below it: found by what their journals say, level by level, bounded.

use std::collections::VecDeque;

use content_digest::Digest;
use runner_core::{child::Named, entry::Entry, run_id::RunId};

/// Child runs of all levels that one call looks at; what is over is counted.
pub const CHILDREN_MAX: usize = 1000;

/// Child runs that are still to be looked at.
#[derive(Debug, Default)]
pub struct Family {
    waiting: VecDeque<Kin>,
    met: usize,
    left_out: u64,
}

/// One child run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kin {
    /// Its id.
    pub run_id: RunId,
    /// Its parent's.
    pub parent: String,
    /// The hash of its last event, where its parent's journal vouches for it. Without one it may not have been started.
    pub head: Option<Digest>,
}

/// Collects the children that one run names while its events are read.
#[derive(Debug)]
pub struct Children {
    parent: Option<RunId>,
    named: Named,
}

impl Children {
    /// Of a run.
    pub fn of(run_id: &str) -> Self {
        Self { parent: RunId::try_from(run_id.to_owned()).ok(), named: Named::default() }
    }

    /// Takes an event.
    pub fn take(&mut self, entry: &Entry) {
        if let Some(parent) = &self.parent {
            self.named.take(parent, entry.event());
        }
    }
}

impl Family {
    /// The children of a run that was read: they are looked at after what waits already.
    pub fn add(&mut self, children: Children) {
        let Children { parent: Some(parent), named } = children else { return };
        for (run_id, head) in named.into_runs() {
            if self.met >= CHILDREN_MAX {
                self.left_out += 1;
                continue;
            }
            self.met += 1;
            self.waiting.push_back(Kin { run_id, parent: parent.as_str().to_owned(), head });
        }
    }

    /// The next one.
    pub fn take_next(&mut self) -> Option<Kin> {
        self.waiting.pop_front()
    }

    /// Children that are not looked at, over [`CHILDREN_MAX`]; those below them are not counted.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}
