//! The tools that a model is offered: exactly the host tools that the plan pinned, each once.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::pinned::{NodeKind, PinnedNode, PinnedTool};

/// Longest name of a function, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// One tool.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Offer<'a> {
    /// Its name for the model: letters, digits, `_` and `-`, unique.
    pub(crate) name: String,
    /// Index of the first node that is bound to it.
    pub(crate) node: usize,
    pub(crate) tool: &'a PinnedTool,
}

/// The tools of a plan's nodes, in the plan's order.
pub(crate) fn offers(nodes: &[PinnedNode]) -> Vec<Offer<'_>> {
    let (mut seen, mut names) = (BTreeSet::new(), BTreeSet::new());
    let mut offers = Vec::new();
    for (node, pinned) in nodes.iter().enumerate() {
        if pinned.tool.kind() != NodeKind::Host || !seen.insert(pinned.tool.definition) {
            continue;
        }
        let base = pinned.tool.tool_name.replace('.', "_");
        let mut name = base.clone();
        let mut number = 1;
        while !names.insert(name.clone()) {
            number += 1;
            let suffix = format!("_{number}");
            name = format!("{}{suffix}", &base[..base.len().min(NAME_BYTES_MAX - suffix.len())]);
        }
        offers.push(Offer { name, node, tool: &pinned.tool });
    }
    offers
}

impl Offer<'_> {
    /// As a request has it.
    pub(crate) fn wire(&self) -> Value {
        let parameters = self.tool.input_schema.clone().unwrap_or_else(|| json!({"type": "object"}));
        let function = json!({"name": self.name, "description": self.tool.description, "parameters": parameters});
        json!({"type": "function", "function": function})
    }
}
