//! What a run froze that lies in the catalogue and goes with its export: the plan, its definitions, its code.

use std::collections::BTreeSet;

use content_digest::Digest;
use runner_core::{manifest::Manifest, pinned::Executor};

/// The plan, and what its nodes are bound to. A model is no grain: the manifest has all of it.
pub fn grains(manifest: &Manifest) -> BTreeSet<Digest> {
    let bound = manifest.nodes.iter().filter(|node| !matches!(node.tool.executor, Executor::Model { .. }));
    std::iter::once(manifest.plan_hash).chain(bound.map(|node| node.tool.definition)).collect()
}

/// The code of its nodes.
pub fn code(manifest: &Manifest) -> BTreeSet<Digest> {
    let code = manifest.nodes.iter().filter_map(|node| match &node.tool.executor {
        Executor::Code { digest, .. } => Some(*digest),
        Executor::HostTool | Executor::Person | Executor::ChildRun | Executor::Model { .. } => None,
    });
    code.collect()
}
