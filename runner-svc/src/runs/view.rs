//! A run as it stands, for the API: taken from the state after each durable step.

use std::{collections::BTreeMap, sync::Arc};

use content_digest::Digest;
use runner_core::{
    budget::Spent,
    key::{EffectKey, EffectKind},
    lineage::Lineage,
    outcome::RunOutcome,
    payload::Payload,
    state::{Flight, Pause, State, Status},
    why::{Waiting, why},
};
use serde::{Deserialize, Serialize};

/// Longest reason in the journal's status document, in bytes; the journal's own end has the whole.
const SUMMARY_REASON_BYTES_MAX: usize = 1024;

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// It has work ready or in flight.
    Running,
    /// It waits for a person.
    Waiting,
    /// Someone paused it, and nothing but questions to people is in flight.
    Paused,
    /// Every path ended.
    Completed,
    /// A node failed for good.
    Failed,
    /// It was canceled.
    Canceled,
    /// No node is ready and no terminal node is done.
    Stalled,
    /// A budget is spent.
    BudgetExhausted,
    /// Its records are damaged; it is not driven.
    Quarantined,
}

/// A run as it stands.
#[derive(Debug, Clone)]
pub struct RunView {
    /// What lists show.
    pub summary: Summary,
    /// How it ended.
    pub outcome: Option<RunOutcome>,
    /// Its own pending asks; those of its child runs are theirs: see `Runs::asks`.
    pub asks: Vec<AskView>,
    /// What it waits for; empty once it has ended.
    pub waiting: Vec<Waiting>,
    /// Who paused it, while it is paused and has not ended.
    pub paused: Option<Pause>,
    /// Of a fork, the run that it goes on from.
    pub lineage: Option<Lineage>,
}

/// The part of a view that the journal keeps beside the records, at most 3 KiB.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Summary {
    /// Where it stands.
    pub status: RunStatus,
    /// Why it is not completed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The node that failed or stalled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_node: Option<String>,
    /// When it ended, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at_ms: Option<u64>,
    /// What it spent.
    pub spent: Spent,
    /// Number of its events.
    pub events: u64,
    /// SHA-256 of its last event.
    pub head: Digest,
}

/// A pending question to a person.
#[derive(Debug, Clone)]
pub struct AskView {
    /// The run that asks.
    pub run_id: String,
    /// Its address.
    pub tool_call_id: Digest,
    /// The node.
    pub node: String,
    /// The client tool.
    pub tool_name: String,
    /// The question.
    pub description: String,
    /// The node's input.
    pub input: Payload,
    /// Schema of the answer, one JSON text.
    pub output_schema: Option<String>,
    /// When it was raised, in milliseconds since 1970.
    pub raised_at_ms: u64,
    /// When it expires.
    pub deadline_ms: Option<u64>,
}

impl RunView {
    /// Reads the state.
    pub fn of(state: &State) -> Self {
        let asks = state.asks().map(|ask| AskView {
            run_id: state.run_id().to_owned(),
            tool_call_id: ask.tool_call_id,
            node: ask.flight.key.node.clone(),
            tool_name: ask.node.tool.tool_name.clone(),
            description: ask.description(),
            input: ask.flight.input.clone(),
            output_schema: ask.answer_schema().map(ToString::to_string),
            raised_at_ms: ask.flight.since_ms,
            deadline_ms: ask.flight.deadline_ms,
        });
        let (summary, outcome) = (Summary::of(state), state.outcome().cloned());
        let paused = state.pause().filter(|_| state.outcome().is_none()).cloned();
        let lineage = state.manifest().lineage.clone();
        Self { summary, outcome, asks: asks.collect(), waiting: why(state), paused, lineage }
    }

