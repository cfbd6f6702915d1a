//! Questions to people: those that are open, and how each of the others was settled.

use content_digest::Digest;
use serde_json::Value;

use super::{Flight, State, Task, apply::Applied};
use crate::{
    doubt::{self, Verdict},
    entry::Entry,
    event::Event,
    key::{EffectKey, EffectKind},
    outcome::{EffectOutcome, FailureCause, Usage},
    pinned::PinnedNode,
    reserve::Reserved,
};

/// A pending question to a person.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Its address.
    pub tool_call_id: Digest,
    /// The effect: key, input, when it was raised, deadline.
    pub flight: &'a Flight,
    /// The node and its definition.
    pub node: &'a PinnedNode,
    /// The effect that it is about, when it asks what became of one that was in flight at a crash.
    pub about: Option<&'a EffectKey>,
}

/// An ask that was raised once.
#[derive(Debug)]
pub(crate) struct Raised {
    pub(crate) key: EffectKey,
    pub(crate) settled: Option<SettledAsk>,
    /// Rejected answers that are recorded.
    pub(crate) rejections: u32,
}

/// How an ask was settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledAsk {
    /// How.
    pub end: AskEnd,
    /// Who answered; none when nobody did.
    pub by: Option<String>,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Digest of the answer, or of what was said with a refusal.
    pub(crate) said: Digest,
}

/// How an ask ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskEnd {
    /// With an answer.
    Answered,
    /// The person refused.
    Refused,
    /// Nobody answered before its deadline.
    Expired,
    /// Its run was canceled.
    Canceled,
}

/// A question about an effect whose process is gone.
#[derive(Debug)]
pub(crate) struct Doubt {
    /// The question.
    pub(crate) ask: Flight,
    /// What was decided, until it is done.
    pub(crate) verdict: Option<Verdict>,
}

impl Ask<'_> {
    /// The question.
    pub fn description(&self) -> String {
        match self.about {
            Some(effect) => doubt::question(effect, &self.node.tool),
            None => self.node.tool.description.clone(),
        }
    }

    /// What the answer must fit; none if anything will do.
    pub fn answer_schema(&self) -> Option<&Value> {
        match self.about {
            Some(_) => Some(doubt::schema()),
            None => self.node.tool.output_schema.as_ref(),
        }
    }
}

impl SettledAsk {
    /// Reads off the event by which an ask settled.
    pub(super) fn of(outcome: &EffectOutcome, by: Option<&String>, at_ms: u64) -> Self {
        let end = match outcome {
            EffectOutcome::Completed { .. } => AskEnd::Answered,
            EffectOutcome::Failed { failure } if failure.cause == FailureCause::Timeout => AskEnd::Expired,
            EffectOutcome::Failed { .. } if by.is_some() => AskEnd::Refused,
            EffectOutcome::Failed { .. } => AskEnd::Canceled,
        };
        Self { end, by: by.cloned(), at_ms, said: said(outcome) }
    }

    /// Whether the event would settle the ask as it was settled: the same person saying the same again.
    pub(crate) fn is_repeated_by(&self, event: &Event) -> bool {
        match event {
            Event::AskAnswered { by, outcome, .. } => {
                let again = Self::of(outcome, Some(by), self.at_ms);
                again == *self
            }
            _ => false,
        }
    }
}

fn said(outcome: &EffectOutcome) -> Digest {
    match outcome {
        EffectOutcome::Completed { output } => output.digest(),
        EffectOutcome::Failed { failure } => failure.detail.digest(),
    }
}

impl State {
    /// An ask of a node that is ready, or about an effect that is in doubt.
    pub(super) fn ask_raised_now(
        &mut self,
        entry: &Entry,
        key: &EffectKey,
        input: Digest,
        deadline_ms: Option<u64>,
    ) -> Applied {
        if key.kind != EffectKind::Ask {
            return Err(format!("{key} is no ask"));
        }
        match self.task_of(key).filter(|task| self.in_doubt.contains(task)) {
            Some(task) => self.doubted(entry, key, &task, (input, deadline_ms))?,
            None => self.dispatched(entry, key, input, (deadline_ms, Reserved::default()))?,
        }
        let raised = Raised { key: key.clone(), settled: None, rejections: 0 };
        self.asks.insert(key.tool_call_id(self.manifest.run_id.as_str()), raised);
        Ok(())
    }

    fn doubted(
        &mut self,
        entry: &Entry,
        key: &EffectKey,
        task: &Task,
        (input, deadline_ms): (Digest, Option<u64>),
    ) -> Applied {
        let effect = self.flights.get(task).filter(|effect| doubt::ask_key(effect) == *key);
        let Some(effect) = effect else { return Err(format!("{key} asks about nothing that is in doubt")) };
        let executing = effect.executing;
        let derived = doubt::ask_input(effect, &self.pinned(executing).tool, self.run_id());
        if derived.digest() != input {
            return Err(format!("the input of {key} has digest {}, not {input}", derived.digest()));
        }
        let ask = Flight {
            key: key.clone(),
            input: derived,
            since_ms: entry.at_ms(),
            intent_sequence: entry.sequence(),
            dispatches: 1,
            exchanges: Vec::new(),
            deadline_ms,
            reserved: Reserved::default(),
            egress_calls: 0,
            allowance: None,
            executing,
        };
        self.in_doubt.remove(task);
        self.doubts.insert(task.clone(), Doubt { ask, verdict: None });
        Ok(())
    }

