//! Who could intervene in a run, who did, and how fast it obeyed: read off its journal.

use std::collections::BTreeMap;

use content_digest::Digest;
use runner_core::{entry::Entry, event::Event, key::EffectKind, outcome::EffectOutcome, state::State};
use serde::Serialize;

/// Version of the report.
pub const FORMAT: u32 = 1;
/// Most entries of each list; what is left out is counted.
const ENTRIES_MAX: usize = 10_000;

/// The report. Times are milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// The run.
    pub run_id: String,
    /// Its namespace.
    pub namespace: String,
    /// Who started it: can never answer its asks.
    pub started_by: String,
    /// On whose behalf, when that is someone else: cannot answer either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initiator: Option<String>,
    /// When it started.
    pub started_at_ms: u64,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at_ms: Option<u64>,
    /// How it ended, or `unfinished`.
    pub outcome: &'static str,
    /// Who could intervene, by the permissions as they are now.
    pub could: Could,
    /// Every question to a person.
    pub asks: Vec<Asked>,
    /// Who canceled it, and how fast it stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel: Option<Cancel>,
    /// Who paused and resumed it.
    pub pauses: Vec<Control>,
    /// Outbound calls that were made.
    pub egress_calls: u64,
    /// Outbound calls that were refused.
    pub egress_refusals: Vec<EgressRefusal>,
    /// Processes that took it over.
    pub takeovers: Vec<Takeover>,
    /// Entries of these lists that are left out, over 10,000 each.
    pub left_out: u64,
    /// The same of child runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Self>,
    /// Child runs that are not in the list.
    #[serde(skip_serializing_if = "is_zero")]
    pub children_left_out: u64,
    /// Counts over the run and its child runs; only of the run that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub totals: Option<Totals>,
}

/// Counts over a run and its child runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Runs that were looked at.
    pub runs: u64,
    /// Questions to people.
    pub asks: u64,
    /// Those that somebody answered or refused.
    pub answered: u64,
    /// Answers that were not taken.
    pub rejected: u64,
    /// Runs that somebody canceled; the child runs of a canceled run among them.
    pub cancels: u64,
    /// Pauses and resumptions.
    pub pauses: u64,
    /// Outbound calls that were made.
    pub egress_calls: u64,
    /// Outbound calls that were refused.
    pub egress_refusals: u64,
    /// Takeovers by another process.
    pub takeovers: u64,
}

impl Totals {
    /// Counts a run; entries that its lists leave out are not counted.
    pub fn count(&mut self, report: &Report) {
        let answered = report.asks.iter().filter(|ask| ask.by.is_some());
        self.runs += 1;
        self.asks += report.asks.len() as u64;
        self.answered += answered.count() as u64;
        self.rejected += report.asks.iter().map(|ask| ask.rejected.len() as u64).sum::<u64>();
        self.cancels += u64::from(report.cancel.is_some());
        self.pauses += report.pauses.len() as u64;
        self.egress_calls += report.egress_calls;
        self.egress_refusals += report.egress_refusals.len() as u64;
        self.takeovers += report.takeovers.len() as u64;
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Who could intervene.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Could {
    /// Holders of `run.respond` in the namespace who did not start the run.
    pub respond: Vec<String>,
    /// Holders of `run.cancel` in the namespace.
    pub cancel: Vec<String>,
}

/// A question, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Asked {
    /// Its address.
    pub tool_call_id: Digest,
    /// The node.
    pub node: String,
    /// When it was raised.
    pub raised_at_ms: u64,
    /// When it expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// `open`, `answered`, `refused`, `expired`, or `withdrawn` by a cancel.
    pub status: &'static str,
    /// Who answered or refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When it was settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled_at_ms: Option<u64>,
    /// How long it was open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_ms: Option<u64>,
    /// Answers that were not taken.
    pub rejected: Vec<Rejected>,
}

/// An answer that was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rejected {
    /// Who tried.
    pub by: String,
    /// Why it was not taken.
    pub reason: String,
    /// When.
    pub at_ms: u64,
}

/// A cancel, and how fast the run stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cancel {
    /// Who.
    pub by: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at_ms: u64,
    /// Its event: nothing was dispatched after it.
    pub sequence: u64,
    /// Effects that were in flight, asks left out.
    pub effects_in_flight: u64,
    /// Until the last of them had stopped and the run had ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained_ms: Option<u64>,
}

/// A pause or a resumption.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Control {
    /// `PauseRequested` or `Resumed`.
    pub what: &'static str,
    /// Who.
    pub by: String,
    /// When.
    pub at_ms: u64,
}

/// An outbound call that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EgressRefusal {
    /// The node.
    pub node: String,
    /// Its attempt.
    pub attempt: u32,
    /// When.
    pub at_ms: u64,
    /// The broker's audit record; none when the broker was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<serde_json::Value>,
}

/// A process that took the run over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Takeover {
    /// Principal, node and instance.
    pub holder: String,
    /// Its fencing token.
    pub fence: u64,
    /// When.
    pub at_ms: u64,
}

/// Collects the report event by event.
#[derive(Default)]
pub struct Oversight {
    asks: BTreeMap<Digest, Asked>,
    cancel: Option<Cancel>,
    pauses: Vec<Control>,
    egress_calls: u64,
    egress_refusals: Vec<EgressRefusal>,
    takeovers: Vec<Takeover>,
    left_out: u64,
}

