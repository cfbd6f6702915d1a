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
        reply: oneshot::Sender<Result<Ended, CommandError>>,
    },
    /// Someone pauses the run.
    Pause {
        /// Who.
        by: String,
        /// Told once it is durable.
        reply: oneshot::Sender<Result<Arc<RunView>, CommandError>>,
    },
    /// Someone resumes the run.
    Resume {
        /// Who.
        by: String,
        /// Told once it is durable.
        reply: oneshot::Sender<Result<Arc<RunView>, CommandError>>,
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
        view: Arc<RunView>,
    },
}

/// The run has ended, now or before.
#[derive(Debug, Clone)]
pub struct Ended {
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
