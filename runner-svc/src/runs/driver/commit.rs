//! Makes entries durable, however long the store takes, and keeps the lease.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use runner_core::entry::Entry;

use super::Driver;
use crate::{
    families,
    journal::{AppendError, Claim, LeaseError},
    runs::{record, view::Summary},
};

/// First and longest wait while the store does not write.
const WAIT_FIRST: Duration = Duration::from_millis(50);
const WAIT_LONGEST: Duration = Duration::from_secs(2);

/// The run cannot be driven here any more.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// Another writer has it.
    #[error(
        "RUN-E021: another writer took run {0:?} over: what this one wanted to write was not written; read the run again"
    )]
    Lease(String),
    /// The service drains while the store does not write.
    #[error("run {0:?} is left for the next start: the store does not write")]
    Draining(String),
    /// The run's records cannot be continued: it is quarantined.
    #[error("{0}")]
    Quarantine(String),
}

impl Driver {
    /// Returns when the entries are durable, in as many appends as they need: a step that is cut by a crash is completed by the
    /// next process from what is there. While the store does not write, nothing else of this run happens.
    pub(super) async fn commit(&self, entries: &[Entry]) -> Result<(), Lost> {
        let mut parts = record::parts(entries).into_iter().peekable();
        while let Some(part) = parts.next() {
            // What lists show belongs to the last entry.
            let summary = parts.peek().is_none().then(|| Summary::of(&self.state).to_bytes());
            self.commit_part(part, summary).await?;
        }
        Ok(())
    }

    async fn commit_part(&self, entries: &[Entry], summary: Option<Vec<u8>>) -> Result<(), Lost> {
        let after = entries.first().map_or(0, Entry::sequence) + entries.len() as u64;
        let mut wait = WAIT_FIRST;
        loop {
            let by = (self.state.run_id(), self.fence);
            let append = record::append(by, record::urgency(entries), entries, summary.clone());
            match self.shared.journal.append(append).await {
                Ok(_) => {
                    if self.state.outcome().is_some() && summary.is_some() {
                        families::ended(Summary::of(&self.state).status);
                    }
                    return Ok(());
                }
                Err(AppendError::Storage(trouble)) => {
                    tracing::warn!(run_id = self.state.run_id(), %trouble, "the run waits for the store");
                    self.pause(&mut wait).await?;
                    // Whether they were written is known only now.
                    if self.shared.journal.run(self.state.run_id()).is_ok_and(|run| run.next_sequence == after) {
                        return Ok(());
                    }
                }
                Err(AppendError::LeaseLost { run_id, .. }) => return Err(Lost::Lease(run_id)),
                Err(error @ (AppendError::Conflict { .. } | AppendError::Finished(_) | AppendError::NotFound(_))) => {
                    return Err(Lost::Quarantine(error.to_string()));
                }
                Err(error @ (AppendError::TooLarge(_) | AppendError::Damaged(_))) => {
                    return Err(Lost::Quarantine(error.to_string()));
                }
            }
        }
    }

    async fn pause(&self, wait: &mut Duration) -> Result<(), Lost> {
        if self.drain.run_until_cancelled(tokio::time::sleep(*wait)).await.is_none() {
            return Err(Lost::Draining(self.state.run_id().to_owned()));
        }
        *wait = (*wait * 2).min(WAIT_LONGEST);
        Ok(())
    }

    /// Makes the lease last longer. A store that does not write is no reason to stop: the fence protects the run.
    pub(super) async fn renew(&mut self) -> Result<(), Lost> {
        let shared = Arc::clone(&self.shared);
        let Claim { ttl_ms, now_ms, .. } = shared.claim(&self.state.manifest().principal);
        match shared.journal.renew_lease(self.state.run_id(), self.fence, ttl_ms, now_ms).await {
            Ok(_) => {}
            Err(LeaseError::Lost { run_id, .. }) => return Err(Lost::Lease(run_id)),
            Err(trouble) => {
                tracing::warn!(run_id = self.state.run_id(), %trouble, "the lease could not be renewed");
            }
        }
        self.lease_ends = Instant::now() + shared.lease;
        Ok(())
    }
}