impl Oversight {
    /// Takes an event, with the state after it.
    pub fn take(&mut self, entry: &Entry, state: &State) {
        let at_ms = entry.at_ms();
        match entry.event() {
            Event::AskRaised { key, deadline_ms, .. } => {
                let tool_call_id = key.tool_call_id(state.run_id());
                let asked = Asked {
                    tool_call_id,
                    node: key.node.clone(),
                    raised_at_ms: at_ms,
                    deadline_ms: *deadline_ms,
                    status: "open",
                    by: None,
                    settled_at_ms: None,
                    open_ms: None,
                    rejected: Vec::new(),
                };
                if self.asks.len() < ENTRIES_MAX {
                    self.asks.insert(tool_call_id, asked);
                } else {
                    self.left_out += 1;
                }
            }
            Event::AskRejected { key, by, reason } => {
                if let Some(asked) = self.asks.get_mut(&key.tool_call_id(state.run_id())) {
                    let rejected = Rejected { by: by.clone(), reason: reason.clone(), at_ms };
                    self.left_out += push(&mut asked.rejected, rejected);
                }
            }
            Event::AskAnswered { key, by, outcome } => {
                let refused = matches!(outcome, EffectOutcome::Failed { .. });
                let status = if refused { "refused" } else { "answered" };
                self.settle(key.tool_call_id(state.run_id()), status, Some(by.clone()), at_ms);
            }
            Event::ResultRecorded { key, .. } if key.kind == EffectKind::Ask => {
                let status = if self.cancel.is_some() { "withdrawn" } else { "expired" };
                self.settle(key.tool_call_id(state.run_id()), status, None, at_ms);
            }
            Event::CancelRequested { by, reason } => {
                let in_flight = state.flights().filter(|flight| flight.key.kind != EffectKind::Ask).count();
                self.cancel = Some(Cancel {
                    by: by.clone(),
                    reason: reason.clone(),
                    at_ms,
                    sequence: entry.sequence(),
                    effects_in_flight: in_flight as u64,
                    drained_ms: None,
                });
            }
            Event::RunFinished { .. } => {
                if let Some(cancel) = &mut self.cancel {
                    cancel.drained_ms = Some(at_ms.saturating_sub(cancel.at_ms));
                }
            }
            Event::PauseRequested { by, .. } | Event::Resumed { by, .. } => {
                let control = Control { what: entry.event().kind(), by: by.clone(), at_ms };
                self.left_out += push(&mut self.pauses, control);
            }
            Event::ExchangeRecorded { exchange, .. } if !exchange.refused => self.egress_calls += 1,
            Event::EgressCalled { .. } => self.egress_calls += 1,
            Event::ExchangeRecorded { key, exchange } => {
                let record = exchange.record.as_ref().and_then(|record| record.parse().ok());
                let (node, attempt) = (key.node.clone(), key.attempt);
                self.left_out += push(&mut self.egress_refusals, EgressRefusal { node, attempt, at_ms, record });
            }
            Event::EgressRefused { key, record } => {
                let (node, attempt, record) = (key.node.clone(), key.attempt, record.parse().ok());
                self.left_out += push(&mut self.egress_refusals, EgressRefusal { node, attempt, at_ms, record });
            }
            Event::LeaseTaken { holder, fence } => {
                let takeover = Takeover { holder: holder.clone(), fence: *fence, at_ms };
                self.left_out += push(&mut self.takeovers, takeover);
            }
            _ => {}
        }
    }

    /// The report, with those who may respond and cancel as they are configured now.
    pub fn report(mut self, state: &State, respond: Vec<String>, cancel: Vec<String>) -> Report {
        let manifest = state.manifest();
        let respond = respond.into_iter().filter(|name| !manifest.was_started_by(name)).collect();
        if state.outcome().is_some() {
            for asked in self.asks.values_mut().filter(|asked| asked.status == "open") {
                asked.status = "withdrawn";
            }
        }
        let mut asks: Vec<Asked> = self.asks.into_values().collect();
        asks.sort_by_key(|asked| (asked.raised_at_ms, asked.tool_call_id));
        Report {
            format: FORMAT,
            run_id: state.run_id().to_owned(),
            namespace: manifest.namespace.clone(),
            started_by: manifest.principal.clone(),
            initiator: manifest.initiator.clone(),
            started_at_ms: state.started_at_ms(),
            finished_at_ms: state.finished_at_ms(),
            outcome: state.outcome().map_or("unfinished", |outcome| outcome.word()),
            could: Could { respond, cancel },
            asks,
            cancel: self.cancel,
            pauses: self.pauses,
            egress_calls: self.egress_calls,
            egress_refusals: self.egress_refusals,
            takeovers: self.takeovers,
            left_out: self.left_out,
            children: Vec::new(),
            children_left_out: 0,
            totals: None,
        }
    }

    fn settle(&mut self, ask: Digest, status: &'static str, by: Option<String>, at_ms: u64) {
        let Some(asked) = self.asks.get_mut(&ask) else { return };
        asked.status = status;
        asked.by = by;
        asked.settled_at_ms = Some(at_ms);
        asked.open_ms = Some(at_ms.saturating_sub(asked.raised_at_ms));
    }
}

/// Adds an entry while there is room; how many were left out.
fn push<T>(list: &mut Vec<T>, entry: T) -> u64 {
    if list.len() < ENTRIES_MAX {
        list.push(entry);
        return 0;
    }
    1
}

#[cfg(test)]
mod tests;
