//! A run's effects, one entry per journal key: intent and result together.

use std::collections::BTreeMap;

use content_digest::Digest;
use runner_core::{entry::Entry, event::Event, key::EffectKey, outcome::EffectOutcome, payload::Payload, state::State};

use super::load::{self, LoadError};
use crate::journal::Journal;

/// One effect as it stands.
#[derive(Debug, Clone)]
pub struct EffectEntry {
    /// The effect.
    pub key: EffectKey,
    /// Its input, one JSON text.
    pub input: Option<Payload>,
    /// Sequence number of its intent, or of the ask.
    pub intent_sequence: u64,
    /// When the intent was recorded, in milliseconds since 1970.
    pub intent_at_ms: u64,
    /// Sequence number of its result.
    pub result_sequence: Option<u64>,
    /// When it settled.
    pub result_at_ms: Option<u64>,
    /// How it ended; none while it is pending.
    pub outcome: Option<EffectOutcome>,
    /// Times it was dispatched: 1 plus redeliveries.
    pub dispatches: u32,
    /// Brokered exchanges recorded.
    pub exchanges: u32,
    /// Who answered; only of asks.
    pub answered_by: Option<String>,
}

/// Reads a run's effects, in order of dispatch, and its state.
///
/// # Errors
/// The journal cannot be read or folded.
pub fn effects(journal: &Journal, run_id: &str) -> Result<(State, Vec<EffectEntry>), LoadError> {
    let mut ledger = EffectLedger::default();
    let state = load::folded(journal, run_id, |entry, state| ledger.push(entry, state))?;
    Ok((state, ledger.entries))
}

/// Collects effects from events in order.
#[derive(Debug, Default)]
struct EffectLedger {
    entries: Vec<EffectEntry>,
    by_key: BTreeMap<EffectKey, usize>,
}

impl EffectLedger {
    /// Takes the next event, with the state after it.
    fn push(&mut self, entry: &Entry, state: &State) {
        match entry.event() {
            Event::IntentRecorded { key, .. } | Event::AskRaised { key, .. } => self.begin(key, entry, state),
            Event::ExchangeRecorded { key, .. } => self.with(key, |effect| effect.exchanges += 1),
            Event::Redelivered { key } => self.with(key, |effect| effect.dispatches += 1),
            Event::ResultRecorded { key, outcome, .. } => self.settle(key, entry, outcome, None),
            Event::AskAnswered { key, outcome, by } => self.settle(key, entry, outcome, Some(by)),
            _ => {}
        }
    }

    fn begin(&mut self, key: &EffectKey, entry: &Entry, state: &State) {
        let input = state.flight(key).map(|flight| flight.input.clone());
        self.by_key.insert(key.clone(), self.entries.len());
        self.entries.push(EffectEntry {
            key: key.clone(),
            input,
            intent_sequence: entry.sequence(),
            intent_at_ms: entry.at_ms(),
            result_sequence: None,
            result_at_ms: None,
            outcome: None,
            dispatches: 1,
            exchanges: 0,
            answered_by: None,
        });
    }

    fn settle(&mut self, key: &EffectKey, entry: &Entry, outcome: &EffectOutcome, by: Option<&String>) {
        let (sequence, at_ms) = (entry.sequence(), entry.at_ms());
        self.with(key, |effect| {
            effect.result_sequence = Some(sequence);
            effect.result_at_ms = Some(at_ms);
            effect.outcome = Some(outcome.clone());
            effect.answered_by = by.cloned();
        });
    }

    fn with(&mut self, key: &EffectKey, change: impl FnOnce(&mut EffectEntry)) {
        if let Some(effect) = self.by_key.get(key).and_then(|index| self.entries.get_mut(*index)) {
            change(effect);
        }
    }
}

impl EffectEntry {
    /// Its `tool_call_id`.
    pub fn tool_call_id(&self, run_id: &str) -> Digest {
        self.key.tool_call_id(run_id)
    }

    /// Its idempotency key.
    pub fn idempotency_key(&self, run_id: &str) -> Option<Digest> {
        self.input.as_ref().map(|input| self.key.idempotency_key(run_id, input.text()))
    }

    /// `pending`, `completed` or `failed`.
    pub fn status(&self) -> &'static str {
        match &self.outcome {
            None => "pending",
            Some(EffectOutcome::Completed { .. }) => "completed",
            Some(EffectOutcome::Failed { .. }) => "failed",
        }
    }

    /// The result, one JSON text.
    pub fn output(&self) -> Option<&str> {
        match &self.outcome {
            Some(EffectOutcome::Completed { output }) => Some(output.text()),
            _ => None,
        }
    }

    /// Cause and detail of the failure.
    pub fn failure(&self) -> Option<(&'static str, &str)> {
        match &self.outcome {
            Some(EffectOutcome::Failed { failure }) => Some((failure.cause.as_str(), failure.detail.text())),
            _ => None,
        }
    }
}
