//! Resolves each node of a plan to what it will run, and refuses by name what cannot run here.

mod definition;
mod gates;

use std::{collections::BTreeMap, sync::Arc};

use content_digest::Digest;
use serde_json::Value;

use crate::{
    pinned::{PinnedNode, PinnedTool},
    plan::PlanDocument,
    refusal::{Refusal, RefusalCode},
    text::shown,
};

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
}

/// What resolution found.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolution {
    /// The nodes that could be resolved, in the plan's order; all of them when nothing is refused.
    pub nodes: Vec<PinnedNode>,
    /// Every refusal in the order in which a start meets them.
    pub refusals: Vec<Refusal>,
}

impl Resolution {
    /// The pinned nodes of a plan that may start.
    ///
    /// # Errors
    /// The first refusal.
    pub fn into_nodes(self) -> Result<Vec<PinnedNode>, Refusal> {
        match self.refusals.into_iter().next() {
            Some(refusal) => Err(refusal),
            None => Ok(self.nodes),
        }
    }
}

/// Resolves every node: first the shape of all, then the host's pins, then the code's presence, then its executors.
///
/// # Errors
/// The catalogue's own; what is wrong with the plan is in the [`Resolution`].
pub fn resolve<C: Catalogue>(
    plan: &PlanDocument,
    catalogue: &C,
    host: &HostProfile<'_>,
) -> Result<Resolution, C::Error> {
    let mut resolver = Resolver { catalogue, tools: BTreeMap::new() };
    let mut resolution = Resolution { nodes: Vec::new(), refusals: Vec::new() };
    for node in &plan.nodes {
        match resolver.resolve(plan, node)? {
            Ok(tool) => resolution.nodes.push(PinnedNode { node: node.clone(), tool }),
            Err(refusal) => resolution.refusals.push(refusal.at(node)),
        }
    }
    let pinned = &resolution.nodes;
    resolution.refusals.extend(pinned.iter().filter_map(|node| gates::pin(node, host)));
    for node in pinned {
        if let Some(digest) = gates::code_of(node)
            && !catalogue.has_blob(&digest)?
        {
            resolution.refusals.push(gates::absent_code(node, &digest));
        }
    }
    resolution.refusals.extend(pinned.iter().filter_map(|node| gates::executor(node, host)));
    Ok(resolution)
}

struct Resolver<'a, C> {
    catalogue: &'a C,
    /// Definitions read so far, by address: many nodes may share one.
    tools: BTreeMap<Digest, Result<Arc<PinnedTool>, Refusal>>,
}

impl<C: Catalogue> Resolver<'_, C> {
    fn resolve(&mut self, plan: &PlanDocument, node: &str) -> Result<Result<Arc<PinnedTool>, Refusal>, C::Error> {
        let hash = match plan.bindings.get(node) {
            Some(binding) => match binding.parse::<Digest>() {
                Ok(hash) => hash,
                Err(_) => return Ok(Err(bad_binding(node, binding))),
            },
            None => match self.catalogue.newest_definition(node)? {
                Some(hash) => hash,
                None => return Ok(Err(no_model(node))),
            },
        };
        if !self.tools.contains_key(&hash) {
            let tool = match self.catalogue.grain(&hash)? {
                Some(grain) => definition::read(node, hash, &grain).map(Arc::new),
                None => Err(not_found(node, &hash)),
            };
            self.tools.insert(hash, tool);
        }
        // A refusal's text names the node that met it first: read again for the others.
        Ok(match &self.tools[&hash] {
            Ok(tool) => Ok(Arc::clone(tool)),
            Err(_) => match self.catalogue.grain(&hash)? {
                Some(grain) => definition::read(node, hash, &grain).map(Arc::new),
                None => Err(not_found(node, &hash)),
            },
        })
    }
}

fn bad_binding(node: &str, binding: &str) -> Refusal {
    let text = format!(
        "node {} is bound to {}, which is no hash: bind it to the 64 hex digits that PutDefinition answered with",
        shown(node),
        shown(binding)
    );
    Refusal::new(RefusalCode::Unresolved, text).with("binding", binding)
}

fn not_found(node: &str, hash: &Digest) -> Refusal {
    let text =
        format!("node {} is bound to {hash}, which is not in the catalogue: store the definition first", shown(node));
    Refusal::new(RefusalCode::Unresolved, text).with("definition_hash", hash.to_hex())
}

fn no_model(node: &str) -> Refusal {
    let text = format!(
        "node {node} has no binding, there is no definition named {node} in the namespace, and no model is configured: \
         bind it to a definition, or store a definition of that name",
        node = shown(node)
    );
    Refusal::new(RefusalCode::NoModel, text)
}
