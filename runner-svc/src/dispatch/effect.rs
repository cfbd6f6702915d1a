//! What the driver hands over, and what it gets back.

use std::{fmt, sync::Arc, time::Duration};

use content_digest::Digest;
use futures::future::BoxFuture;
use runner_core::{
    event::Exchange,
    key::EffectKey,
    manifest::{Manifest, OnDangling},
    outcome::{EffectOutcome, Failure, FailureCause, FailureCode, Usage},
    owed::Dispatch,
    payload::Payload,
    pinned::PinnedTool,
};

use super::output::BadOutput;

/// One effect to send out, with everything that the run's manifest froze for it.
#[derive(Debug, Clone)]
pub struct Effect {
    /// The run.
    pub run_id: String,
    /// The run's namespace.
    pub namespace: String,
    /// Who started the run.
    pub principal: String,
    /// Which effect of the run it is.
    pub key: EffectKey,
    /// The same over every redelivery of the attempt.
    pub idempotency_key: Digest,
    /// What the run froze of its definition.
    pub tool: Arc<PinnedTool>,
    /// The input: one compact JSON text.
    pub input: Payload,
    /// How long it may take, waiting for a slot included.
    pub timeout: Duration,
    /// Brokered calls that an earlier delivery of the attempt made durable, by ordinal.
    pub recorded: Vec<Exchange>,
    /// Whether a module with brokered calls is sent again when its sandbox is lost while it runs. It gets the exchanges that
    /// are durable by then: only a call that was in flight may happen twice.
    pub on_dangling: OnDangling,
    /// Fuel that the run's budget has left.
    pub fuel_left: Option<u64>,
    /// Brokered calls that the run's budget has left.
    pub egress_calls_left: Option<u64>,
}

/// Makes an exchange durable. The future resolves when it is; only then the guest sees the answer.
pub type JournalExchange<'a> = dyn Fn(Exchange) -> BoxFuture<'static, Result<(), NotJournaled>> + Send + Sync + 'a;

/// The exchange cannot be made durable, for good: the driver lost the run or the store. The effect is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotJournaled;

/// How an effect ended, and what it used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// How.
    pub ending: Ending,
    /// What it used, as its executor says; the duration is the runner's own measure.
    pub usage: Usage,
    /// A result that came after its time had run out, when it was told to stop; with what that used.
    pub late: Option<Box<(Payload, Usage)>>,
}

/// How an effect ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// With a result or a failure, to be journaled.
    Outcome(EffectOutcome),
    /// The driver canceled it; whatever it was doing has been told to stop.
    Canceled,
    /// An exchange could not be journaled, so it was stopped.
    NotJournaled,
    /// It goes on without this process: the next one finds it again. Only of child runs.
    Left,
    /// Its executor was lost while it may have been at work, and the run asks a person about such effects.
    InDoubt {
        /// What happened.
        why: String,
    },
}

impl Effect {
    /// What a run is owed, with what its manifest says of it. `timeout` is for a node whose run names none.
    pub fn of(manifest: &Manifest, owed: Dispatch, timeout: Duration) -> Self {
        Self {
            run_id: owed.run_id.as_str().to_owned(),
            namespace: manifest.namespace.clone(),
            principal: manifest.principal.clone(),
            idempotency_key: owed.idempotency_key(),
            timeout: owed.timeout_within(timeout),
            key: owed.key,
            tool: owed.node.tool,
            input: owed.input,
            recorded: owed.exchanges,
            on_dangling: manifest.on_dangling,
            fuel_left: owed.fuel_left,
            egress_calls_left: owed.egress_calls_left,
        }
    }

    /// Whose effect it is, for services that tell namespaces apart and learn none of their names.
    pub(super) fn tenant(&self) -> String {
        Digest::of(&self.namespace).to_hex()
    }
}

impl Ending {
    /// A result.
    pub(super) fn completed(output: Payload) -> Self {
        Self::Outcome(EffectOutcome::Completed { output })
    }

    /// A failure of the executor, which the node's retries may mend.
    pub(super) fn executor_error(detail: impl fmt::Display) -> Self {
        Self::failed(FailureCause::ExecutorError, detail)
    }

    /// Something that was written as a result and cannot be one; `what` names who wrote it. A result over the cap has its stable
    /// code, and is not tried again.
    pub(super) fn bad_output(what: impl fmt::Display, bad: &BadOutput) -> Self {
        match bad {
            BadOutput::TooLarge { .. } => Self::too_large(format_args!("{what}: {bad}")),
            BadOutput::Empty | BadOutput::NotUtf8 | BadOutput::NotJson { .. } => {
                Self::executor_error(format_args!("{what}: {bad}"))
            }
        }
    }

    /// The result is over the cap.
    pub(super) fn too_large(detail: impl fmt::Display) -> Self {
        let detail = format!("RESULT_TOO_LARGE: {detail}");
        let failure = Failure::permanent(FailureCause::ExecutorError, &detail).coded(FailureCode::TooLarge);
        Self::Outcome(EffectOutcome::Failed { failure })
    }

    /// The effect's time ran out.
    pub(super) fn timeout(detail: impl fmt::Display) -> Self {
        Self::failed(FailureCause::Timeout, detail)
    }

    /// A failure that its cause decides whether to retry.
    pub(super) fn failed(cause: FailureCause, detail: impl fmt::Display) -> Self {
        Self::Outcome(EffectOutcome::Failed { failure: Failure::new(cause, &detail.to_string()) })
    }

    /// With what the executor used.
    pub(super) fn using(self, usage: Usage) -> Settled {
        Settled { ending: self, usage, late: None }
    }
}

/// Nothing is known of what it used.
impl From<Ending> for Settled {
    fn from(ending: Ending) -> Self {
        ending.using(Usage::default())
    }
}
