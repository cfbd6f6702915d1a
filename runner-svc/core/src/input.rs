//! What comes to a run from outside, and why it may be declined.

use content_digest::Digest;

use crate::{
    event::Exchange,
    key::EffectKey,
    manifest::Tie,
    outcome::{EffectOutcome, Usage},
    payload::Payload,
    state::SettledAsk,
};

/// Largest result of an effect, answer of a person and input of a run, in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most rejected answers to one ask that are kept as evidence: whoever may answer could make a journal grow without them.
pub const REJECTIONS_PER_ASK_MAX: u32 = 16;
/// Most pauses of one run; those that come with a pause of its parent are not counted, the parent's are.
pub const PAUSES_MAX: u32 = 64;

/// Something that a run has to take in. Each is followed at once by everything that it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// An effect settled.
    Result {
        /// The effect.
        key: EffectKey,
        /// How. A result over 8 MiB, no JSON, or with `$send` is recorded as a failure.
        outcome: EffectOutcome,
        /// What it used.
        usage: Usage,
    },
    /// The executor of an effect was lost while it may have been at work: what became of the effect is in doubt, as after a
    /// crash. Only of a run whose `on_dangling` is `ask`.
    Lost {
        /// The effect.
        key: EffectKey,
        /// What happened, plain text.
        why: String,
    },
    /// A brokered call of an effect was answered.
    Exchange {
        /// The effect.
        key: EffectKey,
        /// The call; its ordinal is the number of exchanges recorded so far.
        exchange: Exchange,
    },
    /// The broker reports a call by its HTTP door.
    Egress {
        /// The effect.
        key: EffectKey,
        /// Whether it was refused.
        refused: bool,
        /// The audit record, one JSON text.
        record: Payload,
    },
    /// A person answers an ask.
    Answer {
        /// The ask.
        tool_call_id: Digest,
        /// Who.
        by: String,
        /// The answer, one JSON text; with `is_error` the reason, one too.
        answer: Payload,
        /// The person refuses.
        is_error: bool,
    },
    /// The clock moved: asks past their deadline expire.
    Tick,
    /// Someone cancels the run.
    Cancel {
        /// Who.
        by: String,
        /// Why.
        reason: String,
    },
    /// The egress tokens of a canceled run were revoked.
    Revoked {
        /// How many were alive.
        tokens: u32,
    },
    /// Someone pauses the run. Of a paused one nothing changes.
    Pause {
        /// Who.
        by: String,
    },
    /// Someone resumes the run. Of one that is not paused nothing changes.
    Resume {
        /// Who.
        by: String,
    },
    /// A process took the run over, after a crash or from another.
    TakeOver {
        /// Principal, node id and instance.
        holder: String,
        /// Its fencing token.
        fence: u64,
    },
}

/// An input was not taken. Nothing changed but what the returned entries say.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Declined {
    /// The run ended; nothing is appended.
    #[error("the run has ended")]
    Finished,
    /// Cancel was requested before.
    #[error("the run is being canceled")]
    Canceling,
    /// No such effect is in flight: it settled, or it is of another attempt.
    #[error("{key} is not in flight")]
    NotInFlight {
        /// The effect.
        key: EffectKey,
    },
    /// The exchange is not the next one of its effect.
    #[error("exchange {found} of {key} is not the next one, {expected}")]
    ExchangeOutOfOrder {
        /// The effect.
        key: EffectKey,
        /// The next one.
        expected: u32,
        /// What came.
        found: u32,
    },
    /// A payload that has to be JSON is not, or is over its cap.
    #[error("{what} {problem}")]
    BadDocument {
        /// What it is.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// No such ask.
    #[error("this run has no ask {tool_call_id}: list its asks")]
    AskUnknown {
        /// What was named.
        tool_call_id: Digest,
    },
    /// The ask was answered, or its run went on without it.
    #[error("ask {tool_call_id} is settled: the first answer stands")]
    AskSettled {
        /// The ask.
        tool_call_id: Digest,
        /// How it was settled; none when its run ended without.
        settled: Option<SettledAsk>,
    },
    /// The ask's deadline passed.
    #[error("ask {tool_call_id} expired")]
    AskExpired {
        /// The ask.
        tool_call_id: Digest,
    },
    /// The answer may not come from the one who started the run. Recorded as evidence.
    #[error("{} and cannot answer its asks: someone else has to", tied(by, *tie))]
    SelfApproval {
        /// Who tried.
        by: String,
        /// What bars it.
        tie: Tie,
    },
    /// The answer does not fit. Recorded as evidence.
    #[error("the answer was not taken: {reason}")]
    WrongAnswer {
        /// Why.
        reason: String,
    },
    /// The answer would be rejected, and the journal keeps no more of them. Nothing is recorded; an answer that fits is taken.
    #[error("{bound}, so this one is not recorded; an answer that is right is still taken. It was not taken: {reason}")]
    TooManyRejections {
        /// Which bound is reached.
        bound: String,
        /// Why the answer is not taken.
        reason: String,
    },
    /// The run was paused as often as it may be, or its journal has no room for more.
    #[error("{bound}: let the run go on, or cancel it")]
    TooManyPauses {
        /// Which bound is reached.
        bound: String,
    },
    /// The run is being canceled or has ended.
    #[error("the run {state}: only a run that has not ended and is not being canceled can be paused or resumed")]
    NotPausable {
        /// What it does instead.
        state: &'static str,
    },
    /// No cancel waits for its tokens to be revoked.
    #[error("no cancel waits for its tokens to be revoked")]
    NotRevoking,
    /// The fencing token is not higher than the last one.
    #[error("fencing token {found} is not higher than {last}")]
    StaleFence {
        /// The last one.
        last: u64,
        /// What came.
        found: u64,
    },
}

/// What bars a principal, as the beginning of a sentence about it.
fn tied(by: &str, tie: Tie) -> String {
    match tie {
        Tie::Starter => format!("{by} started the run"),
        Tie::Initiator => format!("{by} is the one on whose behalf the run was started"),
        Tie::Before => {
            format!("{by} started a run that this one was forked from, or is the one on whose behalf it was started,")
        }
    }
}
