//! Resolves each node of a plan to what it will run, and refuses by name what cannot run here.

mod definition;
mod gates;
mod subgraph;

use std::{collections::BTreeMap, sync::Arc};

use content_digest::Digest;
use serde_json::Value;

use crate::{
    model::ModelPin,
    pinned::{PinnedNode, PinnedPlans, PinnedTool},
    plan::PlanDocument,
    refusal::{Refusal, RefusalCode},
    text::shown,
};

use self::subgraph::Subgraphs;

/// A grain as the catalogue holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct Grain {
    /// Its type's name, such as `tool` or `workflow`.
    pub grain_type: String,
    /// Its fields by their long names.
    pub fields: Value,
}

/// What resolution asks of the catalogue.
pub trait Catalogue {
    /// The catalogue itself failed.
    type Error;

    /// A grain by its address.
    fn grain(&self, hash: &Digest) -> Result<Option<Grain>, Self::Error>;

    /// The newest definition of a tool name in the plan's namespace.
    fn newest_definition(&self, tool_name: &str) -> Result<Option<Digest>, Self::Error>;

    /// Whether the blob is stored.
    fn has_blob(&self, digest: &Digest) -> Result<bool, Self::Error>;
}

/// What this host allows and offers. The answers are its operator's, never a plan's.
#[derive(Debug, Clone, Copy)]
pub struct HostProfile<'a> {
    /// Digests that may execute (`--allow-executor`).
    pub pins: &'a std::collections::BTreeSet<Digest>,
    /// Whether `--sandbox-url` is set.
    pub sandbox_url: bool,
    /// Whether `--sandbox-cmd` is set: executes modules, not native code.
    pub sandbox_cmd: bool,
    /// Whether `--tool-cmd` or `--tool-url` is set.
    pub host_tool: bool,
    /// The model of abstract nodes, if `--model-url` is set.
    pub model: Option<&'a ModelPin>,
}

/// What resolution found.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolution {
    /// The nodes that could be resolved, in the plan's order; all of them when nothing is refused.
    pub nodes: Vec<PinnedNode>,
    /// The plans below, whatever their depth; all of them when nothing is refused.
    pub plans: PinnedPlans,
    /// Levels of plans below.
    pub levels: usize,
    /// Every refusal in the order in which a start meets them. What is wrong within a subgraph names the plan's own node.
    pub refusals: Vec<Refusal>,
}

/// Everything that a plan was resolved to.
#[derive(Debug, Clone, PartialEq)]
pub struct Pinned {
    /// Its nodes, in its order.
    pub nodes: Vec<PinnedNode>,
    /// The plans below, whatever their depth.
    pub plans: PinnedPlans,
    /// Levels of plans below.
    pub levels: usize,
}

impl Resolution {
    /// What a plan that may start is resolved to.
    ///
    /// # Errors
    /// The first refusal.
    pub fn into_pinned(self) -> Result<Pinned, Refusal> {
        match self.refusals.into_iter().next() {
            Some(refusal) => Err(refusal),
            None => Ok(Pinned { nodes: self.nodes, plans: self.plans, levels: self.levels }),
        }
    }
}

/// Resolves every node, those of the plans below included: first the shape of all, then the host's pins, then the code's
/// presence, then its executors.
///
/// # Errors
/// The catalogue's own; what is wrong with the plan is in the [`Resolution`].
pub fn resolve<C: Catalogue>(
    plan: &PlanDocument,
    catalogue: &C,
    host: &HostProfile<'_>,
) -> Result<Resolution, C::Error> {
    let mut resolver =
        Resolver { catalogue, model: host.model, tools: BTreeMap::new(), subgraphs: Subgraphs::default() };
    let (nodes, mut refusals) = resolver.nodes(plan, 0)?;
    let subgraphs = resolver.subgraphs;
    refusals.extend(subgraphs.too_many(&nodes));
    refusals.extend(subgraphs.each(&nodes, &mut |node| Ok(gates::pin(node, host)))?);
    refusals.extend(subgraphs.each(&nodes, &mut |node| {
        let Some(digest) = gates::code_of(node) else { return Ok(None) };
        Ok(if catalogue.has_blob(&digest)? { None } else { Some(gates::absent_code(node, &digest)) })
    })?);
    refusals.extend(subgraphs.each(&nodes, &mut |node| Ok(gates::executor(node, host)))?);
    Ok(Resolution { levels: subgraphs.levels(&nodes), nodes, plans: subgraphs.into_plans(), refusals })
}

