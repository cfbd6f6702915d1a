//! Shadow runs: a recorded run played again by a candidate plan, its effects answered from the record and from nothing else.

mod trace;

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    effects::{EffectRow, Effects},
    entry::Entry,
    input::Input,
    key::EffectKey,
    manifest::Manifest,
    outcome::{EffectOutcome, RunOutcome},
    owed::{Owed, owed},
    payload::Payload,
    run::{feed, start},
    state::{Corrupt, State},
};

use self::trace::{Trace, compare};

/// Most differences that one report tells.
pub const DIFFERENCES_MAX: usize = 100;
/// Most inputs that one replay takes: more than any run of the default bounds has effects.
const INPUTS_MAX: usize = 200_000;

/// A recorded run, as far as a replay needs it.
#[derive(Debug, Default)]
pub struct Recording {
    trace: Trace,
    effects: Effects,
    input: Option<Payload>,
    outcome: Option<RunOutcome>,
}

/// One thing that would have been different.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// What.
    pub kind: DifferenceKind,
    /// In which superstep; 0 for the run's end.
    pub superstep: u64,
    /// The node it is about.
    pub node: Option<String>,
    /// The edge it is about, from and to.
    pub edge: Option<(String, String)>,
    /// In words.
    pub detail: String,
}

/// What is different.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DifferenceKind {
    /// The candidate executes a node that the recorded run did not execute then.
    NodeRuns,
    /// The recorded run executed a node that the candidate does not execute then.
    NodeDoesNotRun,
    /// A node gets another input; the recorded result is taken all the same.
    Input,
    /// An edge fires that did not.
    EdgeFires,
    /// An edge that fired does not.
    EdgeDoesNotFire,
    /// The run ends otherwise.
    Outcome,
}

/// What a replay found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What would have been different, by superstep, at most [`DIFFERENCES_MAX`].
    pub differences: Vec<Difference>,
    /// How many there are.
    pub differences_total: usize,
    /// Supersteps that the candidate opened.
    pub supersteps: u64,
    /// Effects that were answered from the record.
    pub effects_matched: u64,
    /// How the candidate ended; none if it could not be played to its end.
    pub outcome: Option<RunOutcome>,
    /// Why it could not: the effect that the record does not answer.
    pub stopped: Option<String>,
}

impl Recording {
    /// Takes the next entry of the recorded run, with the state after it.
    pub fn take(&mut self, state: &State, entry: &Entry) {
        self.trace.take(state.plan(), entry);
        self.effects.take(state, entry);
        if self.input.is_none() {
            self.input = Some(state.document().clone());
        }
        self.outcome = state.outcome().cloned();
    }

    /// The input that the recorded run began with.
    pub fn input(&self) -> Option<&Payload> {
        self.input.as_ref()
    }

    /// Plays the run again by the manifest's plan. Nothing is dispatched; the clock is the record's.
    ///
    /// # Errors
    /// The manifest does not hold together, or a decision does not: a fault of the caller or of this crate.
    pub fn replay(self, manifest: &Manifest) -> Result<Report, Corrupt> {
        let Self { trace: recorded, effects, input, outcome } = self;
        let input = input.unwrap_or_else(|| Payload::new("{}"));
        let rows: BTreeMap<EffectKey, EffectRow> =
            effects.into_rows().into_iter().map(|row| (row.key.clone(), row)).collect();
        let (state, entries) = start(manifest, input, manifest.started_at_ms)?;
        let mut replay = Replay::begin(state, manifest.started_at_ms, rows);
        replay.traced(&entries);
        replay.play()?;
        Ok(replay.report(&recorded, outcome.as_ref()))
    }
}

struct Replay {
    state: State,
    now_ms: u64,
    trace: Trace,
    rows: BTreeMap<EffectKey, EffectRow>,
    /// Effects that were answered.
    answered: BTreeSet<EffectKey>,
    inputs: Vec<Difference>,
    stopped: Option<String>,
}

impl Replay {
    fn begin(state: State, now_ms: u64, rows: BTreeMap<EffectKey, EffectRow>) -> Self {
        let (answered, inputs) = (BTreeSet::new(), Vec::new());
        Self { state, now_ms, trace: Trace::default(), rows, answered, inputs, stopped: None }
    }

    fn traced(&mut self, entries: &[Entry]) {
        for entry in entries {
            self.trace.take(self.state.plan(), entry);
        }
    }

    fn play(&mut self) -> Result<(), Corrupt> {
        for _ in 0..INPUTS_MAX {
            if self.state.outcome().is_some() {
                return Ok(());
            }
            let Some(input) = self.next_input() else { return Ok(()) };
            let fed = feed(&mut self.state, input, self.now_ms)?;
            self.traced(&fed.entries);
            if let Some(declined) = fed.declined {
                self.stopped = Some(declined.to_string());
                return Ok(());
            }
        }
        self.stopped = Some(format!("more than {INPUTS_MAX} effects"));
        Ok(())
    }

