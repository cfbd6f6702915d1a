//! Verification: folds a journal again and asks for every decision anew. Dispatches and writes nothing.

use content_digest::Digest;
use serde_json::Value;

use crate::{
    decide,
    entry::Entry,
    event::Event,
    fit,
    input::Input,
    key::EffectKey,
    outcome::{EffectOutcome, Usage},
    state::{Corrupt, State},
    text::{cut, shown},
};

/// Replays a journal entry by entry.
#[derive(Debug, Default)]
pub struct Replay {
    state: Option<State>,
    events: u64,
    decisions: u64,
    head: Option<Digest>,
    divergence: Option<Divergence>,
}

/// The first event that is not what it has to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("RUN-E009: event {sequence}: {problem}")]
pub struct Divergence {
    /// Its sequence number.
    pub sequence: u64,
    /// What kind of thing is wrong.
    pub class: Class,
    /// What is wrong, with the fields that differ.
    pub problem: String,
}

/// What kind of thing is wrong with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Its bytes, or a text that it names, cannot be read.
    Record,
    /// It does not follow the event before it: changed, moved, dropped or doubled.
    Chain,
    /// Another event had to be decided here, or none.
    Decision,
    /// The state does not allow it, or is another one than it says.
    State,
    /// The journal ends too early, or not with the event that it has to end with.
    End,
    /// The module, executed again, gave something else.
    Execution,
    /// What the store says of the run beside its events is not what they make it.
    Index,
}

impl Class {
    /// The word that reports use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Chain => "chain",
            Self::Decision => "decision",
            Self::State => "state",
            Self::End => "end",
            Self::Execution => "execution",
            Self::Index => "index",
        }
    }
}

/// What a replay found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Events folded.
    pub events: u64,
    /// Decisions made anew and found the same.
    pub decisions: u64,
    /// The first bad event; none when the journal is clean.
    pub divergence: Option<Divergence>,
    /// SHA-256 of the last event folded.
    pub head: Digest,
    /// Digest of the folded state; zeros when nothing could be folded.
    pub state_digest: Digest,
}

impl Verdict {
    /// Whether the journal is whole and every decision the same.
    pub fn is_clean(&self) -> bool {
        self.divergence.is_none()
    }
}

impl Replay {
    /// Before the first event.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next event. After the first divergence nothing more is looked at.
    pub fn push(&mut self, entry: &Entry) {
        if self.divergence.is_some() {
            return;
        }
        match self.replayed(entry) {
            Ok(()) => {
                self.events += 1;
                self.head = Some(entry.hash());
            }
            Err((class, problem)) => self.diverge(self.events, class, &problem),
        }
    }

    /// The next event could not be read: `problem` says why.
    pub fn push_damaged(&mut self, problem: &str) {
        if self.divergence.is_none() {
            self.diverge(self.events, Class::Record, problem);
        }
    }

    /// What the store says of the run beside its events is not what the last of those that were pushed makes it: `problem` says
    /// what.
    pub fn push_index(&mut self, problem: &str) {
        if self.divergence.is_none() {
            self.diverge(self.events.saturating_sub(1), Class::Index, problem);
        }
    }

    /// An effect that settled with this event, executed again, gave something else: `problem` says what.
    pub fn push_execution(&mut self, sequence: u64, problem: &str) {
        if self.divergence.as_ref().is_none_or(|found| sequence < found.sequence) {
            self.diverge(sequence, Class::Execution, problem);
        }
    }

    /// The first event that is not what it has to be, as far as the replay has come.
    pub fn divergence(&self) -> Option<&Divergence> {
        self.divergence.as_ref()
    }

    /// The event that another ending of an effect in flight would have become; none when it is not in flight.
    pub fn result(&self, key: &EffectKey, outcome: EffectOutcome, usage: Usage) -> Option<Event> {
        let state = self.state.as_ref()?;
        let input = Input::Result { key: key.clone(), outcome, usage };
        decide::admit(state, input, state.last_at_ms()).ok()?.event
    }

    /// The state as folded so far.
    pub fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// Ends the replay. `head` is what the store holds as the hash of the run's last event, if it holds one: with it a
    /// changed last event is noticed.
    pub fn finish(mut self, head: Option<Digest>) -> Verdict {
        if self.divergence.is_none() {
            self.check_end(head);
        }
        Verdict {
            events: self.events,
            decisions: self.decisions,
            divergence: self.divergence,
            head: self.head.unwrap_or(Digest::ZERO),
            state_digest: self.state.as_ref().map_or(Digest::ZERO, |state| state.document().digest()),
        }
    }

