//! Which tasks are waiting, ready, done or dead: joins, dead paths, generations, fan-out.
//!
//! A node *may still be reached* while any node that leads to it forward is unsettled. It is decided only when nothing leads
//! to it any more: ready if an in-edge fired, else dead. An edge that fires into a resolved node starts that node's next
//! generation and unsettles everything behind it, so that a join inside or behind a loop waits for the loop.
//!
//! A node to which tasks are sent is executed by them: like a firing edge they start its next generation if it is resolved,
//! but they do not wait for its other in-edges, and an edge that fires into it before they all settled starts nothing more.
//! Where the node itself is to be tried again at that time, it is complete when both have settled.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{NodeStatus, Task, closing::Closing, parts::Parts};
use crate::{
    fan_out::Send,
    plan::{Graph, Plan},
};

/// Progress of every node, by index, and of every fan-out task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Schedule {
    nodes: Vec<Progress>,
    parts: Parts,
    ready: BTreeSet<Task>,
    /// How often each edge fired.
    edge_fires: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Progress {
    phase: Phase,
    /// Attempts so far; never restarts.
    attempts: u32,
    /// Failures in the present generation.
    failures: u32,
    /// Times that the node was started again, by an edge or by tasks.
    generation: u32,
    /// Whether an in-edge fired since the node last started.
    fired: bool,
    /// Forward in-edges whose source is unsettled.
    open_in: u32,
    /// Tasks of this node that have not settled.
    parts: usize,
    /// Resolved, and nothing that leads here can start it again.
    settled: bool,
    /// Whether its last evaluation fired no out-edge.
    fired_none: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    Waiting,
    Ready {
        due_ms: u64,
    },
    Dispatched,
    /// Only its tasks are waited for.
    Parts,
    Done,
    Failed,
    Dead,
}

impl Schedule {
    /// Whether it could be one of the plan's: for every node and edge, and no task of another node.
    pub(super) fn is_of(&self, plan: &Plan) -> bool {
        self.nodes.len() == plan.nodes().len()
            && self.edge_fires.len() == plan.edges().len()
            && self.ready.iter().chain(self.parts.tasks()).all(|task| self.knows(task))
    }

    /// Whether it has such a task.
    pub(super) fn knows(&self, task: &Task) -> bool {
        task.node < self.nodes.len() && (task.is_static() || self.parts.get(task).is_some())
    }

    /// Before the first superstep: the entry is ready, all else waits.
    pub(super) fn new(plan: &Plan) -> Self {
        let graph = plan.graph();
        let nodes = (0..plan.nodes().len())
            .map(|node| Progress {
                phase: Phase::Waiting,
                attempts: 0,
                failures: 0,
                generation: 0,
                fired: false,
                open_in: graph.forward_in(node),
                parts: 0,
                settled: false,
                fired_none: false,
            })
            .collect();
        let edge_fires = vec![0; plan.edges().len()];
        let mut schedule = Self { nodes, parts: Parts::default(), ready: BTreeSet::new(), edge_fires };
        schedule.make_ready(&Task::of_node(0), 0);
        schedule
    }

    pub(super) fn status(&self, node: usize, asks: bool) -> NodeStatus {
        match self.nodes[node].phase {
            Phase::Waiting => NodeStatus::Waiting,
            Phase::Ready { .. } => NodeStatus::Ready,
            Phase::Dispatched if asks => NodeStatus::AwaitingAnswer,
            Phase::Dispatched | Phase::Parts => NodeStatus::Dispatched,
            Phase::Done => NodeStatus::Done,
            Phase::Failed => NodeStatus::Failed,
            Phase::Dead => NodeStatus::Dead,
        }
    }

    /// The fan-out tasks that have not settled.
    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Attempts of a task so far.
    pub(crate) fn attempts(&self, task: &Task) -> u32 {
        if task.is_static() {
            return self.nodes[task.node].attempts;
        }
        self.parts.get(task).map_or(0, |part| part.attempts)
    }

    /// Failures of a task in its present generation.
    pub(crate) fn failures(&self, task: &Task) -> u32 {
        if task.is_static() {
            return self.nodes[task.node].failures;
        }
        self.parts.get(task).map_or(0, |part| part.failures)
    }

