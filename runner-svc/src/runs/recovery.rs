//! At the start of the process: every unfinished run is taken over and driven on. What one run cannot be read for stops
//! that one only.

use std::{collections::VecDeque, sync::Arc};

use runner_core::input::Input;
use tokio::sync::{Semaphore, oneshot};

use super::{
    Room, Runs,
    take_over::{Taken, Trouble, pause},
    view::{RunStatus, Summary},
};
use crate::{
    dispatch::Outage,
    journal::{self, LIST_ROWS_MAX, ReadError, RunInfo, RunRow},
};

/// Runs that are folded at once: each may hold large results in memory.
const FOLDING_MAX: usize = 4;
/// How often the list of unfinished runs is read again before the start gives up.
const LIST_TRIES: u32 = 8;

/// What an unfinished run waits for that is not taken over yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovering {
    /// What, for people.
    pub what: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// What would unblock it.
    pub unblocked_by: &'static str,
    /// Whether it was tried and could not be.
    pub failed: bool,
}

/// One run to take over.
struct Unfinished {
    run_id: String,
    journal_bytes: u64,
    waits_for_people: bool,
}

/// What the text of a run whose recovery failed begins with.
pub const RECOVERY_FAILED: &str = "RECOVERY_FAILED: ";

/// The text of a run whose recovery failed.
pub(super) fn failed(reason: &str) -> String {
    format!("{RECOVERY_FAILED}{reason}")
}

impl Runs {
    /// Takes every unfinished run over, in the background from where room in memory has to be waited for. A run that cannot
    /// be read is quarantined, or tried again where that may help; the others go on. Returns how many are driven by then.
    ///
    /// # Errors
    /// The list of unfinished runs cannot be read.
    pub async fn recover(&self) -> Result<usize, ReadError> {
        let unfinished = self.unfinished().await?;
        let (first_pass, passed) = oneshot::channel();
        let runs = self.clone();
        self.0.tracker.spawn(async move {
            let drain = runs.0.drain.clone();
            let _drained = drain.run_until_cancelled(runs.take_all_over(unfinished, first_pass)).await;
        });
        let runs = self.clone();
        self.0.tracker.spawn(async move { runs.follow_clock().await });
        let _drained = passed.await;
        Ok(self.0.live.lock().len())
    }

    /// What an unfinished run waits for that is not taken over yet.
    pub fn recovering(&self, run_id: &str) -> Option<Recovering> {
        self.0.recovering.lock().get(run_id).cloned()
    }

    /// How many runs are not taken over yet because that failed, and is tried again.
    pub fn recovery_failures(&self) -> usize {
        self.0.recovering.lock().values().filter(|run| run.failed).count()
    }

    /// Runs that are not driven although they have not ended, and services that do not answer, a line each.
    pub fn notes(&self) -> Vec<String> {
        let quarantined = self.0.quarantined.lock();
        let quarantined =
            quarantined.iter().map(|(run_id, run)| format!("run {run_id:?} is quarantined: {}", run.reason));
        let mut notes: Vec<String> = quarantined.collect();
        notes.extend(self.shared().dispatcher.waits().outages().into_iter().map(|outage| {
            let Outage { service, url, since_ms, cause, effects } = outage;
            let secs = self.shared().now_ms().saturating_sub(since_ms) / 1000;
            format!("the {service} at {url} has not answered for {secs} s, {effects} effects wait for it: {cause}")
        }));
        let recovering = self.0.recovering.lock();
        notes.extend(
            recovering.iter().map(|(run_id, run)| format!("run {run_id:?} waits for its recovery: {}", run.what)),
        );
        notes
    }

    async fn unfinished(&self) -> Result<VecDeque<Unfinished>, ReadError> {
        let (mut found, mut suspects) = (VecDeque::new(), Vec::new());
        let mut after = None;
        loop {
            let rows = self.rows(after).await?;
            let Some(last) = rows.last() else { break };
            after = Some(last.number);
            for row in rows {
                match row.run {
                    Ok(info) if self.has_unfinished_parent(&info) => self.note_child(&info.header.run_id),
                    // One that did not come to the end of its load before comes last, and alone.
                    Ok(info) if self.shared().attempts.crashes(&info.header.run_id) > 0 => {
                        suspects.push(Unfinished::of(&info.header.run_id, &info.summary));
                    }
                    Ok(info) => found.push_back(Unfinished::of(&info.header.run_id, &info.summary)),
                    Err(damaged) => self.quarantine(&damaged.run_id.clone(), failed(&damaged.to_string())),
                }
            }
        }
        for run in found.iter().chain(&suspects) {
            self.note_recovering(&run.run_id, "its turn to be taken over after the start".to_owned(), false);
        }
        found.extend(suspects);
        Ok(found)
    }

    /// A child run is taken over by its parent, once that is driven: then it needs no room that its parent might hold.
    fn has_unfinished_parent(&self, info: &RunInfo) -> bool {
        let parent = info.header.parent.as_ref();
        parent.is_some_and(|parent| !self.shared().journal.run(&parent.run_id).is_ok_and(|parent| parent.finished))
    }

    fn note_child(&self, run_id: &str) {
        let what = "its parent, which takes it over".to_owned();
        let (since_ms, unblocked_by) = (self.shared().now_ms(), "its parent being taken over");
        self.0.recovering.lock().insert(run_id.to_owned(), Recovering { what, since_ms, unblocked_by, failed: false });
    }

