//! What a run did, superstep by superstep, in the words of its plan: so that runs of two plans can be laid side by side.

use std::collections::{BTreeMap, BTreeSet};

use super::{Difference, DifferenceKind};
use crate::{
    entry::Entry,
    event::{Event, Fired},
    plan::Plan,
};

/// What happened in each superstep.
#[derive(Debug, Default)]
pub(super) struct Trace {
    steps: BTreeMap<u64, Step>,
    open: u64,
}

#[derive(Debug, Default)]
struct Step {
    /// Nodes that were executed, asked or refused.
    nodes: BTreeSet<String>,
    /// Edges that fired, from and to.
    edges: BTreeSet<(String, String)>,
    closed: bool,
}

impl Trace {
    pub(super) fn take(&mut self, plan: &Plan, entry: &Entry) {
        match entry.event() {
            Event::SuperstepOpened { superstep } => {
                self.open = *superstep;
                self.steps.entry(*superstep).or_default();
            }
            Event::IntentRecorded { key, .. } | Event::AskRaised { key, .. } | Event::InputRefused { key, .. } => {
                self.steps.entry(self.open).or_default().nodes.insert(key.node.clone());
            }
            Event::SuperstepClosed { superstep, fired, .. } => {
                let step = self.steps.entry(*superstep).or_default();
                step.closed = true;
                let edges = edges_of(fired);
                let named = edges.iter().filter_map(|edge| plan.edges().get(*edge as usize));
                step.edges.extend(named.map(|edge| (edge.src.clone(), edge.dst.clone())));
            }
            _ => {}
        }
    }
}

fn edges_of(fired: &Fired) -> Vec<u32> {
    match fired {
        Fired::Here(edges) => edges.clone(),
        // Written by this crate as a list of numbers.
        Fired::Beside(edges) => serde_json::from_str(edges.text()).unwrap_or_default(),
    }
}

/// Lays two runs side by side. Of a candidate that `stopped` what it did not come to is no difference.
pub(super) fn compare(recorded: &Trace, candidate: &Trace, stopped: bool) -> Vec<Difference> {
    let supersteps: BTreeSet<u64> = recorded.steps.keys().chain(candidate.steps.keys()).copied().collect();
    let nothing = Step::default();
    let mut differences = Vec::new();
    for superstep in supersteps {
        let then = recorded.steps.get(&superstep).unwrap_or(&nothing);
        let now = candidate.steps.get(&superstep).unwrap_or(&nothing);
        let node = |kind, node: &String, words: &str| Difference {
            kind,
            superstep,
            node: Some(node.clone()),
            edge: None,
            detail: format!("node {} {words} in superstep {superstep}", crate::text::shown(node)),
        };
        let edge = |kind, edge: &(String, String), words: &str| Difference {
            kind,
            superstep,
            node: None,
            edge: Some(edge.clone()),
            detail: format!(
                "the edge {} -> {} {words} after superstep {superstep}",
                crate::text::shown(&edge.0),
                crate::text::shown(&edge.1)
            ),
        };
        let runs = now.nodes.difference(&then.nodes);
        differences.extend(runs.map(|name| node(DifferenceKind::NodeRuns, name, "runs, and did not run")));
        let fires = now.edges.difference(&then.edges);
        differences.extend(fires.map(|name| edge(DifferenceKind::EdgeFires, name, "fires, and did not")));
        if stopped && !now.closed {
            continue;
        }
        let rests = then.nodes.difference(&now.nodes);
        differences.extend(rests.map(|name| node(DifferenceKind::NodeDoesNotRun, name, "does not run, and ran")));
        let rests = then.edges.difference(&now.edges);
        differences.extend(rests.map(|name| edge(DifferenceKind::EdgeDoesNotFire, name, "does not fire, and fired")));
    }
    differences
}