    /// What the record answers to what the run is owed; none where it has no answer.
    fn next_input(&mut self) -> Option<Input> {
        let mut unanswered = None;
        for owed in owed(&self.state) {
            let answer = match owed {
                Owed::Dispatch(dispatch) => self.result(&dispatch.key),
                Owed::Child { key } | Owed::Stop { key } => self.result(&key),
                Owed::WaitAsk { tool_call_id, deadline_ms } => self.answer(tool_call_id, deadline_ms),
                Owed::WaitUntil { due_ms } => {
                    self.now_ms = self.now_ms.max(due_ms);
                    Ok(Input::Tick)
                }
            };
            match answer {
                Ok(input) => return Some(input),
                Err(problem) => unanswered = unanswered.or(Some(problem)),
            }
        }
        self.stopped = unanswered.or_else(|| Some("nothing moves it on".to_owned()));
        None
    }

    fn result(&mut self, key: &EffectKey) -> Result<Input, String> {
        let settled = self.recorded(key)?;
        Ok(Input::Result { key: key.clone(), outcome: settled.outcome, usage: settled.usage })
    }

    fn answer(&mut self, ask: content_digest::Digest, deadline_ms: Option<u64>) -> Result<Input, String> {
        let key = self.state.asks().find(|open| open.tool_call_id == ask).map(|open| open.flight.key.clone());
        let key = key.ok_or_else(|| format!("ask {ask} is not open"))?;
        let settled = self.recorded(&key)?;
        match (settled.by, settled.outcome) {
            (Some(by), EffectOutcome::Completed { output }) => {
                Ok(Input::Answer { tool_call_id: ask, by, answer: output, is_error: false })
            }
            (Some(by), EffectOutcome::Failed { failure }) => {
                // As it was said: the words around it are put there again.
                let detail = failure.detail.text();
                let words = detail.strip_prefix(&format!("{by} refused: ")).map(ToOwned::to_owned);
                let answer = Payload::of(&words.into());
                Ok(Input::Answer { tool_call_id: ask, by, answer, is_error: true })
            }
            (None, _) => {
                let deadline_ms = deadline_ms.ok_or_else(|| format!("{key} was never answered"))?;
                self.now_ms = self.now_ms.max(deadline_ms);
                Ok(Input::Tick)
            }
        }
    }

    /// What the record holds of an effect, noting whether it had the same input.
    fn recorded(&mut self, key: &EffectKey) -> Result<crate::effects::Settled, String> {
        let row = self.rows.get(key).ok_or_else(|| format!("the recorded run has no {key}"))?;
        let settled = row.settled.clone().ok_or_else(|| format!("the recorded run has no result of {key}"))?;
        if self.answered.insert(key.clone()) {
            self.now_ms = self.now_ms.max(settled.at_ms);
            let now = self.state.flight(key).map(|flight| flight.input.digest());
            if now.is_some_and(|now| now != row.input.digest()) {
                self.inputs.push(Difference {
                    kind: DifferenceKind::Input,
                    superstep: self.state.supersteps(),
                    node: Some(key.node.clone()),
                    edge: None,
                    detail: format!("{key} gets another input; its recorded result is taken all the same"),
                });
            }
        }
        Ok(settled)
    }

    fn report(self, recorded: &Trace, outcome: Option<&RunOutcome>) -> Report {
        let mut differences = self.inputs;
        differences.extend(compare(recorded, &self.trace, self.stopped.is_some()));
        let ended = self.state.outcome();
        if let (Some(now), Some(then)) = (ended, outcome)
            && now != then
        {
            let detail = format!("it ends as {}, and ended as {}", said(now), said(then));
            let (node, edge) = (now.node().map(ToOwned::to_owned), None);
            differences.push(Difference { kind: DifferenceKind::Outcome, superstep: 0, node, edge, detail });
        }
        // By superstep; the end, which has none, comes last.
        differences.sort_by_key(|found| (found.superstep == 0, found.superstep, found.kind));
        let differences_total = differences.len();
        differences.truncate(DIFFERENCES_MAX);
        Report {
            differences,
            differences_total,
            supersteps: self.state.supersteps(),
            effects_matched: self.answered.len() as u64,
            outcome: ended.cloned(),
            stopped: self.stopped,
        }
    }
}

fn said(outcome: &RunOutcome) -> String {
    match outcome {
        RunOutcome::Completed { output } => format!("completed with a state of digest {}", output.digest()),
        other => crate::text::cut(&other.reason(), 256),
    }
}
