//! Why a start is refused: a stable code, the node, and a text that names the value and says what to do.

use std::{collections::BTreeMap, fmt};

/// What a refusal at start is about. Append-only; each has one stable code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalCode {
    /// A cycle without any `max_cycles` edge.
    UnboundedCycle,
    /// Nodes that the entry cannot reach.
    UnreachableNodes,
    /// A binding or definition that does not exist, or is not what its place asks for.
    Unresolved,
    /// A condition that does not parse.
    BadCondition,
    /// An abstract node and no model.
    NoModel,
    /// The input is over its size cap.
    TooLarge,
    /// A code, runtime, capability, pin or executor gate.
    ExecutorRefused,
    /// The plan's structure.
    BadPlan,
    /// The run's id.
    BadRunId,
    /// The input is no JSON, or an option of the run is malformed.
    InvalidArgument,
}

impl RefusalCode {
    /// The stable code (`RUN-E0xx`), or the reason's name where there is no such code.
    pub fn code(self) -> &'static str {
        match self {
            Self::UnboundedCycle => "RUN-E002",
            Self::UnreachableNodes => "RUN-E003",
            Self::Unresolved => "RUN-E004",
            Self::BadCondition => "RUN-E005",
            Self::NoModel => "RUN-E006",
            Self::TooLarge => "RUN-E015",
            Self::ExecutorRefused => "RUN-E018",
            Self::BadPlan => "RUN-E019",
            Self::BadRunId => "RUN-E020",
            Self::InvalidArgument => "INVALID_ARGUMENT",
        }
    }
}

/// One reason why a plan does not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What it is about.
    pub code: RefusalCode,
    /// The node it is about, where it is about one.
    pub node: Option<String>,
    /// What is wrong and what to do; without the code.
    pub text: String,
    /// The offending values by name, for machines.
    pub metadata: BTreeMap<String, String>,
}

impl Refusal {
    /// A refusal of the plan or the request as a whole.
    pub fn new(code: RefusalCode, text: impl Into<String>) -> Self {
        Self { code, node: None, text: text.into(), metadata: BTreeMap::new() }
    }

    /// Names the node.
    #[must_use]
    pub fn at(mut self, node: &str) -> Self {
        self.node = Some(node.to_owned());
        self
    }

    /// The same of a node of a plan, as it is told of the node that is bound to the plan.
    #[must_use]
    pub fn within(self, outer: &str, plan: &content_digest::Digest) -> Self {
        let text = format!("node {} runs the plan {plan}: {}", crate::text::shown(outer), self.text);
        let inner = self.node.clone();
        let outer = Self { text, ..self }.at(outer).with("plan_hash", plan.to_hex());
        inner.into_iter().fold(outer, |refusal, inner| refusal.with("inner_node", inner))
    }

    /// Adds an offending value, cut to 256 bytes.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl AsRef<str>) -> Self {
        self.metadata.insert(name.to_owned(), crate::text::cut(value.as_ref(), 256));
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.code(), self.text)
    }
}

impl std::error::Error for Refusal {}
