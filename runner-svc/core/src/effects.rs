//! A run's effects as rows: intent and result under one key, the result superseding the intent.

use content_digest::Digest;

use crate::{
    entry::Entry,
    event::Event,
    key::EffectKey,
    outcome::{EffectOutcome, Usage},
    payload::Payload,
    pinned::EffectClass,
    state::{Corrupt, State},
};

/// One effect as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectRow {
    /// Its key.
    pub key: EffectKey,
    /// Its `tool_call_id`.
    pub tool_call_id: Digest,
    /// Its stable name over every redelivery.
    pub idempotency_key: Digest,
    /// Address of the definition.
    pub definition: Digest,
    /// The tool's name.
    pub tool_name: String,
    /// Its input, one JSON text.
    pub input: Payload,
    /// Its class; none for an ask.
    pub class: Option<EffectClass>,
    /// Sequence number of its intent.
    pub intent_sequence: u64,
    /// When its intent was recorded, in milliseconds since 1970.
    pub intent_ms: u64,
    /// How it ended; none while it has not.
    pub settled: Option<Settled>,
    /// Times that it was dispatched: 1 plus redeliveries.
    pub dispatches: u32,
    /// Brokered exchanges recorded.
    pub exchanges: u32,
}

/// How an effect ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// Sequence number of its result.
    pub sequence: u64,
    /// When its result was recorded, in milliseconds since 1970.
    pub at_ms: u64,
    /// Result or failure.
    pub outcome: EffectOutcome,
    /// What it used.
    pub usage: Usage,
    /// Who answered; only of asks.
    pub by: Option<String>,
}

/// The effects of a journal in the order of their dispatch.
///
/// # Errors
/// The journal does not fold.
pub fn list<'a>(journal: impl IntoIterator<Item = &'a Entry>) -> Result<Vec<EffectRow>, Corrupt> {
    let mut entries = journal.into_iter();
    let Some(first) = entries.next() else { return Ok(Vec::new()) };
    let mut state = State::begin(first)?;
    let mut rows = Rows::default();
    for entry in entries {
        state.apply(entry)?;
        rows.take(&state, entry);
    }
    Ok(rows.rows)
}

#[derive(Default)]
struct Rows {
    rows: Vec<EffectRow>,
    /// Place of the row of each key.
    places: std::collections::BTreeMap<EffectKey, usize>,
}

impl Rows {
    fn take(&mut self, state: &State, entry: &Entry) {
        match entry.event() {
            Event::IntentRecorded { key, class, .. } => self.begin(state, key, Some(*class)),
            Event::AskRaised { key, .. } => self.begin(state, key, None),
            Event::Redelivered { key } => {
                self.change(key, |row| row.dispatches = row.dispatches.saturating_add(1));
            }
            Event::ExchangeRecorded { key, .. } => {
                self.change(key, |row| row.exchanges = row.exchanges.saturating_add(1));
            }
            Event::ResultRecorded { key, outcome, usage } => self.settle(entry, key, outcome, *usage, None),
            Event::AskAnswered { key, by, outcome } => self.settle(entry, key, outcome, Usage::default(), Some(by)),
            Event::RunStarted { .. }
            | Event::SuperstepOpened { .. }
            | Event::AskRejected { .. }
            | Event::RetryScheduled { .. }
            | Event::SuperstepClosed { .. }
            | Event::CancelRequested { .. }
            | Event::PauseRequested { .. }
            | Event::Resumed { .. }
            | Event::EgressRefused { .. }
            | Event::EgressCalled { .. }
            | Event::LeaseTaken { .. }
            | Event::RunFinished { .. } => {}
        }
    }

    fn begin(&mut self, state: &State, key: &EffectKey, class: Option<EffectClass>) {
        // The state has taken the intent in, so the effect is in flight and its node is pinned.
        let (Some(flight), Some(node)) = (state.flight(key), state.node_of(key)) else { return };
        self.places.insert(key.clone(), self.rows.len());
        self.rows.push(EffectRow {
            key: key.clone(),
            tool_call_id: key.tool_call_id(state.run_id()),
            idempotency_key: key.idempotency_key(state.run_id(), flight.input.text()),
            definition: node.tool.definition,
            tool_name: node.tool.tool_name.clone(),
            input: flight.input.clone(),
            class,
            intent_sequence: flight.intent_sequence,
            intent_ms: flight.since_ms,
            settled: None,
            dispatches: flight.dispatches,
            exchanges: 0,
        });
    }

    fn settle(&mut self, entry: &Entry, key: &EffectKey, outcome: &EffectOutcome, usage: Usage, by: Option<&String>) {
        let settled = Settled {
            sequence: entry.sequence(),
            at_ms: entry.at_ms(),
            outcome: outcome.clone(),
            usage,
            by: by.cloned(),
        };
        self.change(key, |row| row.settled = Some(settled));
    }

    fn change(&mut self, key: &EffectKey, change: impl FnOnce(&mut EffectRow)) {
        if let Some(row) = self.places.get(key).and_then(|place| self.rows.get_mut(*place)) {
            change(row);
        }
    }
}