    /// Tasks that may be dispatched now, in their order.
    pub(crate) fn due(&self, at_ms: u64) -> impl Iterator<Item = &Task> {
        self.ready.iter().filter(move |task| self.due_ms(task).is_some_and(|due_ms| due_ms <= at_ms))
    }

    /// When the next ready task may be dispatched, in milliseconds since 1970.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        self.ready.iter().filter_map(|task| self.due_ms(task)).min()
    }

    /// Tasks that may not be dispatched before a time that has not come at `at_ms`, in their order, with that time.
    pub(super) fn backing_off(&self, at_ms: u64) -> impl Iterator<Item = (&Task, u64)> {
        let due = self.ready.iter().filter_map(|task| Some((task, self.due_ms(task)?)));
        due.filter(move |(_, due_ms)| *due_ms > at_ms)
    }

    fn due_ms(&self, task: &Task) -> Option<u64> {
        if !task.is_static() {
            return self.parts.get(task).map(|part| part.due_ms);
        }
        match self.nodes[task.node].phase {
            Phase::Ready { due_ms } => Some(due_ms),
            _ => None,
        }
    }

    /// Whether an edge has fired as often as it may.
    pub(super) fn is_spent(&self, plan: &Plan, edge: usize) -> bool {
        plan.edges()[edge].max_cycles.is_some_and(|max| self.edge_fires[edge] >= max)
    }

    /// Whether a node after which nothing comes is done.
    pub(crate) fn reached_an_end(&self, graph: &Graph) -> bool {
        (0..self.nodes.len()).any(|node| self.nodes[node].phase == Phase::Done && graph.is_terminal(node))
    }

    /// The first done node that fired none of its out-edges.
    pub(crate) fn stalled_at(&self) -> Option<usize> {
        (0..self.nodes.len()).find(|node| self.nodes[*node].phase == Phase::Done && self.nodes[*node].fired_none)
    }

    /// The nodes that are complete, by index, once these tasks have settled and these are made.
    pub(super) fn completed<'a>(
        &self,
        settled: impl Iterator<Item = &'a Task>,
        made: impl Iterator<Item = &'a Send>,
    ) -> Vec<usize> {
        let mut open: BTreeMap<usize, Open> = BTreeMap::new();
        for task in settled {
            let progress = &self.nodes[task.node];
            let open =
                open.entry(task.node).or_insert(Open { itself: progress.phase != Phase::Parts, parts: progress.parts });
            if task.is_static() {
                open.itself = false;
            } else {
                open.parts = open.parts.saturating_sub(1);
            }
        }
        for send in made {
            if let Some(open) = open.get_mut(&send.node) {
                open.parts += 1;
            }
        }
        open.into_iter().filter(|(_, open)| !open.itself && open.parts == 0).map(|(node, _)| node).collect()
    }

    /// Takes the due tasks out of the ready ones.
    pub(super) fn take_due(&mut self, at_ms: u64) -> BTreeSet<Task> {
        let due: BTreeSet<Task> = self.due(at_ms).cloned().collect();
        for task in &due {
            self.ready.remove(task);
            if task.is_static() {
                self.nodes[task.node].phase = Phase::Dispatched;
            }
        }
        due
    }

    /// Counts an attempt.
    pub(super) fn attempt(&mut self, task: &Task) {
        *self.attempts_mut(task) += 1;
    }

    fn attempts_mut(&mut self, task: &Task) -> &mut u32 {
        match self.parts.get_mut(task) {
            Some(part) => &mut part.attempts,
            None => &mut self.nodes[task.node].attempts,
        }
    }

    /// Counts a failure.
    pub(super) fn failed_once(&mut self, task: &Task) {
        match self.parts.get_mut(task) {
            Some(part) => part.failures += 1,
            None => self.nodes[task.node].failures += 1,
        }
    }

    /// The task failed for good.
    pub(super) fn fail(&mut self, task: &Task) {
        self.nodes[task.node].phase = Phase::Failed;
    }

    /// The task may be dispatched from then on.
    pub(super) fn make_ready(&mut self, task: &Task, due_ms: u64) {
        match self.parts.get_mut(task) {
            Some(part) => part.due_ms = due_ms,
            None => self.nodes[task.node].phase = Phase::Ready { due_ms },
        }
        self.ready.insert(task.clone());
    }

    /// The results of these tasks are merged, with the tasks that they ask for, and these edges fired: resolve, send, deliver,
    /// settle.
    pub(super) fn close(&mut self, plan: &Plan, settled: BTreeMap<Task, Vec<Send>>, closing: &Closing) {
        let graph = plan.graph();
        let mut senders = BTreeSet::new();
        for (task, sends) in settled {
            let (parent, depth) = self.take_settled(plan, &task);
            for send in sends {
                senders.insert(task.node);
                self.send(graph, &parent, depth, send);
            }
        }
        let mut to_settle: Vec<usize> = Vec::new();
        for node in &closing.completed {
            let progress = &mut self.nodes[*node];
            progress.phase = Phase::Done;
            progress.fired_none = !graph.out(*node).is_empty() && !senders.contains(node);
            to_settle.push(*node);
        }
        for edge in &closing.fired {
            let edge = *edge as usize;
            let (source, destination) = graph.ends(edge);
            self.edge_fires[edge] = self.edge_fires[edge].saturating_add(1);
            self.nodes[source].fired_none = false;
            self.deliver(graph, destination);
            to_settle.push(destination);
        }
        self.settle(graph, to_settle);
    }

    /// The task is settled; what its tasks are named after, and how deep they lie.
    fn take_settled(&mut self, plan: &Plan, task: &Task) -> (String, usize) {
        let progress = &mut self.nodes[task.node];
        if task.is_static() {
            progress.phase = Phase::Parts;
            return (plan.nodes()[task.node].clone(), 1);
        }
        progress.parts = progress.parts.saturating_sub(1);
        let depth = self.parts.get(task).map_or(0, |part| part.depth);
        self.parts.remove(task);
        (task.path.clone(), depth + 1)
    }

    /// A task for a node; a resolved one starts its next generation.
    fn send(&mut self, graph: &Graph, parent: &str, depth: usize, send: Send) {
        let node = send.node;
        let task = self.parts.make(parent, depth, send);
        self.restart(graph, node);
        let progress = &mut self.nodes[node];
        progress.parts += 1;
        if progress.phase == Phase::Waiting {
            progress.phase = Phase::Parts;
        }
        self.ready.insert(task);
    }

    /// An edge fired into the node; a resolved one starts its next generation.
    fn deliver(&mut self, graph: &Graph, node: usize) {
        self.nodes[node].fired = true;
        self.restart(graph, node);
    }

    /// A resolved node starts its next generation.
    fn restart(&mut self, graph: &Graph, node: usize) {
        let progress = &mut self.nodes[node];
        if matches!(progress.phase, Phase::Done | Phase::Dead) {
            progress.phase = Phase::Waiting;
            progress.generation += 1;
            progress.failures = 0;
            self.unsettle(graph, node);
        }
    }

    /// The node is not settled any more, and so is nothing behind it.
    fn unsettle(&mut self, graph: &Graph, node: usize) {
        let mut stack = vec![node];
        while let Some(node) = stack.pop() {
            if !std::mem::take(&mut self.nodes[node].settled) {
                continue;
            }
            for behind in graph.forward_targets(node) {
                self.nodes[behind].open_in += 1;
                stack.push(behind);
            }
        }
    }

    /// Decides every node to which nothing leads any more, and what follows from that.
    fn settle(&mut self, graph: &Graph, mut stack: Vec<usize>) {
        while let Some(node) = stack.pop() {
            let progress = &mut self.nodes[node];
            if progress.settled || progress.open_in > 0 {
                continue;
            }
            match progress.phase {
                Phase::Waiting if std::mem::take(&mut progress.fired) => {
                    self.make_ready(&Task::of_node(node), 0);
                    continue;
                }
                Phase::Waiting => progress.phase = Phase::Dead,
                Phase::Done | Phase::Dead => {}
                Phase::Ready { .. } | Phase::Dispatched | Phase::Parts | Phase::Failed => continue,
            }
            progress.settled = true;
            for behind in graph.forward_targets(node) {
                self.nodes[behind].open_in -= 1;
                stack.push(behind);
            }
        }
    }
}

/// What of a node has not settled.
struct Open {
    itself: bool,
    parts: usize,
}