    /// Takes a child run over for its parent, which is driven and has something to tell it first; only what recovery left to it.
    ///
    /// # Errors
    /// The store does not answer now.
    pub(super) async fn adopt(&self, run_id: &str, first: Vec<Input>) -> Result<(), String> {
        if self.recovering(run_id).is_none() {
            return Ok(());
        }
        match self.take_over(run_id, Some(Room::default()), first).await {
            Ok(Taken::Driven(_) | Taken::Ended | Taken::Parked { .. }) => {}
            Err(Trouble::Lasting(reason)) => self.quarantine(run_id, failed(&reason)),
            Err(Trouble::Passing(reason)) => {
                self.note_recovering(run_id, failed(&reason), true);
                return Err(reason);
            }
        }
        self.0.recovering.lock().remove(run_id);
        self.count_recovering();
        self.changed();
        Ok(())
    }

    async fn rows(&self, after: Option<u64>) -> Result<Vec<RunRow>, ReadError> {
        let mut tries = 0;
        loop {
            match self.shared().journal.unfinished(after, LIST_ROWS_MAX) {
                Err(ReadError::Storage(storage)) if tries < LIST_TRIES && storage.kind != journal::Trouble::Corrupt => {
                    tracing::warn!(%storage, "the list of unfinished runs cannot be read; trying again");
                    tokio::time::sleep(pause(tries)).await;
                    tries += 1;
                }
                read => return read,
            }
        }
    }

    async fn take_all_over(&self, mut unfinished: VecDeque<Unfinished>, first_pass: oneshot::Sender<()>) {
        let folding = Arc::new(Semaphore::new(FOLDING_MAX));
        let mut first_pass = Some(first_pass);
        let mut taking = tokio::task::JoinSet::new();
        while let Some(run) = unfinished.pop_front() {
            let mut memory = self.0.memory.try_take(run.journal_bytes);
            if memory.is_none() && !run.waits_for_people {
                // From here on the service answers while the rest waits.
                let _nobody_waits = first_pass.take().map(|passed| passed.send(()));
                self.note_recovering(&run.run_id, "room in memory".to_owned(), false);
                memory = self.0.memory.take(run.journal_bytes).await;
            }
            let alone = self.shared().attempts.crashes(&run.run_id) > 0;
            if alone {
                while taking.join_next().await.is_some() {}
            }
            let permit = Arc::clone(&folding).acquire_owned().await;
            let runs = self.clone();
            taking.spawn(async move {
                let _permit = permit;
                runs.recover_one(&run.run_id, memory.map(|memory| runs.room(memory))).await;
            });
            if alone {
                while taking.join_next().await.is_some() {}
            }
        }
        while taking.join_next().await.is_some() {}
        let _nobody_waits = first_pass.take().map(|passed| passed.send(()));
    }

    fn room(&self, memory: tokio::sync::OwnedSemaphorePermit) -> Room {
        Room { _place: self.place(), _memory: Some(memory) }
    }

    async fn recover_one(&self, run_id: &str, room: Option<Room>) {
        match self.take_over(run_id, room, Vec::new()).await {
            Ok(Taken::Driven(_) | Taken::Ended) => {}
            Ok(Taken::Parked { due_ms }) => self.park(run_id, due_ms),
            Err(Trouble::Lasting(reason)) => self.quarantine(run_id, failed(&reason)),
            Err(Trouble::Passing(reason)) => {
                let (runs, run_id) = (self.clone(), run_id.to_owned());
                return drop(self.0.tracker.spawn(async move { runs.try_again(&run_id, reason).await }));
            }
        }
        self.0.recovering.lock().remove(run_id);
        self.count();
    }

    /// Tries a run whose recovery failed again, ever less often, until the drain.
    async fn try_again(&self, run_id: &str, mut reason: String) {
        let drain = self.0.drain.clone();
        let mut tries = 0;
        loop {
            tracing::warn!(run_id, reason, tries, "a run could not be taken over; it is tried again");
            metrics::counter!("areev_recovery_failures_total").increment(1);
            self.note_recovering(run_id, failed(&reason), true);
            if drain.run_until_cancelled(tokio::time::sleep(pause(tries))).await.is_none() {
                return;
            }
            tries += 1;
            let room = Room { _place: self.place(), _memory: None };
            match self.take_over(run_id, Some(room), Vec::new()).await {
                Ok(Taken::Driven(_) | Taken::Ended | Taken::Parked { .. }) => break,
                Err(Trouble::Lasting(reason)) => {
                    self.quarantine(run_id, failed(&reason));
                    break;
                }
                Err(Trouble::Passing(again)) => reason = again,
            }
        }
        self.0.recovering.lock().remove(run_id);
        self.count_recovering();
    }

    fn note_recovering(&self, run_id: &str, what: String, failed: bool) {
        let since_ms = self.shared().now_ms();
        let unblocked_by = if failed {
            "the store reading its records again; it is tried every 30 s at least"
        } else {
            "the runs before it being taken over, or ending"
        };
        let mut recovering = self.0.recovering.lock();
        let since_ms = recovering.get(run_id).filter(|run| run.failed == failed).map_or(since_ms, |run| run.since_ms);
        recovering.insert(run_id.to_owned(), Recovering { what, since_ms, unblocked_by, failed });
        drop(recovering);
        self.count_recovering();
    }

    fn count_recovering(&self) {
        self.count();
        metrics::gauge!("areev_runs_recovery_failing").set(self.recovery_failures() as f64);
    }
}

impl Unfinished {
    fn of(run_id: &str, summary: &[u8]) -> Self {
        let summary: Option<Summary> = serde_json::from_slice(summary).ok();
        Self {
            run_id: run_id.to_owned(),
            journal_bytes: summary.as_ref().map_or(0, |summary| summary.spent.storage_bytes),
            waits_for_people: summary
                .is_some_and(|summary| matches!(summary.status, RunStatus::Waiting | RunStatus::Paused)),
        }
    }
}
