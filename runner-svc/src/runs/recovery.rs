//! At the start of the process: every unfinished run is taken over and driven on.

use std::sync::Arc;

use super::{Runs, load};
use crate::journal::{LIST_ROWS_MAX, LeaseError, ReadError, RunRow};

/// Runs that are folded at once: each may hold large results in memory.
const FOLDING_MAX: usize = 4;

impl Runs {
    /// Takes every unfinished run over. A run that cannot be read is quarantined, the others go on. Returns how many are driven.
    pub async fn recover(&self) -> Result<usize, ReadError> {
        let folding = Arc::new(tokio::sync::Semaphore::new(FOLDING_MAX));
        let mut after = None;
        let mut taking = tokio::task::JoinSet::new();
        loop {
            let rows = self.shared().journal.unfinished(after, LIST_ROWS_MAX)?;
            let Some(last) = rows.last() else { break };
            after = Some(last.number);
            for row in rows {
                let permit = Arc::clone(&folding).acquire_owned().await;
                let runs = self.clone();
                taking.spawn(async move {
                    let _permit = permit;
                    runs.take_over(row).await
                });
            }
        }
        let taken = taking.join_all().await;
        Ok(taken.into_iter().filter(|driven| *driven).count())
    }

    async fn take_over(&self, row: RunRow) -> bool {
        let info = match row.run {
            Ok(info) => info,
            Err(damaged) => {
                self.quarantine(&damaged.run_id.clone(), damaged.to_string());
                return false;
            }
        };
        let run_id = info.header.run_id;
        let claim = self.shared().claim(&info.header.principal);
        let lease = match self.shared().journal.take_lease(&run_id, claim).await {
            Ok(lease) => lease,
            Err(LeaseError::Finished(_)) => return false,
            Err(trouble) => {
                self.quarantine(&run_id, trouble.to_string());
                return false;
            }
        };
        let journal = self.shared().journal.clone();
        let id = run_id.clone();
        match tokio::task::spawn_blocking(move || load::state(&journal, &id)).await {
            Ok(Ok(state)) if state.outcome().is_some() => false,
            Ok(Ok(state)) => {
                tracing::info!(run_id, events = state.events(), fence = lease.fence, "run taken over");
                self.spawn(state, lease.fence, None);
                true
            }
            Ok(Err(trouble)) => {
                self.quarantine(&run_id, trouble.to_string());
                false
            }
            Err(panic) => {
                self.quarantine(&run_id, format!("its journal could not be folded: {panic}"));
                false
            }
        }
    }
}
