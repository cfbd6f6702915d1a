//! Sends out what the run is owed, each effect in a task of its own, stopped with the driver.

use std::sync::Arc;

use futures::FutureExt as _;
use runner_core::{
    child::ChildRun,
    event::Exchange,
    key::{EffectKey, EffectKind},
    outcome::{EffectOutcome, Failure, FailureCause},
    owed::{Dispatch, Owed},
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::Driver;
use crate::{
    dispatch::{Effect, Ending, NotJournaled, Settled, Slot},
    runs::{
        Shared,
        children::{Attending, Stop},
        command::Command,
    },
};

/// An effect of this driver that is on its way.
pub(super) struct Flying {
    stop: Stop,
}

/// An effect stops with its driver; a child run goes on.
impl Drop for Flying {
    fn drop(&mut self) {
        self.stop.token.cancel();
    }
}

/// How an effect that was stopped by a cancel is recorded.
pub(super) fn canceled() -> EffectOutcome {
    EffectOutcome::Failed { failure: Failure::permanent(FailureCause::UserAborted, "stopped: the run was canceled") }
}

/// How an effect is recorded whose exchange could not be: what it did is not known.
pub(super) fn not_journaled() -> EffectOutcome {
    let detail = "stopped: one of its exchanges could not be journaled";
    EffectOutcome::Failed { failure: Failure::permanent(FailureCause::Unknown, detail) }
}

impl Driver {
    /// Acts on what is owed: dispatches what is not on its way yet, and stops everything once the run is being canceled. All
    /// that it acts on is durable.
    pub(super) fn act(&mut self, owed: Vec<Owed>) {
        self.paused.send_if_modified(|paused| std::mem::replace(paused, self.state.pause().is_some()) != *paused);
        if self.state.owes_revocation() {
            self.revoke();
        } else {
            self.stop_if_canceled();
        }
        if self.drain.is_cancelled() || self.state.outcome().is_some() {
            return;
        }
        for owed in owed {
            match owed {
                Owed::Dispatch(dispatch) if !self.flying.contains_key(&dispatch.key) => self.dispatch(*dispatch),
                Owed::Child { key } if !self.flying.contains_key(&key) => self.attend(key),
                // A child run in flight in an earlier life of the run goes on by itself: it is found, and stopped.
                Owed::Stop { key } if key.kind == EffectKind::Subgraph => {
                    if !self.flying.contains_key(&key) {
                        self.attend(key);
                    }
                }
                // Anything else that was in flight then: there is nothing to stop here.
                Owed::Stop { key } if !self.flying.contains_key(&key) => {
                    self.settling.spawn(async move { (key, Settled::from(Ending::Canceled)) });
                }
                Owed::Dispatch(_)
                | Owed::Child { .. }
                | Owed::WaitAsk { .. }
                | Owed::WaitUntil { .. }
                | Owed::Stop { .. } => {}
            }
        }
    }

    /// Stops everything once the run is being canceled.
    pub(super) fn stop_if_canceled(&self) {
        if let Some((by, reason)) = self.cancel_of_children() {
            self.flying.values().for_each(|flying| flying.stop.cancel(&by, reason.clone()));
        }
    }

    fn attend(&mut self, key: EffectKey) {
        // What is owed was read off the same state.
        let Some(child) = ChildRun::of(&self.state, &key) else { return };
        let stop = Stop::default();
        if let Some((by, reason)) = self.cancel_of_children() {
            stop.cancel(&by, reason);
        }
        self.flying.insert(key.clone(), Flying { stop: stop.clone() });
        let paused = self.paused.subscribe();
        let attending = Attending { runs: self.runs.clone(), key, child, outbox: self.outbox.clone(), stop, paused };
        self.settling.spawn(attending.attend_to_end());
    }

    /// By whom and why child runs are canceled, once this run is being canceled.
    fn cancel_of_children(&self) -> Option<(String, String)> {
        let by = self.state.canceled_by()?;
        Some((by.to_owned(), format!("its parent {} was canceled", self.state.run_id())))
    }

    fn dispatch(&mut self, dispatch: Dispatch) {
        let effect = Effect::of(self.state.manifest(), dispatch, self.shared.effect_timeout);
        let stop = Stop::default();
        self.flying.insert(effect.key.clone(), Flying { stop: stop.clone() });
        let sent = send(Arc::clone(&self.shared), self.outbox.clone(), effect, stop.token);
        self.settling.spawn(sent);
    }
}

/// A fault of this program must not leave the run waiting for ever.
fn broken(key: &EffectKey) -> Settled {
    tracing::error!(%key, "the dispatch of an effect panicked");
    let failure =
        Failure::new(FailureCause::ExecutorError, "internal error of the runner while dispatching; see its log");
    Settled::from(Ending::Outcome(EffectOutcome::Failed { failure }))
}

async fn send(
    shared: Arc<Shared>,
    outbox: mpsc::Sender<Command>,
    effect: Effect,
    cancel: CancellationToken,
) -> (EffectKey, Settled) {
    let key = effect.key.clone();
    let journal = |exchange: Exchange| {
        let (outbox, key) = (outbox.clone(), key.clone());
        async move {
            let (reply, durable) = oneshot::channel();
            outbox.send(Command::Exchange { key, exchange, reply }).await.map_err(|_| NotJournaled)?;
            durable.await.map_err(|_| NotJournaled)?
        }
        .boxed()
    };
    // It bounds effects over all runs; waiting for it is stopped by a cancel like the effect itself.
    let slot = Slot::of(&shared.workers);
    let sending = std::panic::AssertUnwindSafe(shared.dispatcher.dispatch(effect, &journal, slot, cancel));
    let settled = sending.catch_unwind().await.unwrap_or_else(|_| broken(&key));
    (key, settled)
}