    fn replayed(&mut self, entry: &Entry) -> Result<(), (Class, String)> {
        let of_state = |corrupt: Corrupt| (Class::State, corrupt.problem);
        let Some(state) = &mut self.state else {
            self.state = Some(State::begin(entry).map_err(of_state)?);
            return Ok(());
        };
        // The chain comes first: a changed event shows there, whatever else is wrong with it.
        if entry.sequence() != state.events() {
            return Err((Class::Chain, format!("number {} is expected here", state.events())));
        }
        let previous = entry.recorded().previous;
        if previous != state.head() {
            return Err((Class::Chain, format!("the hash chain is broken: it names {previous} as previous")));
        }
        match decide::next(state, entry.at_ms()) {
            Some(expected) if expected == *entry.event() => self.decisions += 1,
            // Whatever is due is decided by the process that takes over.
            Some(_) if matches!(entry.event(), Event::LeaseTaken { .. }) => {}
            Some(expected) => return Err((Class::Decision, difference(&expected, entry.event()))),
            None => state_allows(state, entry.event()).map_err(|problem| (Class::Decision, problem))?,
        }
        state.apply(entry).map_err(of_state)
    }

    /// Batches are atomic: a journal that ends where something had to follow was cut.
    fn check_end(&mut self, head: Option<Digest>) {
        let Some(state) = &self.state else {
            return self.diverge(0, Class::End, "the journal is empty");
        };
        if let Some(missing) = decide::next(state, state.last_at_ms()) {
            let problem = format!("the journal ends where {} has to follow: its end was cut off", missing.kind());
            return self.diverge(self.events, Class::End, &problem);
        }
        if let Some(head) = head.filter(|head| Some(*head) != self.head) {
            let problem = format!("the last event does not have the hash {head} that the run's index holds");
            self.diverge(self.events.saturating_sub(1), Class::End, &problem);
        }
    }

    fn diverge(&mut self, sequence: u64, class: Class, problem: &str) {
        self.divergence = Some(Divergence { sequence, class, problem: cut(problem, 1024) });
    }
}

/// Whether an event that no decision asks for may stand here at all: it has to come from outside.
fn state_allows(state: &State, event: &Event) -> Result<(), String> {
    match event {
        Event::AskAnswered { by, .. } if state.manifest().was_started_by(by) => {
            Err(format!("{} started the run and cannot answer its asks", shown(by)))
        }
        Event::ResultRecorded { key, outcome, .. } => fits(state, key, outcome),
        Event::ExchangeRecorded { .. }
        | Event::ResultDiscarded { .. }
        | Event::EffectLost { .. }
        | Event::AskAnswered { .. }
        | Event::AskRejected { .. }
        | Event::CancelRequested { .. }
        | Event::TokensRevoked { .. }
        | Event::PauseRequested { .. }
        | Event::Resumed { .. }
        | Event::EgressRefused { .. }
        | Event::EgressCalled { .. }
        | Event::LeaseTaken { .. } => Ok(()),
        Event::RunStarted { .. }
        | Event::SuperstepOpened { .. }
        | Event::IntentRecorded { .. }
        | Event::InputRefused { .. }
        | Event::AskRaised { .. }
        | Event::RetryScheduled { .. }
        | Event::SuperstepClosed { .. }
        | Event::Redelivered { .. }
        | Event::RunFinished { .. } => Err(format!("nothing decides on {} here", event.kind())),
    }
}

/// A result that a strict definition's schema does not take cannot have been taken.
fn fits(state: &State, key: &EffectKey, outcome: &EffectOutcome) -> Result<(), String> {
    let (Some(node), EffectOutcome::Completed { output }) = (state.node_of(key), outcome) else { return Ok(()) };
    match fit::recorded(&node.tool, output) {
        Some(failure) => Err(format!("{key} cannot have completed: {}", failure.detail.text())),
        None => Ok(()),
    }
}

/// Names the fields in which two events differ.
fn difference(expected: &Event, found: &Event) -> String {
    if expected.kind() != found.kind() {
        return format!("{} has to follow, found {}", expected.kind(), found.kind());
    }
    let fields = |event: &Event| serde_json::from_str::<Value>(&event.to_json()).unwrap_or(Value::Null);
    let (expected_fields, found_fields) = (fields(expected), fields(found));
    let mut names: Vec<&String> = [&expected_fields, &found_fields]
        .into_iter()
        .filter_map(Value::as_object)
        .flat_map(serde_json::Map::keys)
        .filter(|name| expected_fields.get(*name) != found_fields.get(*name))
        .collect();
    names.sort();
    names.dedup();
    let lines = names.iter().map(|name| {
        let text = |fields: &Value| cut(&fields.get(*name).unwrap_or(&Value::Null).to_string(), 128);
        format!("{name} has to be {}, found {}", text(&expected_fields), text(&found_fields))
    });
    format!("{}: {}", expected.kind(), lines.collect::<Vec<_>>().join("; "))
}
