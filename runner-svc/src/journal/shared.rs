//! What the committer and the readers share: the shelf, what is not durable yet, and who watches.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::{
    error::{Fault, ReadError},
    lookup,
    payload_files::PayloadFiles,
    shelf::Shelf,
    state::RunState,
};

/// Runs that may be watched at once.
pub const WATCHED_RUNS_MAX: usize = 16 * 1024;

/// Whether the store works. Readiness follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It works.
    Ready,
    /// The disk is full: only cancels and ends of runs are written, until there is room again.
    DiskFull,
    /// Writing or syncing failed: nothing is written; it is tried again, at most 5 s apart.
    Unavailable {
        /// What was met last.
        reason: String,
    },
}

/// Shared by committer and readers.
pub(super) struct Shared {
    shelf: Box<dyn Shelf>,
    files: Arc<dyn PayloadFiles>,
    /// Runs in the commit under way, as they durably stand; `None` for a run that is being made.
    hidden: Mutex<BTreeMap<u64, Option<RunState>>>,
    watched: Mutex<BTreeMap<u64, watch::Sender<u64>>>,
    health: watch::Sender<Health>,
}

impl Shared {
    pub(super) fn new(shelf: Box<dyn Shelf>, files: Arc<dyn PayloadFiles>) -> Self {
        Self {
            shelf,
            files,
            hidden: Mutex::default(),
            watched: Mutex::default(),
            health: watch::Sender::new(Health::Ready),
        }
    }

    pub(super) fn shelf(&self) -> &dyn Shelf {
        &*self.shelf
    }

    pub(super) fn files(&self) -> &Arc<dyn PayloadFiles> {
        &self.files
    }

    /// The run's state as it durably stands; `None` while the run is being made.
    pub(super) fn durable_state(&self, number: u64, run_id: &str) -> Result<Option<RunState>, Fault> {
        // The order matters: what is not durable is hidden before it can be read.
        let read = lookup::state(self.shelf(), number, run_id);
        match self.hidden.lock().get(&number) {
            Some(before) => Ok(before.clone()),
            None => read.map(Some),
        }
    }

    /// Hides what a commit is about to change.
    pub(super) fn hide(&self, before: BTreeMap<u64, Option<RunState>>) {
        *self.hidden.lock() = before;
    }

    /// Shows what a commit has made durable and tells the watchers. Never waits for one.
    pub(super) fn show(&self, heads: &BTreeMap<u64, u64>) {
        self.hidden.lock().clear();
        let mut watched = self.watched.lock();
        for (number, head) in heads {
            let Some(sender) = watched.get(number) else { continue };
            if sender.receiver_count() == 0 {
                watched.remove(number);
            } else {
                advance(sender, *head);
            }
        }
    }

    /// After a reopening everything that can be read is durable; watchers get their runs' heads anew.
    pub(super) fn show_all(&self) {
        self.hidden.lock().clear();
        let mut watched = self.watched.lock();
        watched.retain(|_, sender| sender.receiver_count() > 0);
        for (number, sender) in watched.iter() {
            if let Ok(state) = lookup::state(self.shelf(), *number, "") {
                advance(sender, state.next_sequence);
            }
        }
    }

    /// A receiver of the run's durable next sequence number.
    pub(super) fn watch(&self, number: u64, run_id: &str) -> Result<watch::Receiver<u64>, ReadError> {
        let receiver = {
            let mut watched = self.watched.lock();
            if watched.len() >= WATCHED_RUNS_MAX {
                watched.retain(|_, sender| sender.receiver_count() > 0);
                if watched.len() >= WATCHED_RUNS_MAX && !watched.contains_key(&number) {
                    return Err(ReadError::TooManyWatched(WATCHED_RUNS_MAX));
                }
            }
            watched.entry(number).or_insert_with(|| watch::Sender::new(0)).subscribe()
        };
        // Registered first, read second: a commit in between is told by either.
        if let Some(state) = self.durable_state(number, run_id)?
            && let Some(sender) = self.watched.lock().get(&number)
        {
            advance(sender, state.next_sequence);
        }
        Ok(receiver)
    }

    pub(super) fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    pub(super) fn set_health(&self, health: Health) {
        self.health.send_if_modified(|current| {
            let changed = *current != health;
            *current = health;
            changed
        });
    }
}

fn advance(sender: &watch::Sender<u64>, head: u64) {
    sender.send_if_modified(|current| {
        let further = head > *current;
        *current = head.max(*current);
        further
    });
}
