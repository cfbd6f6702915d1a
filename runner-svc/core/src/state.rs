//! A run's state: the fold of its events. Read it to know what the run is owed; only `apply` changes it.

mod allowance;
mod apply;
mod asks;
mod cancel;
mod checkpoint;
mod closing;
mod dialogue;
mod parts;
mod pause;
mod schedule;
mod settle;
mod task;
mod waves;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use content_digest::Digest;

use crate::{
    budget::{Budgets, Demand, Spent},
    document::Document,
    event::Exchange,
    fan_out::Send,
    key::EffectKey,
    manifest::Manifest,
    outcome::{Failure, RunOutcome},
    payload::Payload,
    pinned::{Executor, PinnedNode, Runtime},
    plan::Plan,
    reserve::{Reserved, Wave},
};

pub use self::{
    apply::Corrupt,
    asks::{Ask, AskEnd, SettledAsk},
    cancel::Receipt,
    checkpoint::Checkpoint,
    pause::Pause,
};
pub(crate) use self::{asks::Doubt, cancel::Cancel, closing::Overfull, task::Task};

use self::{asks::Raised, dialogue::Dialogue, schedule::Schedule};

/// A run as its events so far make it.
#[derive(Debug)]
pub struct State {
    manifest: Arc<Manifest>,
    manifest_payload: Payload,
    plan: Plan,
    document: Document,
    schedule: Schedule,
    /// Supersteps opened.
    superstep: u64,
    /// Whether the last one is not closed yet.
    open: bool,
    /// Tasks of the open superstep whose intent is not recorded yet.
    to_dispatch: BTreeSet<Task>,
    /// The effects that were dispatched last, and what is reserved for them.
    wave: Wave,
    /// Effects in flight, by task.
    flights: BTreeMap<Task, Flight>,
    /// Effects in flight whose process is gone and of which nothing was decided yet.
    in_doubt: BTreeSet<Task>,
    /// Loops of abstract nodes between two of their effects, by task.
    dialogues: BTreeMap<Task, Dialogue>,
    /// Questions about effects of which nothing is known, by their task.
    doubts: BTreeMap<Task, Doubt>,
    /// Results of the open superstep, by task.
    results: BTreeMap<Task, Done>,
    /// Tasks that failed and may be tried again.
    retrying: BTreeSet<Task>,
    /// When the waits before the next attempts began, in milliseconds since 1970.
    backing_off_since: BTreeMap<Task, u64>,
    /// Tasks that failed for good.
    failures: BTreeMap<Task, Failure>,
    /// Every ask ever raised, by `tool_call_id`.
    asks: BTreeMap<Digest, Raised>,
    pause: Option<Pause>,
    /// How often it was paused by itself.
    pauses: u32,
    cancel: Option<Cancel>,
    outcome: Option<RunOutcome>,
    spent: Spent,
    /// Active time that was spent when the last superstep opened.
    opened_wall_ms: u64,
    fence: u64,
    started_at_ms: u64,
    last_at_ms: u64,
    next_sequence: u64,
    head: Digest,
}

/// An effect whose intent is recorded and whose result is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flight {
    /// The effect.
    pub key: EffectKey,
    /// Its input, one JSON text.
    pub input: Payload,
    /// When its intent was recorded, in milliseconds since 1970.
    pub since_ms: u64,
    /// Sequence number of its intent.
    pub intent_sequence: u64,
    /// Times that it was dispatched: 1 plus redeliveries.
    pub dispatches: u32,
    /// Its brokered calls so far.
    pub exchanges: Vec<Exchange>,
    /// When it expires, in milliseconds since 1970; only of asks.
    pub deadline_ms: Option<u64>,
    /// What it may use of the run's budgets.
    pub reserved: Reserved,
    /// Brokered calls that went out so far.
    pub egress_calls: u64,
    /// Index of the node whose definition executes it: its own, or that of the tool that a model calls.
    pub(crate) executing: usize,
    /// What of the run's budgets is reserved for it; only of child runs.
    pub allowance: Option<Budgets>,
}

/// A failed task that waits for its next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BackingOff<'a> {
    /// The node.
    pub(crate) node: &'a str,
    /// Path of the fan-out task; empty for a static node.
    pub(crate) task_path: &'a str,
    /// Number of the attempt to come.
    pub(crate) attempt: u32,
    /// Number of the last attempt that its retries allow.
    pub(crate) attempts: u32,
    /// When the wait began, in milliseconds since 1970.
    pub(crate) since_ms: u64,
    /// When it ends, in milliseconds since 1970.
    pub(crate) due_ms: u64,
}

/// The result of a task.
#[derive(Debug)]
struct Done {
    output: Payload,
    /// The tasks that it asks for.
    sends: Vec<Send>,
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status<'a> {
    /// It has work ready or in flight.
    Running,
    /// Only people can move it on.
    Waiting,
    /// Someone paused it, and nothing but questions to people is in flight.
    Paused,
    /// It ended.
    Finished(&'a RunOutcome),
}

/// Where a node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeStatus {
    /// Some of its in-edges are not resolved.
    Waiting,
    /// It will be dispatched in the next superstep.
    Ready,
    /// Its effect is in flight, or has settled in a superstep that is still open.
    Dispatched,
    /// A person is asked.
    AwaitingAnswer,
    /// It has a result.
    Done,
    /// It failed for good.
    Failed,
    /// None of its in-edges fired.
    Dead,
}

