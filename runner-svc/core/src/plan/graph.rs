//! A plan's graph by index: out-edges in declaration order, and which edges lead back.

use std::collections::BTreeMap;

use super::PlanDocument;

/// Who leads to whom. Built once per plan.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    indexes: BTreeMap<String, usize>,
    /// (source, destination) of each edge.
    ends: Vec<(usize, usize)>,
    /// Indexes of each node's out-edges, in declaration order.
    out: Vec<Vec<usize>>,
    /// Whether each edge leads back to a node from which its source was reached.
    back: Vec<bool>,
    /// Number of in-edges of each node that do not lead back.
    forward_in: Vec<u32>,
}

impl Graph {
    /// Builds the graph. Edges naming an unknown node are left out: the caller has refused them already.
    pub(super) fn of(document: &PlanDocument) -> Self {
        let indexes: BTreeMap<String, usize> =
            document.nodes.iter().enumerate().map(|(index, node)| (node.clone(), index)).collect();
        let ends: Vec<(usize, usize)> = document
            .edges
            .iter()
            .filter_map(|edge| Some((*indexes.get(&edge.src)?, *indexes.get(&edge.dst)?)))
            .collect();
        let mut out = vec![Vec::new(); document.nodes.len()];
        for (edge, (source, _)) in ends.iter().enumerate() {
            out[*source].push(edge);
        }
        let mut graph = Self { indexes, back: vec![false; ends.len()], forward_in: vec![0; out.len()], ends, out };
        graph.mark_back_edges();
        for (edge, (_, destination)) in graph.ends.iter().enumerate() {
            if !graph.back[edge] {
                graph.forward_in[*destination] += 1;
            }
        }
        graph
    }

    /// A node's index.
    pub fn index_of(&self, node: &str) -> Option<usize> {
        self.indexes.get(node).copied()
    }

    /// Source and destination of an edge.
    pub fn ends(&self, edge: usize) -> (usize, usize) {
        self.ends[edge]
    }

    /// Out-edges of a node, in declaration order.
    pub fn out(&self, node: usize) -> &[usize] {
        &self.out[node]
    }

    /// Destinations of a node's out-edges that do not lead back.
    pub fn forward_targets(&self, node: usize) -> impl Iterator<Item = usize> {
        self.out[node].iter().filter(|edge| !self.back[**edge]).map(|edge| self.ends[*edge].1)
    }

    /// Number of a node's in-edges that do not lead back.
    pub fn forward_in(&self, node: usize) -> u32 {
        self.forward_in[node]
    }

    /// Whether nothing comes after the node: it has no out-edge but such that lead back.
    pub fn is_terminal(&self, node: usize) -> bool {
        self.forward_targets(node).next().is_none()
    }

    /// Nodes that the entry cannot reach, by index.
    pub(super) fn unreachable(&self) -> Vec<usize> {
        let mut seen = vec![false; self.out.len()];
        let mut stack = vec![0];
        while let Some(node) = stack.pop() {
            if seen.get(node).is_none_or(|seen| *seen) {
                continue;
            }
            seen[node] = true;
            stack.extend(self.out[node].iter().map(|edge| self.ends[*edge].1));
        }
        (0..seen.len()).filter(|node| !seen[*node]).collect()
    }

    /// The nodes of one cycle that has only edges for which `counts` holds, in their order.
    pub(super) fn cycle(&self, counts: impl Fn(usize) -> bool) -> Option<Vec<usize>> {
        let mut visit = Visit::new(self.out.len());
        for root in 0..self.out.len() {
            if let Some((node, _)) = visit.from(self, root, &counts) {
                let begin = visit.path.iter().position(|(on_path, _)| *on_path == node).unwrap_or(0);
                return Some(visit.path[begin..].iter().map(|(node, _)| *node).collect());
            }
        }
        None
    }

    /// Classifies edges depth first from the entry, in declaration order.
    fn mark_back_edges(&mut self) {
        let mut back = vec![false; self.ends.len()];
        let mut visit = Visit::new(self.out.len());
        for root in 0..self.out.len() {
            while let Some((_, edge)) = visit.from(self, root, &|_| true) {
                back[edge] = true;
            }
        }
        self.back = back;
    }
}

/// A depth-first walk that stops at each edge leading back and can be taken up again. Without recursion: plans may be deep.
struct Visit {
    seen: Vec<bool>,
    on_path: Vec<bool>,
    /// The nodes from the root to here, each with the number of its out-edges already walked.
    path: Vec<(usize, usize)>,
}

impl Visit {
    fn new(nodes: usize) -> Self {
        Self { seen: vec![false; nodes], on_path: vec![false; nodes], path: Vec::new() }
    }

    /// Walks on from `root`, or from where the last call stopped; gives the next edge that leads back, with its destination.
    fn from(&mut self, graph: &Graph, root: usize, counts: &impl Fn(usize) -> bool) -> Option<(usize, usize)> {
        if self.path.is_empty() {
            self.enter(root);
        }
        while let Some((node, walked)) = self.path.last_mut() {
            let Some(edge) = graph.out[*node].get(*walked).copied() else {
                self.on_path[*node] = false;
                self.path.pop();
                continue;
            };
            *walked += 1;
            let destination = graph.ends[edge].1;
            if !counts(edge) {
                continue;
            }
            if self.on_path[destination] {
                return Some((destination, edge));
            }
            self.enter(destination);
        }
        None
    }

    fn enter(&mut self, node: usize) {
        if !self.seen[node] {
            self.seen[node] = true;
            self.on_path[node] = true;
            self.path.push((node, 0));
        }
    }
}
