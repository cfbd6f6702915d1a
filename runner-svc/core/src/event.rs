//! The events of a run's journal. A run's state is their fold and nothing else.

pub(crate) mod payloads;

use content_digest::Digest;
use serde::{Deserialize, Serialize};

use crate::{
    budget::Spent,
    key::EffectKey,
    outcome::{EffectOutcome, Failure, RunOutcome, Usage},
    payload::{Payload, PayloadRef},
    pinned::EffectClass,
};

/// Longest text of a person or a caller in an event (who, why), in bytes.
pub const NOTE_BYTES_MAX: usize = 1024;

/// One event. Append-only: no variant is ever removed, renamed or given another meaning.
///
/// `P` is [`Payload`] in memory and [`PayloadRef`] in the journal's records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum Event<P = Payload> {
    /// The run exists.
    RunStarted {
        /// What it froze.
        manifest: P,
        /// The input as it was merged into the state.
        input: P,
    },
    /// A superstep began; its ready nodes are dispatched.
    SuperstepOpened {
        /// Its number, from 1.
        superstep: u64,
    },
    /// An effect is about to be dispatched.
    IntentRecorded {
        /// The effect.
        #[serde(flatten)]
        key: EffectKey,
        /// Digest of its input, which the fold derives again.
        input: Digest,
        /// Its class.
        class: EffectClass,
    },
    /// A strict definition's input does not fit its schema: the attempt failed, and nothing was dispatched.
    InputRefused {
        /// The effect that would have been.
        #[serde(flatten)]
        key: EffectKey,
        /// Digest of its input, which the fold derives again.
        input: Digest,
        /// Which rule it breaks.
        failure: Failure<P>,
    },
    /// One brokered call of an effect; durable before the guest sees the response.
    ExchangeRecorded {
        /// The effect.
        #[serde(flatten)]
        key: EffectKey,
        /// The call.
        exchange: Exchange<P>,
    },
    /// An effect settled.
    ResultRecorded {
        /// The effect.
        #[serde(flatten)]
        key: EffectKey,
        /// How.
        outcome: EffectOutcome<P>,
        /// What it used.
        #[serde(default, skip_serializing_if = "is_default")]
        usage: Usage,
    },
    /// A result came of an effect that had settled without it, such as one that ran out of time: kept as evidence only.
    ResultDiscarded {
        /// The effect.
        #[serde(flatten)]
        key: EffectKey,
        /// Digest of the output; none of a failure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Digest>,
        /// What it used; counts as spent.
        #[serde(default, skip_serializing_if = "is_default")]
        usage: Usage,
    },
    /// The executor of an effect was lost while it may have been at work: the effect is in doubt, as after a crash.
    EffectLost {
        /// The effect.
        #[serde(flatten)]
        key: EffectKey,
        /// What happened, at most 1 KiB.
        why: String,
    },
    /// A question to a person is open.
    AskRaised {
        /// The effect.
        #[serde(flatten)]
        key: EffectKey,
        /// Digest of its input.
        input: Digest,
        /// When it expires, in milliseconds since 1970; none for never.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline_ms: Option<u64>,
    },
    /// A person answered; the ask is settled.
    AskAnswered {
        /// The effect.
        #[serde(flatten)]
        key: EffectKey,
        /// Who.
        by: String,
        /// The answer, or a failure of cause `user_aborted` when the person refused.
        outcome: EffectOutcome<P>,
    },
    /// An answer was not taken; kept as evidence. The ask stays open.
    AskRejected {
        /// The effect.
        #[serde(flatten)]
        key: EffectKey,
        /// Who answered.
        by: String,
        /// Why it was not taken, at most 1 KiB.
        reason: String,
    },
    /// A failed task is tried again.
    RetryScheduled {
        /// Path of the fan-out task; empty for a static node.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        task_path: String,
        /// The node.
        node: String,
        /// The attempt to come.
        attempt: u32,
        /// Not before this, in milliseconds since 1970.
        due_ms: u64,
    },
    /// Every effect of the superstep settled: results are merged, edges evaluated.
    SuperstepClosed {
        /// Its number.
        superstep: u64,
        /// Which edges fired.
        fired: Fired<P>,
        /// SHA-256 of the state's JSON text after it.
        state: Digest,
    },
    /// Someone canceled the run. Nothing is dispatched after it.
    CancelRequested {
        /// Who.
        by: String,
        /// Why, at most 1 KiB.
        reason: String,
    },
    /// The egress tokens of a canceled run were revoked, or the broker did not answer in time.
    TokensRevoked {
        /// How many were alive.
        tokens: u32,
    },
    /// Someone paused the run: no superstep opens until someone resumes it.
    PauseRequested {
        /// Who.
        by: String,
    },
    /// Someone resumed the run.
    Resumed {
        /// Who.
        by: String,
    },
    /// An effect that was in flight at a crash is sent again, with the same idempotency key.
    Redelivered {
        /// The effect.
        #[serde(flatten)]
        key: EffectKey,
    },
    /// The broker refused a call of an effect that reaches it by the HTTP door.
    EgressRefused {
        /// The effect.
        #[serde(flatten)]
        key: EffectKey,
        /// The broker's audit record, one JSON text.
        record: P,
    },
    /// The broker made a call for an effect that reaches it by the HTTP door.
    EgressCalled {
        /// The effect.
        #[serde(flatten)]
        key: EffectKey,
        /// The broker's audit record, one JSON text.
        record: P,
    },
    /// A process took the run over; what was in flight in the process before it is in doubt.
    LeaseTaken {
        /// Principal, node id and instance.
        holder: String,
        /// Its fencing token, higher than any before it.
        fence: u64,
    },
    /// The run ended. Nothing follows.
    RunFinished {
        /// How.
        outcome: RunOutcome<P>,
        /// What it spent.
        spent: Spent,
    },
}

