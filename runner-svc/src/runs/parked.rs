//! Runs that are not in memory because only people or the clock can move them on: found again when somebody asks.

use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;

use super::{
    Handle, Room, Runs,
    take_over::{Taken, Trouble},
};

/// Longest time between two looks at the clock: it may be set meanwhile.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A run that waits on the disk.
pub struct Parked {
    /// When the clock moves it on, in milliseconds since 1970.
    due_ms: Option<u64>,
    /// It counts as unfinished all the same.
    place: Option<OwnedSemaphorePermit>,
}

impl Runs {
    /// A run that is driven here, or that is taken up now because somebody asks for it. None when it has ended, is still
    /// being recovered, or cannot be driven.
    pub async fn reach(&self, run_id: &str) -> Option<Handle> {
        if let Some(handle) = self.live(run_id) {
            return Some(handle);
        }
        if !self.0.parked.lock().contains_key(run_id) {
            return None;
        }
        let _one_at_a_time = self.0.taking_up.lock().await;
        if let Some(handle) = self.live(run_id) {
            return Some(handle);
        }
        let place = self.0.parked.lock().get_mut(run_id)?.place.take();
        // Who asks is not kept waiting for room.
        match self.take_over(run_id, Some(Room { _place: place, _memory: None }), Vec::new()).await {
            Ok(Taken::Driven(handle)) => {
                self.0.parked.lock().remove(run_id);
                Some(handle)
            }
            Ok(Taken::Ended | Taken::Parked { .. }) => {
                self.0.parked.lock().remove(run_id);
                None
            }
            Err(Trouble::Passing(reason)) => {
                tracing::warn!(run_id, reason, "a run could not be taken up");
                None
            }
            Err(Trouble::Lasting(reason)) => {
                self.0.parked.lock().remove(run_id);
                self.quarantine(run_id, super::recovery::failed(&reason));
                None
            }
        }
    }

    pub(super) fn park(&self, run_id: &str, due_ms: Option<u64>) {
        tracing::info!(run_id, "run left on the disk: only people or the clock can move it on");
        self.0.parked.lock().insert(run_id.to_owned(), Parked { due_ms, place: self.place() });
        self.count();
    }

    /// A run that the store may have written although it failed: it is driven once it is found, and forgotten when it is not.
    pub(super) fn look_for(&self, run_id: &str) {
        self.0.parked.lock().entry(run_id.to_owned()).or_insert(Parked { due_ms: Some(0), place: None });
    }

    /// Takes up parked runs whose time has come, until the drain.
    pub(super) async fn follow_clock(&self) {
        let drain = self.0.drain.clone();
        while drain.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            for run_id in self.parked_and_due() {
                self.reach(&run_id).await;
            }
        }
    }

    fn parked_and_due(&self) -> Vec<String> {
        let now_ms = self.shared().now_ms();
        let parked = self.0.parked.lock();
        let due = parked.iter().filter(|(_, parked)| parked.due_ms.is_some_and(|due_ms| due_ms <= now_ms));
        due.map(|(run_id, _)| run_id.clone()).collect()
    }
}
