//! What can be asked of a run's driver, and what it answers.

use std::sync::Arc;

use content_digest::Digest;
use runner_core::{event::Exchange, input::Declined, key::EffectKey, payload::Payload};
use tokio::sync::oneshot;

use super::view::RunView;
use crate::dispatch::NotJournaled;

/// One request to a driver.
pub enum Command {
    /// A person answers an ask.
    Answer {
        /// The ask.
        tool_call_id: Digest,
        /// Who.
        by: String,
        /// The answer, one JSON text.
        answer: Payload,
        /// The person refuses.
        is_error: bool,
        /// Told once it is durable.
        reply: oneshot::Sender<Result<Arc<RunView>, CommandError>>,
    },
    /// Someone cancels the run.
    Cancel {
        /// Who.
        by: String,
        /// Why.
        reason: String,
        /// Told once the run has ended.
        reply: oneshot::Sender<Result<CancelReceipt, CommandError>>,
    },
    /// A brokered call of an effect was answered.
    Exchange {
        /// The effect.
        key: EffectKey,
        /// The call.
        exchange: Exchange,
        /// Told once it is durable.
        reply: oneshot::Sender<Result<(), NotJournaled>>,
    },
    /// News of a child run.
    Child {
        /// The effect that it is.
        key: EffectKey,
        /// What.
        news: ChildNews,
    },
}

/// What a parent is told of a child run while it waits for its end. None of it is journaled: the child's own journal has it.
pub enum ChildNews {
    /// What it waits for, or whom it asks, is something else now.
    Moved(Arc<RunView>),
    /// It was canceled with its parent, and has ended.
    Stopped {
        /// Effects of it that were in flight.
        effects: u32,
        /// Egress tokens of it that were revoked.
        tokens: u32,
    },
}

/// What a cancel did.
#[derive(Debug, Clone)]
pub struct CancelReceipt {
    /// Whether the run ended as canceled; otherwise it had ended before.
    pub canceled: bool,
    /// Sequence number of the cancel's event.
    pub fence_sequence: u64,
    /// Effects that were in flight.
    pub effects_stopped: u32,
    /// Egress tokens that were revoked.
    pub tokens_revoked: u32,
    /// The run as it stands.
    pub view: Arc<RunView>,
}

/// Why a request was not done.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommandError {
    /// The run declined it.
    #[error(transparent)]
    Declined(Declined),
    /// The driver stopped before it was done: the service is draining, or the run's lease was lost.
    #[error("the run is not driven here any more")]
    Stopped,
}