impl State {
    /// What the run froze at start.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// The manifest's JSON text and digest.
    pub fn manifest_payload(&self) -> &Payload {
        &self.manifest_payload
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The run's id.
    pub fn run_id(&self) -> &str {
        self.manifest.run_id.as_str()
    }

    /// The state's JSON text; its digest is the state digest.
    pub fn document(&self) -> &Payload {
        self.document.text()
    }

    /// Where the run stands.
    pub fn status(&self) -> Status<'_> {
        match &self.outcome {
            Some(outcome) => Status::Finished(outcome),
            None if self.rests_paused() => Status::Paused,
            None if self.waits_for_people_only() => Status::Waiting,
            None => Status::Running,
        }
    }

    /// How the run ended.
    pub fn outcome(&self) -> Option<&RunOutcome> {
        self.outcome.as_ref()
    }

    /// Where a node stands.
    pub fn node_status(&self, node: usize) -> NodeStatus {
        let flight = self.flights.get(&Task::of_node(node));
        let task = Task::of_node(node);
        self.schedule.status(node, flight.is_some_and(|flight| self.is_ask(flight) || self.is_doubted(&task)))
    }

    /// Effects in flight, in the plan's order; asks among them.
    pub fn flights(&self) -> impl Iterator<Item = &Flight> {
        self.flights.values()
    }

    /// An effect in flight.
    pub fn flight(&self, key: &EffectKey) -> Option<&Flight> {
        let task = self.task_of(key)?;
        let doubt = || self.doubts.get(&task).map(|doubt| &doubt.ask);
        self.flights.get(&task).filter(|flight| flight.key == *key).or_else(|| doubt().filter(|ask| ask.key == *key))
    }

    /// The node whose definition executes an effect: its own; of a tool call that a model makes, one that is bound to the tool.
    pub fn node_of(&self, key: &EffectKey) -> Option<&PinnedNode> {
        let executing = self.flight(key).map(|flight| flight.executing);
        executing.or_else(|| self.plan.index_of(&key.node)).and_then(|node| self.manifest.nodes.get(node))
    }

    /// What it spent.
    pub fn spent(&self) -> &Spent {
        &self.spent
    }

    /// The fencing token of the last takeover; 0 before the first.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// When it started, in milliseconds since 1970.
    pub fn started_at_ms(&self) -> u64 {
        self.started_at_ms
    }

    /// When it ended, in milliseconds since 1970.
    pub fn finished_at_ms(&self) -> Option<u64> {
        self.outcome.as_ref().map(|_| self.last_at_ms)
    }

    /// When its last event was recorded, in milliseconds since 1970.
    pub fn last_at_ms(&self) -> u64 {
        self.last_at_ms
    }

    /// Number of its events: the sequence number of the next one.
    pub fn events(&self) -> u64 {
        self.next_sequence
    }

    /// SHA-256 of its last event.
    pub fn head(&self) -> Digest {
        self.head
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    pub(crate) fn superstep(&self) -> u64 {
        self.superstep
    }

    pub(crate) fn next_in_doubt(&self) -> Option<&Flight> {
        self.in_doubt.first().and_then(|task| self.flights.get(task))
    }

    pub(crate) fn next_retrying(&self) -> Option<&Task> {
        self.retrying.first()
    }

    /// Whether a task failed for good.
    pub(crate) fn has_failed(&self) -> bool {
        !self.failures.is_empty()
    }

    /// The failed node with the lowest index; of its tasks the first.
    pub(crate) fn first_failure(&self) -> Option<(&str, &Failure)> {
        let first = self.failures.iter().min_by_key(|(task, _)| task.node);
        first.map(|(task, failure)| (self.plan.nodes()[task.node].as_str(), failure))
    }

    pub(crate) fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    pub(crate) fn pinned(&self, node: usize) -> &PinnedNode {
        &self.manifest.nodes[node]
    }

    /// What a superstep opened now would dispatch; none if no node is due.
    pub(crate) fn demand(&self, at_ms: u64) -> Option<Demand> {
        let mut demand = Demand::default();
        for task in self.schedule.due(at_ms) {
            // A model's loop that was stopped by a budget goes on with its next effect.
            let node = if self.manifest.settles_loops() { self.executing(task) } else { task.node };
            let executor = &self.pinned(node).tool.executor;
            demand.effects += 1;
            demand.tool_calls += u64::from(matches!(executor, Executor::HostTool | Executor::Code { .. }));
            if let Executor::Code { runtime, .. } = executor {
                demand.fuel |= *runtime != Runtime::Native;
                demand.egress |= *runtime == Runtime::WasmIo;
            }
            if let Executor::Model { .. } = executor {
                (demand.egress, demand.model) = (true, true);
            }
        }
        (demand.effects > 0).then_some(demand)
    }

    /// Failed tasks that wait for their next attempt, in their order: static nodes, then fan-out tasks by path.
    pub(crate) fn backing_off(&self) -> impl Iterator<Item = BackingOff<'_>> {
        self.schedule.backing_off(self.last_at_ms).map(|(task, due_ms)| {
            let (node, attempt) = (self.plan.nodes()[task.node].as_str(), self.schedule.attempts(task) + 1);
            let left = self.plan.retries_of(node).saturating_sub(self.schedule.failures(task));
            // A fork of a run that was waiting waits since its own start.
            let since_ms = self.backing_off_since.get(task).copied().unwrap_or(self.started_at_ms);
            let attempts = attempt.saturating_add(left);
            BackingOff { node, task_path: &task.path, attempt, attempts, since_ms, due_ms }
        })
    }

    fn waits_for_people_only(&self) -> bool {
        self.cancel.is_none() && !self.flights.is_empty() && !self.is_active()
    }
}