    /// An answer was not taken.
    pub(super) fn ask_rejected(&mut self, key: &EffectKey) -> Applied {
        self.flight(key).ok_or_else(|| format!("{key} is not open"))?;
        if let Some(raised) = self.asks.get_mut(&key.tool_call_id(self.manifest.run_id.as_str())) {
            raised.rejections = raised.rejections.saturating_add(1);
        }
        Ok(())
    }

    /// Rejected answers to an ask that are recorded.
    pub(crate) fn rejections(&self, ask: &EffectKey) -> u32 {
        self.asks.get(&ask.tool_call_id(self.run_id())).map_or(0, |raised| raised.rejections)
    }

    /// An ask was answered, expired, or closed by a cancel.
    pub(super) fn ask_settled(
        &mut self,
        key: &EffectKey,
        outcome: &EffectOutcome,
        by: Option<&String>,
        at_ms: u64,
    ) -> Applied {
        let task = self.task_of(key).filter(|task| self.doubts.get(task).is_some_and(|doubt| doubt.ask.key == *key));
        match task {
            Some(task) => {
                let Some(effect) = self.flights.get(&task) else { return Err(format!("{key} is about nothing")) };
                let verdict = doubt::settled(outcome, by, &effect.key);
                let undecided = self.doubts.get_mut(&task).filter(|doubt| doubt.verdict.is_none());
                undecided.ok_or_else(|| format!("{key} is settled"))?.verdict = Some(verdict);
            }
            None => self.settled(key, outcome, &Usage::default())?,
        }
        if let Some(raised) = self.asks.get_mut(&key.tool_call_id(self.manifest.run_id.as_str())) {
            raised.settled = Some(SettledAsk::of(outcome, by, at_ms));
        }
        Ok(())
    }

    /// Pending questions to people, in the plan's order.
    pub fn asks(&self) -> impl Iterator<Item = Ask<'_>> {
        let of_nodes = self.flights.values().filter(|flight| self.is_ask(flight)).map(|flight| (flight, None));
        let about_effects = self.doubts.iter().filter(|(_, doubt)| doubt.verdict.is_none()).map(|(task, doubt)| {
            let about = self.flights.get(task).map(|flight| &flight.key);
            (&doubt.ask, about)
        });
        of_nodes.chain(about_effects).map(|(flight, about)| Ask {
            tool_call_id: flight.key.tool_call_id(self.run_id()),
            flight,
            node: self.pinned(flight.executing),
            about,
        })
    }

    /// How an ask was settled; none while it is open, or if the run never raised it.
    pub fn settled_ask(&self, tool_call_id: &Digest) -> Option<&SettledAsk> {
        self.asks.get(tool_call_id).and_then(|raised| raised.settled.as_ref())
    }

    pub(crate) fn ask_raised(&self, tool_call_id: &Digest) -> Option<&Raised> {
        self.asks.get(tool_call_id)
    }

    pub(crate) fn is_ask(&self, flight: &Flight) -> bool {
        flight.key.kind == EffectKind::Ask
    }

    /// The question about an effect that an ask's key names; none for an ask of a node.
    pub(crate) fn doubt(&self, ask: &EffectKey) -> Option<(&Doubt, &Flight)> {
        let task = self.task_of(ask)?;
        let doubt = self.doubts.get(&task).filter(|doubt| doubt.ask.key == *ask)?;
        Some((doubt, self.flights.get(&task)?))
    }

    /// The question about an effect in flight, if a person is asked about it.
    pub(crate) fn ask_about(&self, effect: &EffectKey) -> Option<&Flight> {
        let task = self.task_of(effect)?;
        self.flights.get(&task).filter(|flight| flight.key == *effect)?;
        self.doubts.get(&task).map(|doubt| &doubt.ask)
    }

    /// Whether a person is asked what became of a task's effect.
    pub(crate) fn is_doubted(&self, task: &Task) -> bool {
        self.doubts.contains_key(task)
    }

    /// Whether something is in flight that is no question to a person and not doubted.
    pub(crate) fn is_active(&self) -> bool {
        self.flights.iter().any(|(task, flight)| !self.is_ask(flight) && !self.is_doubted(task))
    }

    /// The first effect whose doubt a person has settled, with what was decided.
    pub(crate) fn next_verdict(&self) -> Option<(&Flight, &Verdict)> {
        self.doubts.iter().find_map(|(task, doubt)| Some((self.flights.get(task)?, doubt.verdict.as_ref()?)))
    }
}