/// Asks the host again about nodes that were resolved before: pins, then the code's presence, then executors. For a fork, which
/// takes over what another run froze, but not what the host allowed then.
///
/// # Errors
/// The catalogue's own; the first refusal is the answer.
pub fn admit_again<'a, C: Catalogue>(
    nodes: impl Iterator<Item = &'a PinnedNode> + Clone,
    catalogue: &C,
    host: &HostProfile<'_>,
) -> Result<Option<Refusal>, C::Error> {
    if let Some(refusal) = nodes.clone().find_map(|node| gates::pin(node, host)) {
        return Ok(Some(refusal));
    }
    for node in nodes.clone() {
        if let Some(digest) = gates::code_of(node)
            && !catalogue.has_blob(&digest)?
        {
            return Ok(Some(gates::absent_code(node, &digest)));
        }
    }
    Ok(nodes.clone().find_map(|node| gates::executor(node, host)))
}

struct Resolver<'a, C> {
    catalogue: &'a C,
    model: Option<&'a ModelPin>,
    /// Definitions read so far, by address: many nodes may share one.
    tools: BTreeMap<Digest, Arc<PinnedTool>>,
    subgraphs: Subgraphs,
}

type Resolved = (Vec<PinnedNode>, Vec<Refusal>);

impl<C: Catalogue> Resolver<'_, C> {
    /// The shape of a plan's nodes, at this depth below the run's own plan.
    fn nodes(&mut self, plan: &PlanDocument, depth: usize) -> Result<Resolved, C::Error> {
        let (mut nodes, mut refusals) = (Vec::new(), Vec::new());
        for node in &plan.nodes {
            match self.node(plan, node, depth)? {
                Ok(tool) => nodes.push(PinnedNode { node: node.clone(), tool }),
                Err(refused) => refusals.extend(refused),
            }
        }
        Ok((nodes, refusals))
    }

    fn node(
        &mut self,
        plan: &PlanDocument,
        node: &str,
        depth: usize,
    ) -> Result<Result<Arc<PinnedTool>, Vec<Refusal>>, C::Error> {
        let one = |refusal: Refusal| Ok(Err(vec![refusal.at(node)]));
        let hash = match plan.bindings.get(node) {
            Some(binding) => match binding.parse::<Digest>() {
                Ok(hash) => hash,
                Err(_) => return one(bad_binding(node, binding)),
            },
            None => match self.catalogue.newest_definition(node)? {
                Some(hash) => hash,
                None => {
                    return match self.model {
                        Some(model) => Ok(Ok(Arc::new(PinnedTool::of_model(model)))),
                        None => one(no_model(node)),
                    };
                }
            },
        };
        // A refusal's text names the node that met it first: read again for the others.
        if let Some(tool) = self.tools.get(&hash) {
            return Ok(Ok(Arc::clone(tool)));
        }
        let tool = match self.catalogue.grain(&hash)? {
            None => Err(vec![not_found(node, &hash).at(node)]),
            Some(grain) if grain.grain_type == "workflow" => {
                // What is remembered of a plan is remembered with its depth.
                return Ok(self.subgraph(node, hash, &grain, depth)?.map(|()| Arc::new(PinnedTool::of_plan(hash))));
            }
            Some(grain) => definition::read(node, hash, &grain).map(Arc::new).map_err(|refusal| vec![refusal.at(node)]),
        };
        if let Ok(tool) = &tool {
            self.tools.insert(hash, Arc::clone(tool));
        }
        Ok(tool)
    }
}

fn bad_binding(node: &str, binding: &str) -> Refusal {
    let text = format!(
        "node {} is bound to {}, which is no hash: bind it to the 64 hex digits that PutDefinition or PutPlan answered with",
        shown(node),
        shown(binding)
    );
    Refusal::new(RefusalCode::Unresolved, text).with("binding", binding)
}

fn not_found(node: &str, hash: &Digest) -> Refusal {
    let text = format!(
        "node {} is bound to {hash}, which is not in the catalogue: store the definition or plan first",
        shown(node)
    );
    Refusal::new(RefusalCode::Unresolved, text).with("definition_hash", hash.to_hex())
}

fn no_model(node: &str) -> Refusal {
    let text = format!(
        "node {node} has no binding, there is no definition named {node} in the namespace, and no model is configured: \
         bind it to a definition, store a definition of that name, or start the runner with --model-url and --model",
        node = shown(node)
    );
    Refusal::new(RefusalCode::NoModel, text)
}