    /// With what the run's children are known to wait for: it waits for a person where each of its effects does.
    pub fn with_children(mut self, state: &State, children: &BTreeMap<EffectKey, Arc<Self>>) -> Self {
        let waits = |flight: &Flight| match flight.key.kind {
            EffectKind::Ask => true,
            EffectKind::Subgraph => {
                let rests = |child: &Arc<Self>| matches!(child.summary.status, RunStatus::Waiting | RunStatus::Paused);
                children.get(&flight.key).is_some_and(rests)
            }
            EffectKind::Tool | EffectKind::Llm => false,
        };
        let mut flights = state.flights().peekable();
        if !self.is_over() && state.canceled_by().is_none() && flights.peek().is_some() && flights.all(waits) {
            self.summary.status = if self.paused.is_some() { RunStatus::Paused } else { RunStatus::Waiting };
        }
        for (key, child) in children.iter().filter(|(key, _)| state.flight(key).is_some()) {
            let run_id = state.manifest().run_id.child(key);
            let of_child = |waiting: &Waiting| Waiting {
                what: format!("child run {run_id}: {}", waiting.what),
                ..waiting.clone()
            };
            self.waiting.extend(child.waiting.iter().map(of_child));
        }
        self
    }

    /// A run that is not driven before somebody mends it, as its parent sees it.
    pub fn stuck(reason: &str, now_ms: u64) -> Self {
        let summary = Summary {
            status: RunStatus::Quarantined,
            reason: reason.to_owned(),
            failed_node: None,
            finished_at_ms: None,
            spent: Spent::default(),
            events: 0,
            head: Digest::ZERO,
        };
        let what = format!("quarantined: {reason}");
        let unblocked_by = "its repair and a restart, or a cancel of its parent".to_owned();
        Self {
            summary,
            outcome: None,
            asks: Vec::new(),
            waiting: vec![Waiting { what, since_ms: now_ms, unblocked_by, barred: Vec::new() }],
            paused: None,
            lineage: None,
        }
    }

    /// Whether another view of the same run says something else of what it waits for.
    pub fn is_news(&self, later: &Self) -> bool {
        self.summary.status != later.summary.status || self.waiting != later.waiting
    }

    /// The final state; only when completed.
    pub fn output(&self) -> Option<&Payload> {
        match &self.outcome {
            Some(RunOutcome::Completed { output }) => Some(output),
            _ => None,
        }
    }

    /// Whether it has ended or will not be driven.
    pub fn is_over(&self) -> bool {
        !matches!(self.summary.status, RunStatus::Running | RunStatus::Waiting | RunStatus::Paused)
    }
}

impl Summary {
    /// Reads the state.
    pub fn of(state: &State) -> Self {
        let (status, reason, failed_node) = match state.status() {
            Status::Running => (RunStatus::Running, String::new(), None),
            Status::Waiting => (RunStatus::Waiting, String::new(), None),
            Status::Paused => (RunStatus::Paused, String::new(), None),
            Status::Finished(outcome) => {
                (RunStatus::of(outcome), outcome.reason(), outcome.node().map(ToOwned::to_owned))
            }
        };
        Self {
            status,
            reason,
            failed_node,
            finished_at_ms: state.finished_at_ms(),
            spent: *state.spent(),
            events: state.events(),
            head: state.head(),
        }
    }

    /// As the journal keeps it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut short = self.clone();
        proto::fault::cut(&mut short.reason, SUMMARY_REASON_BYTES_MAX);
        serde_json::to_vec(&short).expect("a summary has text keys and integers only")
    }
}

impl RunStatus {
    /// The word of receipts for how a run ended; none while it has not.
    pub fn outcome(self) -> Option<&'static str> {
        Some(match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Stalled => "stalled",
            Self::BudgetExhausted => "budget_exhausted",
            Self::Running | Self::Waiting | Self::Paused | Self::Quarantined => return None,
        })
    }

    /// How a run ended.
    pub fn of(outcome: &RunOutcome) -> Self {
        match outcome {
            RunOutcome::Completed { .. } => Self::Completed,
            RunOutcome::Failed { .. } => Self::Failed,
            RunOutcome::Canceled { .. } => Self::Canceled,
            RunOutcome::Stalled { .. } => Self::Stalled,
            RunOutcome::BudgetExhausted { .. } => Self::BudgetExhausted,
        }
    }
}
