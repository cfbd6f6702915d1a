//! A plan: the checked form of a Workflow grain's fields.

mod check;
mod graph;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{condition::Condition, reducer::Reducer, refusal::Refusal};

pub use self::graph::Graph;

/// Longest node id, in bytes.
pub const NODE_ID_BYTES_MAX: usize = 256;

/// A plan as a grain or a manifest spells it, known to be sound: nodes unique, edges known, conditions parsed, every node
/// reachable, every cycle bounded.
#[derive(Debug, Clone)]
pub struct Plan {
    document: PlanDocument,
    conditions: Vec<Option<Condition>>,
    graph: Graph,
}

/// The fields of a plan that decide how it runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanDocument {
    /// Node ids; the first is the entry.
    pub nodes: Vec<String>,
    /// Edges in the order of their evaluation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<Edge>,
    /// Node → address of a definition, as the plan spells it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bindings: BTreeMap<String, String>,
    /// Node → re-attempts after the first failure, per generation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub retries: BTreeMap<String, u32>,
    /// State key → reducer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reducers: BTreeMap<String, Reducer>,
}

/// One edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    /// From this node.
    pub src: String,
    /// To that node.
    pub dst: String,
    /// When; absent is always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cond: Option<String>,
    /// How often it may fire in one run; absent is without bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cycles: Option<u32>,
}

impl Plan {
    /// Reads and checks the fields (long names) of a Workflow grain.
    ///
    /// # Errors
    /// Every problem, in the order in which a start meets them: `RUN-E019`, `RUN-E005`, `RUN-E003`, `RUN-E002`. The first
    /// is a start's refusal.
    pub fn from_fields(fields: &Value) -> Result<Self, Vec<Refusal>> {
        check::read(fields).and_then(Self::from_document)
    }

    /// Reads the fields without judging what they say together: enough to resolve each node of a plan that is otherwise wrong.
    ///
    /// # Errors
    /// `RUN-E019` for every field that cannot be read.
    pub fn read_document(fields: &Value) -> Result<PlanDocument, Vec<Refusal>> {
        check::read(fields)
    }

    /// Checks a document, such as a manifest's.
    ///
    /// # Errors
    /// Every problem, in order.
    pub fn from_document(document: PlanDocument) -> Result<Self, Vec<Refusal>> {
        check::check(document)
    }

    /// The document it was made from.
    pub fn document(&self) -> &PlanDocument {
        &self.document
    }

    /// The node ids; a node's index is its place here.
    pub fn nodes(&self) -> &[String] {
        &self.document.nodes
    }

    /// The edges; an edge's index is its place here.
    pub fn edges(&self) -> &[Edge] {
        &self.document.edges
    }

    /// A node's index.
    pub fn index_of(&self, node: &str) -> Option<usize> {
        self.graph.index_of(node)
    }

    /// Re-attempts that a node has per generation.
    pub fn retries_of(&self, node: &str) -> u32 {
        self.document.retries.get(node).copied().unwrap_or(0)
    }

    /// The reducer of a state key.
    pub fn reducer_of(&self, key: &str) -> Reducer {
        self.document.reducers.get(key).copied().unwrap_or_default()
    }

    /// The condition of an edge; none is always true.
    pub fn condition_of(&self, edge: usize) -> Option<&Condition> {
        self.conditions.get(edge).and_then(Option::as_ref)
    }

    /// Who leads to whom, by index.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }
}
