//! How pinned nodes are written: they name their definition by its place, so that a definition bound often is written once.

use std::{collections::BTreeMap, sync::Arc};

use content_digest::Digest;
use serde::{Deserialize, Serialize};

use crate::{
    child::plan_of,
    pinned::{PinnedNode, PinnedPlan, PinnedPlans, PinnedTool},
    plan::PlanDocument,
};

/// Definitions, and for each node of the plan the place of its own.
pub(super) type Pins = (Vec<Arc<PinnedTool>>, Vec<usize>);

/// A pinned plan as it is written.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanPins {
    plan: PlanDocument,
    tools: Vec<Arc<PinnedTool>>,
    node_tools: Vec<usize>,
}

pub(super) fn of_nodes(nodes: Vec<PinnedNode>) -> Pins {
    let mut tools: Vec<Arc<PinnedTool>> = Vec::new();
    let mut places: BTreeMap<Digest, usize> = BTreeMap::new();
    let mut node_tools = Vec::with_capacity(nodes.len());
    for node in nodes {
        let place = *places.entry(node.tool.definition).or_insert_with(|| {
            tools.push(node.tool);
            tools.len() - 1
        });
        node_tools.push(place);
    }
    (tools, node_tools)
}

pub(super) fn nodes(plan: &PlanDocument, (tools, node_tools): &Pins) -> Result<Vec<PinnedNode>, String> {
    if node_tools.len() != plan.nodes.len() {
        return Err(format!("{} nodes but {} pinned", plan.nodes.len(), node_tools.len()));
    }
    let mut nodes = Vec::with_capacity(node_tools.len());
    for (node, place) in plan.nodes.iter().zip(node_tools) {
        let tool = tools.get(*place).ok_or_else(|| format!("there is no tool {place}"))?;
        nodes.push(PinnedNode { node: node.clone(), tool: Arc::clone(tool) });
    }
    Ok(nodes)
}

pub(super) fn of_plans(plans: &PinnedPlans) -> BTreeMap<Digest, PlanPins> {
    let written = plans.iter().map(|(hash, pinned)| {
        let (tools, node_tools) = of_nodes(pinned.nodes.clone());
        (*hash, PlanPins { plan: pinned.plan.clone(), tools, node_tools })
    });
    written.collect()
}

/// The plans below `nodes`. Each subgraph, there and among them, has its plan here.
pub(super) fn plans(written: BTreeMap<Digest, PlanPins>, above: &[PinnedNode]) -> Result<PinnedPlans, String> {
    let mut plans = PinnedPlans::new();
    for (hash, PlanPins { plan, tools, node_tools }) in written {
        let nodes = nodes(&plan, &(tools, node_tools)).map_err(|problem| format!("plan {hash}: {problem}"))?;
        plans.insert(hash, Arc::new(PinnedPlan { plan, nodes }));
    }
    let missing = |nodes: &[PinnedNode]| nodes.iter().filter_map(plan_of).find(|hash| !plans.contains_key(hash));
    match missing(above).or_else(|| plans.values().find_map(|pinned| missing(&pinned.nodes))) {
        Some(hash) => Err(format!("the plan {hash} of a subgraph is not pinned")),
        None => Ok(plans),
    }
}
