//! A run's effects as rows: intent and result under one key, the result superseding the intent.

use content_digest::Digest;

use crate::{
    child,
    entry::Entry,
    event::Event,
    key::EffectKey,
    outcome::{EffectOutcome, Failure, Usage},
    payload::Payload,
    pinned::EffectClass,
    run_id::RunId,
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
    /// The child run that it is; only of a subgraph.
    pub child_run: Option<RunId>,
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
    /// Times that it was dispatched: 1 plus redeliveries; 0 when its input was refused.
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

impl Settled {
    fn of(entry: &Entry, outcome: &EffectOutcome, usage: Usage, by: Option<&String>) -> Self {
        Self { sequence: entry.sequence(), at_ms: entry.at_ms(), outcome: outcome.clone(), usage, by: by.cloned() }
    }
}

impl EffectRow {
    /// `pending`, `completed` or `failed`.
    pub fn status(&self) -> &'static str {
        match self.outcome() {
            None => "pending",
            Some(EffectOutcome::Completed { .. }) => "completed",
            Some(EffectOutcome::Failed { .. }) => "failed",
        }
    }

    /// How it ended; none while it has not.
    pub fn outcome(&self) -> Option<&EffectOutcome> {
        self.settled.as_ref().map(|settled| &settled.outcome)
    }

    /// The result, one JSON text; none unless completed.
    pub fn output(&self) -> Option<&str> {
        match self.outcome() {
            Some(EffectOutcome::Completed { output }) => Some(output.text()),
            Some(EffectOutcome::Failed { .. }) | None => None,
        }
    }

    /// Cause and detail; none unless failed.
    pub fn failure(&self) -> Option<(&'static str, &str)> {
        match self.outcome() {
            Some(EffectOutcome::Failed { failure }) => Some((failure.cause.as_str(), failure.detail.text())),
            Some(EffectOutcome::Completed { .. }) | None => None,
        }
    }
}

/// The effects of a journal in the order of their dispatch.
///
/// # Errors
/// The journal does not fold.
pub fn list<'a>(journal: impl IntoIterator<Item = &'a Entry>) -> Result<Vec<EffectRow>, Corrupt> {
    let mut entries = journal.into_iter();
    let Some(first) = entries.next() else { return Ok(Vec::new()) };
    let mut state = State::begin(first)?;
    let mut effects = Effects::default();
    for entry in entries {
        state.apply(entry)?;
        effects.take(&state, entry);
    }
    Ok(effects.into_rows())
}

/// Collects rows while a journal is folded, entry by entry.
#[derive(Debug, Default)]
pub struct Effects {
    rows: Vec<EffectRow>,
    /// Place of the row of each key.
    places: std::collections::BTreeMap<EffectKey, usize>,
}

impl Effects {
    /// Takes the next entry, with the state after it.
    pub fn take(&mut self, state: &State, entry: &Entry) {
        match entry.event() {
            Event::IntentRecorded { key, class, .. } => self.begin(state, key, Some(*class)),
            Event::AskRaised { key, .. } => self.begin(state, key, None),
            Event::InputRefused { key, failure, .. } => self.refused(state, entry, key, failure),
            Event::Redelivered { key } => {
                self.change(key, |row| row.dispatches = row.dispatches.saturating_add(1));
            }
            Event::ExchangeRecorded { key, .. } => {
                self.change(key, |row| row.exchanges = row.exchanges.saturating_add(1));
            }
            Event::ResultRecorded { key, outcome, usage } => {
                self.settle(key, Settled::of(entry, outcome, *usage, None));
            }
            Event::AskAnswered { key, by, outcome } => {
                self.settle(key, Settled::of(entry, outcome, Usage::default(), Some(by)));
            }
            Event::RunStarted { .. }
            | Event::SuperstepOpened { .. }
            | Event::ResultDiscarded { .. }
            | Event::AskRejected { .. }
            | Event::RetryScheduled { .. }
            | Event::SuperstepClosed { .. }
            | Event::CancelRequested { .. }
            | Event::EffectLost { .. }
            | Event::TokensRevoked { .. }
            | Event::PauseRequested { .. }
            | Event::Resumed { .. }
            | Event::EgressRefused { .. }
            | Event::EgressCalled { .. }
            | Event::LeaseTaken { .. }
            | Event::RunFinished { .. } => {}
        }
    }

    /// The effects in the order of their dispatch.
    pub fn into_rows(self) -> Vec<EffectRow> {
        self.rows
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
            child_run: child::run_id_of(&state.manifest().run_id, key),
            input: flight.input.clone(),
            class,
            intent_sequence: flight.intent_sequence,
            intent_ms: flight.since_ms,
            settled: None,
            dispatches: flight.dispatches,
            exchanges: 0,
        });
    }

    /// A row that begins and ends with one event, without a dispatch.
    fn refused(&mut self, state: &State, entry: &Entry, key: &EffectKey, failure: &Failure) {
        let (Some(task), Some(node)) = (state.task_of(key), state.node_of(key)) else { return };
        // Nothing was merged since, so the input is still what it was.
        let input = state.input_of(&task);
        let outcome = EffectOutcome::Failed { failure: failure.clone() };
        self.places.insert(key.clone(), self.rows.len());
        self.rows.push(EffectRow {
            key: key.clone(),
            tool_call_id: key.tool_call_id(state.run_id()),
            idempotency_key: key.idempotency_key(state.run_id(), input.text()),
            definition: node.tool.definition,
            tool_name: node.tool.tool_name.clone(),
            // Only inputs of definitions are refused: no child run.
            child_run: None,
            input,
            class: node.tool.effect_class(),
            intent_sequence: entry.sequence(),
            intent_ms: entry.at_ms(),
            settled: Some(Settled::of(entry, &outcome, Usage::default(), None)),
            dispatches: 0,
            exchanges: 0,
        });
    }

    fn settle(&mut self, key: &EffectKey, settled: Settled) {
        self.change(key, |row| row.settled = Some(settled));
    }

    fn change(&mut self, key: &EffectKey, change: impl FnOnce(&mut EffectRow)) {
        if let Some(row) = self.places.get(key).and_then(|place| self.rows.get_mut(*place)) {
            change(row);
        }
    }
}
