//! Which nodes are waiting, ready, done or dead: joins, dead paths, generations.
//!
//! A node *may still be reached* while any node that leads to it forward is unsettled. It is decided only when nothing leads
//! to it any more: ready if an in-edge fired, else dead. An edge that fires into a resolved node starts that node's next
//! generation and unsettles everything behind it, so that a join inside or behind a loop waits for the loop.

use std::collections::BTreeSet;

use super::{NodeStatus, Task};
use crate::plan::{Graph, Plan};

/// Progress of every node, by index.
#[derive(Debug)]
pub(crate) struct Schedule {
    nodes: Vec<Progress>,
    ready: BTreeSet<Task>,
    /// How often each edge fired.
    edge_fires: Vec<u32>,
}

#[derive(Debug, Clone)]
struct Progress {
    phase: Phase,
    /// Attempts so far; never restarts.
    attempts: u32,
    /// Failures in the present generation.
    failures: u32,
    /// Times that the node was started again by an edge.
    generation: u32,
    /// Whether an in-edge fired since the node last started.
    fired: bool,
    /// Forward in-edges whose source is unsettled.
    open_in: u32,
    /// Resolved, and nothing that leads here can start it again.
    settled: bool,
    /// Whether its last evaluation fired no out-edge.
    fired_none: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting,
    Ready { due_ms: u64 },
    Dispatched,
    Done,
    Failed,
    Dead,
}

impl Schedule {
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
                settled: false,
                fired_none: false,
            })
            .collect();
        let mut schedule = Self { nodes, ready: BTreeSet::new(), edge_fires: vec![0; plan.edges().len()] };
        schedule.make_ready(&Task::of_node(0), 0);
        schedule
    }

    pub(super) fn status(&self, node: usize, asks: bool) -> NodeStatus {
        match self.nodes[node].phase {
            Phase::Waiting => NodeStatus::Waiting,
            Phase::Ready { .. } => NodeStatus::Ready,
            Phase::Dispatched if asks => NodeStatus::AwaitingAnswer,
            Phase::Dispatched => NodeStatus::Dispatched,
            Phase::Done => NodeStatus::Done,
            Phase::Failed => NodeStatus::Failed,
            Phase::Dead => NodeStatus::Dead,
        }
    }

    /// Attempts of a task so far.
    pub(crate) fn attempts(&self, task: &Task) -> u32 {
        self.nodes[task.node].attempts
    }

    /// Failures of a task in its present generation.
    pub(crate) fn failures(&self, task: &Task) -> u32 {
        self.nodes[task.node].failures
    }

    /// Tasks that may be dispatched now, in their order.
    pub(crate) fn due(&self, at_ms: u64) -> impl Iterator<Item = &Task> {
        self.ready.iter().filter(move |task| match self.nodes[task.node].phase {
            Phase::Ready { due_ms } => due_ms <= at_ms,
            _ => false,
        })
    }

    /// When the next ready task may be dispatched, in milliseconds since 1970.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        let due = self.ready.iter().filter_map(|task| match self.nodes[task.node].phase {
            Phase::Ready { due_ms } => Some(due_ms),
            _ => None,
        });
        due.min()
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

    /// Takes the due tasks out of the ready ones.
    pub(super) fn take_due(&mut self, at_ms: u64) -> BTreeSet<Task> {
        let due: BTreeSet<Task> = self.due(at_ms).cloned().collect();
        for task in &due {
            self.ready.remove(task);
            self.nodes[task.node].phase = Phase::Dispatched;
        }
        due
    }

    /// Counts an attempt.
    pub(super) fn attempt(&mut self, task: &Task) {
        self.nodes[task.node].attempts += 1;
    }

    /// Counts a failure.
    pub(super) fn failed_once(&mut self, task: &Task) {
        self.nodes[task.node].failures += 1;
    }

    /// The task failed for good.
    pub(super) fn fail(&mut self, task: &Task) {
        self.nodes[task.node].phase = Phase::Failed;
    }

    /// The task may be dispatched from then on.
    pub(super) fn make_ready(&mut self, task: &Task, due_ms: u64) {
        self.nodes[task.node].phase = Phase::Ready { due_ms };
        self.ready.insert(task.clone());
    }

    /// Results of these nodes are merged and these edges fired: resolve, deliver, settle.
    pub(super) fn close(&mut self, plan: &Plan, done: impl Iterator<Item = usize>, fired: &[u32]) {
        let graph = plan.graph();
        let mut to_settle: Vec<usize> = Vec::new();
        for node in done {
            let progress = &mut self.nodes[node];
            progress.phase = Phase::Done;
            progress.fired_none = !graph.out(node).is_empty();
            to_settle.push(node);
        }
        for edge in fired {
            let edge = *edge as usize;
            let (source, destination) = graph.ends(edge);
            self.edge_fires[edge] = self.edge_fires[edge].saturating_add(1);
            self.nodes[source].fired_none = false;
            self.deliver(graph, destination);
            to_settle.push(destination);
        }
        self.settle(graph, to_settle);
    }

    /// An edge fired into the node; a resolved one starts its next generation.
    fn deliver(&mut self, graph: &Graph, node: usize) {
        let progress = &mut self.nodes[node];
        progress.fired = true;
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
                Phase::Ready { .. } | Phase::Dispatched | Phase::Failed => continue,
            }
            progress.settled = true;
            for behind in graph.forward_targets(node) {
                self.nodes[behind].open_in -= 1;
                stack.push(behind);
            }
        }
    }
}
