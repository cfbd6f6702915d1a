//! Cancel: tokens first, then what used them; and what is told to whom once the run has ended.

use std::{sync::Arc, time::Duration};

use runner_core::input::{Declined, Input};
use tokio::sync::oneshot;

use super::{Driver, Lost, Step};
use crate::runs::{
    command::{Command, CommandError, Ended},
    view::RunStatus,
};

/// Longest time that effects go on because the broker does not say that their tokens are dead.
const REVOCATION_MAX: Duration = Duration::from_millis(250);

impl Driver {
    /// Journals the cancel. Canceled before is answered with the same receipt; ended before is told when the driver ends.
    pub(super) fn cancel(
        &mut self,
        (by, reason): (String, String),
        reply: oneshot::Sender<Result<Ended, CommandError>>,
        step: &mut Step,
    ) -> Result<(), Lost> {
        self.take(Input::Cancel { by, reason }, step)?;
        // Without a broker there are no tokens, and nobody to wait for.
        if self.state.owes_revocation() && !self.shared.dispatcher.has_broker() {
            self.take(Input::Revoked { tokens: 0 }, step)?;
        }
        self.cancels.push(reply);
        Ok(())
    }

    /// Asks the broker to end the run's tokens, once.
    pub(super) fn revoke(&mut self) {
        if !self.revoking.is_empty() {
            return;
        }
        let (shared, run_id) = (Arc::clone(&self.shared), self.state.run_id().to_owned());
        self.revoking.spawn(async move {
            match tokio::time::timeout(REVOCATION_MAX, shared.dispatcher.revoke_run(&run_id)).await {
                Ok(Ok(tokens)) => return tokens,
                Ok(Err(silent)) => tracing::warn!(run_id, %silent, "tokens not revoked: they end by their deadlines"),
                Err(_elapsed) => tracing::warn!(run_id, "tokens not revoked yet: the broker does not answer in time"),
            }
            0
        });
    }

    /// The tokens are dead, or are not waited for any longer: what used them stops at once.
    pub(super) fn revoked(&mut self, tokens: u32, step: &mut Step) -> Result<(), Lost> {
        self.stop_if_canceled();
        self.take(Input::Revoked { tokens }, step)?;
        Ok(())
    }

    /// After the end: tokens die, cancels are answered, late requests are declined.
    pub(super) async fn ended(mut self) {
        let run_id = self.state.run_id().to_owned();
        let view = Arc::clone(&self.view.borrow());
        let canceled = view.summary.status == RunStatus::Canceled;
        if !canceled && let Err(silent) = self.shared.dispatcher.revoke_run(&run_id).await {
            tracing::warn!(run_id, %silent, "tokens not revoked: they end by their deadlines");
        }
        tracing::info!(run_id, status = ?view.summary.status, events = view.summary.events, "run ended");
        self.inbox.close();
        while let Ok(command) = self.inbox.try_recv() {
            match command {
                Command::Cancel { reply, .. } => self.cancels.push(reply),
                Command::Answer { reply, .. } => drop(reply.send(Err(CommandError::Declined(Declined::Finished)))),
                Command::Pause { reply, .. } | Command::Resume { reply, .. } => {
                    let declined = Declined::NotPausable { state: "has ended" };
                    drop(reply.send(Err(CommandError::Declined(declined))));
                }
                Command::Child { .. } => {}
                Command::Exchange { reply, .. } => drop(reply.send(Err(crate::dispatch::NotJournaled))),
            }
        }
        for reply in self.cancels {
            drop(reply.send(Ok(Ended { view: Arc::clone(&view) })));
        }
    }
}
