//! How an effect and how a run ended.

use content_digest::Digest;
use serde::{Deserialize, Serialize};

use crate::{
    budget::{Axis, Spent},
    payload::Payload,
    text::{quoted, shown},
};

/// Longest detail of a failure that is kept, in bytes.
pub const FAILURE_DETAIL_BYTES_MAX: usize = 4096;

/// Why an effect failed. Append-only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCause {
    /// It took longer than its timeout, or nobody answered in time.
    Timeout,
    /// The executor failed: exit status, trap, refused capability, unreachable sandbox.
    ExecutorError,
    /// An input, argument or answer does not fit its schema.
    SchemaValidationFailed,
    /// A person refused, or the run was canceled.
    UserAborted,
    /// Nobody knows whether it happened.
    Unknown,
}

impl FailureCause {
    /// The word that records and the API use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::ExecutorError => "executor_error",
            Self::SchemaValidationFailed => "schema_validation_failed",
            Self::UserAborted => "user_aborted",
            Self::Unknown => "unknown",
        }
    }
}

/// A failed effect. `P` is [`Payload`] in memory and a reference in the journal's records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure<P = Payload> {
    /// Why.
    pub cause: FailureCause,
    /// What happened, plain text of at most 4 KiB. Never a secret.
    pub detail: P,
    /// Stable code, where the failure has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<FailureCode>,
    /// Whether the same input would fail the same way: no retry, whatever the cause.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub permanent: bool,
}

/// Stable codes of failures. Append-only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FailureCode {
    /// An intent without a result was found after a crash and `on_dangling` is `fail`.
    #[serde(rename = "RUN-E008")]
    DanglingIntent,
    /// The result or the state is over its size cap.
    #[serde(rename = "RUN-E015")]
    TooLarge,
    /// A child run stalled.
    #[serde(rename = "RUN-E001")]
    Stalled,
    /// A child run spent its share of a budget.
    #[serde(rename = "RUN-E007")]
    BudgetExhausted,
    /// A child run was canceled.
    #[serde(rename = "RUN-E013")]
    Canceled,
}

impl FailureCode {
    /// The stable code.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DanglingIntent => "RUN-E008",
            Self::TooLarge => "RUN-E015",
            Self::Stalled => "RUN-E001",
            Self::BudgetExhausted => "RUN-E007",
            Self::Canceled => "RUN-E013",
        }
    }
}

impl Failure {
    /// A failure that its cause decides whether to retry. The detail is cut to 4 KiB.
    pub fn new(cause: FailureCause, detail: &str) -> Self {
        Self {
            cause,
            detail: Payload::new(crate::text::cut(detail, FAILURE_DETAIL_BYTES_MAX - 4)),
            code: None,
            permanent: false,
        }
    }

    /// A failure that trying again cannot mend.
    pub fn permanent(cause: FailureCause, detail: &str) -> Self {
        Self { permanent: true, ..Self::new(cause, detail) }
    }

    /// Names the stable code.
    #[must_use]
    pub fn coded(mut self, code: FailureCode) -> Self {
        self.code = Some(code);
        self
    }

    /// What happened, after the stable code where there is one.
    pub fn shown(&self) -> String {
        match self.code {
            Some(code) => format!("{}: {}", code.as_str(), self.detail.text()),
            None => self.detail.text().to_owned(),
        }
    }
}

/// How an effect ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum EffectOutcome<P = Payload> {
    /// With a result.
    Completed {
        /// One JSON text, at most 8 MiB.
        output: P,
    },
    /// Without.
    Failed {
        /// Why.
        failure: Failure<P>,
    },
}

/// What an effect used, as its executor reports it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// wasmtime fuel.
    #[serde(skip_serializing_if = "is_zero")]
    pub fuel: u64,
    /// Wall time in milliseconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub duration_ms: u64,
    /// Highest memory use in bytes.
    #[serde(skip_serializing_if = "is_zero")]
    pub peak_memory_bytes: u64,
    /// Model tokens.
    #[serde(skip_serializing_if = "is_zero")]
    pub tokens: u64,
    /// Model cost in millionths of a US dollar.
    #[serde(skip_serializing_if = "is_zero")]
    pub usd_micros: u64,
    /// Of a child run: what all of it used, and where its journal ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child: Option<ChildUsage>,
}

/// What a child run used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildUsage {
    /// What it spent: the parent's from now on.
    pub spent: Spent,
    /// SHA-256 of the child's last event: the parent's journal vouches for the child's.
    pub head: Digest,
}

/// How a run ended. Append-only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum RunOutcome<P = Payload> {
    /// Every path ended and a terminal node is done.
    Completed {
        /// The final state, one JSON text.
        output: P,
    },
    /// A node failed for good.
    Failed {
        /// The failed node with the lowest index; the node whose result was merged last when the state outgrew its cap.
        node: String,
        /// Why.
        failure: Failure<P>,
    },
    /// It was canceled.
    Canceled {
        /// Who canceled it.
        by: String,
        /// Why, at most 1 KiB.
        reason: String,
    },
    /// No node is ready and no terminal node is done.
    Stalled {
        /// The node whose out-edges were all false.
        node: String,
    },
    /// A budget is spent.
    BudgetExhausted {
        /// Which.
        axis: Axis,
        /// The bound.
        limit: u64,
    },
}

impl RunOutcome {
    /// Why the run is not completed: the stable code and what happened. Empty when completed.
    pub fn reason(&self) -> String {
        match self {
            Self::Completed { .. } => String::new(),
            Self::Failed { node, failure } => {
                let code = failure.code.map(|code| format!("{}: ", code.as_str())).unwrap_or_default();
                let (node, cause) = (shown(node), failure.cause.as_str());
                format!("{code}node {node} failed ({cause}): {}", quoted(failure.detail.text()))
            }
            Self::Canceled { by, reason } if reason.is_empty() => format!("RUN-E013: canceled by {by}"),
            Self::Canceled { by, reason } => format!("RUN-E013: canceled by {by}: {}", quoted(reason)),
            Self::Stalled { node } => format!(
                "RUN-E001: the run stalled: every out-edge of node {} evaluated to false and no terminal node is done; \
                 mend the conditions of its edges",
                shown(node)
            ),
            Self::BudgetExhausted { axis, limit } => {
                format!(
                    "RUN-E007: budget {} of {limit} is spent; ForkRun with a higher one goes on exactly there",
                    axis.option()
                )
            }
        }
    }

    /// The word that records and receipts use.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Completed { .. } => "completed",
            Self::Failed { .. } => "failed",
            Self::Canceled { .. } => "canceled",
            Self::Stalled { .. } => "stalled",
            Self::BudgetExhausted { .. } => "budget_exhausted",
        }
    }

    /// The node that failed or stalled.
    pub fn node(&self) -> Option<&str> {
        match self {
            Self::Failed { node, .. } | Self::Stalled { node } => Some(node),
            Self::Completed { .. } | Self::Canceled { .. } | Self::BudgetExhausted { .. } => None,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}