/// One brokered call of an effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange<P = Payload> {
    /// Its number within the effect, from 0.
    pub ordinal: u32,
    /// SHA-256 of the guest's request bytes.
    pub request: Digest,
    /// What the guest is answered, one JSON text. Of a blob that it read only the address and the length: its bytes are read
    /// again by them.
    pub response: P,
    /// The broker's audit record, one JSON text; none when the broker was not asked.
    #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
    pub record: Option<P>,
    /// Whether nothing went out: refused, no broker, or a blob that was read. Costs no budget.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    /// Blobs of the catalogue that the call sent, stored or read, by address and length: their bytes are not in the journal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blobs: Vec<PayloadRef>,
}

/// The edges that fired at a close, by index in the order of their evaluation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Fired<P = Payload> {
    /// Few enough to stand in the record.
    Here(Vec<u32>),
    /// A JSON list beside the record.
    Beside(P),
}

impl Fired {
    /// Most edges that stand in the record itself.
    pub const HERE_MAX: usize = 128;

    /// Puts the edges where they belong by their number.
    pub fn new(edges: Vec<u32>) -> Self {
        if edges.len() <= Self::HERE_MAX {
            return Self::Here(edges);
        }
        Self::Beside(Payload::new(serde_json::to_string(&edges).expect("a list of integers is JSON")))
    }
}

/// One event with its place in the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded<P = Payload> {
    /// Its number, from 0.
    pub sequence: u64,
    /// Wall clock at which it was recorded, in milliseconds since 1970.
    pub at_ms: u64,
    /// SHA-256 of the record before it; zeros for the first.
    pub previous: Digest,
    /// What happened.
    pub event: Event<P>,
}

impl<P> Event<P> {
    /// Its kind, such as `RunStarted`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::RunStarted { .. } => "RunStarted",
            Self::SuperstepOpened { .. } => "SuperstepOpened",
            Self::IntentRecorded { .. } => "IntentRecorded",
            Self::InputRefused { .. } => "InputRefused",
            Self::ExchangeRecorded { .. } => "ExchangeRecorded",
            Self::ResultRecorded { .. } => "ResultRecorded",
            Self::ResultDiscarded { .. } => "ResultDiscarded",
            Self::EffectLost { .. } => "EffectLost",
            Self::AskRaised { .. } => "AskRaised",
            Self::AskAnswered { .. } => "AskAnswered",
            Self::AskRejected { .. } => "AskRejected",
            Self::RetryScheduled { .. } => "RetryScheduled",
            Self::SuperstepClosed { .. } => "SuperstepClosed",
            Self::CancelRequested { .. } => "CancelRequested",
            Self::TokensRevoked { .. } => "TokensRevoked",
            Self::PauseRequested { .. } => "PauseRequested",
            Self::Resumed { .. } => "Resumed",
            Self::Redelivered { .. } => "Redelivered",
            Self::EgressRefused { .. } => "EgressRefused",
            Self::EgressCalled { .. } => "EgressCalled",
            Self::LeaseTaken { .. } => "LeaseTaken",
            Self::RunFinished { .. } => "RunFinished",
        }
    }

    /// The effect that it is about.
    pub fn key(&self) -> Option<&EffectKey> {
        match self {
            Self::IntentRecorded { key, .. }
            | Self::InputRefused { key, .. }
            | Self::ExchangeRecorded { key, .. }
            | Self::ResultRecorded { key, .. }
            | Self::ResultDiscarded { key, .. }
            | Self::EffectLost { key, .. }
            | Self::AskRaised { key, .. }
            | Self::AskAnswered { key, .. }
            | Self::AskRejected { key, .. }
            | Self::Redelivered { key }
            | Self::EgressRefused { key, .. }
            | Self::EgressCalled { key, .. } => Some(key),
            Self::RunStarted { .. }
            | Self::SuperstepOpened { .. }
            | Self::RetryScheduled { .. }
            | Self::SuperstepClosed { .. }
            | Self::CancelRequested { .. }
            | Self::TokensRevoked { .. }
            | Self::PauseRequested { .. }
            | Self::Resumed { .. }
            | Self::LeaseTaken { .. }
            | Self::RunFinished { .. } => None,
        }
    }
}

impl Event {
    /// The event as its record spells it: payloads by address and length.
    pub fn to_record(&self) -> Event<PayloadRef> {
        payloads::event(self, &mut |payload: &Payload| Ok::<_, std::convert::Infallible>(payload.reference()))
            .unwrap_or_else(|never| match never {})
    }

    /// Its fields as one JSON text, payloads by address and length.
    pub fn to_json(&self) -> String {
        serde_json::to_string(&self.to_record()).expect("an event's record has text keys and integers only")
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
