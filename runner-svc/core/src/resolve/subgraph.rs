//! Plans below a plan: each is walked once, bounded in depth and number, and judged node by node like the plan above it.

use std::{collections::BTreeMap, sync::Arc};

use content_digest::Digest;

use super::{Catalogue, Grain, Resolver};
use crate::{
    child::plan_of,
    pinned::{PinnedNode, PinnedPlan, PinnedPlans, SUBGRAPH_DEPTH_MAX, SUBGRAPH_RUNS_MAX},
    plan::Plan,
    refusal::{Refusal, RefusalCode},
    text::shown,
};

/// The plans below a plan, as far as they were walked.
#[derive(Default)]
pub(super) struct Subgraphs {
    walked: BTreeMap<Digest, Walked>,
}

/// A plan that a node is bound to, walked to its leaves.
#[derive(Default)]
struct Walked {
    /// None where the plan's structure is refused.
    pinned: Option<Arc<PinnedPlan>>,
    refusals: Vec<Refusal>,
    /// Levels of plans below it.
    height: usize,
    /// Child runs that its run starts, over all levels, when every subgraph runs.
    runs: usize,
}

impl<C: Catalogue> Resolver<'_, C> {
    /// Walks the plan that `node`, in a plan at this depth, is bound to. A plan cannot contain itself: it would have to know
    /// its own hash.
    pub(super) fn subgraph(
        &mut self,
        node: &str,
        hash: Digest,
        grain: &Grain,
        depth: usize,
    ) -> Result<Result<(), Vec<Refusal>>, C::Error> {
        let depth = depth + 1;
        let height = self.subgraphs.walked.get(&hash).map_or(0, |walked| walked.height);
        if depth + height > SUBGRAPH_DEPTH_MAX {
            return Ok(Err(vec![too_deep(node, &hash)]));
        }
        if !self.subgraphs.walked.contains_key(&hash) {
            if self.subgraphs.walked.len() >= SUBGRAPH_RUNS_MAX {
                return Ok(Err(vec![too_many(SUBGRAPH_RUNS_MAX + 1).at(node)]));
            }
            let walked = self.walk(grain, depth)?;
            self.subgraphs.walked.insert(hash, walked);
        }
        let refusals = &self.subgraphs.walked[&hash].refusals;
        if refusals.is_empty() {
            return Ok(Ok(()));
        }
        Ok(Err(refusals.iter().map(|refusal| refusal.clone().within(node, &hash)).collect()))
    }

    fn walk(&mut self, grain: &Grain, depth: usize) -> Result<Walked, C::Error> {
        let plan = match Plan::from_fields(&grain.fields) {
            Ok(plan) => plan,
            Err(refusals) => return Ok(Walked { refusals, ..Walked::default() }),
        };
        let (nodes, refusals) = self.nodes(plan.document(), depth)?;
        let (height, runs) = (self.subgraphs.levels(&nodes), self.subgraphs.runs(&nodes));
        let pinned = Arc::new(PinnedPlan { plan: plan.document().clone(), nodes });
        Ok(Walked { pinned: Some(pinned), refusals, height, runs })
    }
}

impl Subgraphs {
    /// What is wrong with the number of child runs below these nodes.
    pub(super) fn too_many(&self, nodes: &[PinnedNode]) -> Option<Refusal> {
        let runs = self.runs(nodes);
        (runs > SUBGRAPH_RUNS_MAX).then(|| too_many(runs))
    }

    /// Asks `judge` of each node and, under the node that is bound to it, of each node of a plan below.
    pub(super) fn each<E>(
        &self,
        nodes: &[PinnedNode],
        judge: &mut dyn FnMut(&PinnedNode) -> Result<Option<Refusal>, E>,
    ) -> Result<Vec<Refusal>, E> {
        let mut refusals = Vec::new();
        // A tree over the bound is refused for that; it is not walked.
        let descends = self.runs(nodes) <= SUBGRAPH_RUNS_MAX;
        for node in nodes {
            refusals.extend(judge(node)?);
            let Some(hash) = plan_of(node).filter(|_| descends) else { continue };
            if let Some(plan) = self.walked.get(&hash).and_then(|walked| walked.pinned.as_ref()) {
                let inner = self.each(&plan.nodes, judge)?;
                refusals.extend(inner.into_iter().map(|refusal| refusal.within(&node.node, &hash)));
            }
        }
        Ok(refusals)
    }

    pub(super) fn into_plans(self) -> PinnedPlans {
        self.walked.into_iter().filter_map(|(hash, walked)| Some((hash, walked.pinned?))).collect()
    }

    /// Levels of plans below these nodes.
    pub(super) fn levels(&self, nodes: &[PinnedNode]) -> usize {
        let below = nodes.iter().filter_map(plan_of).filter_map(|hash| self.walked.get(&hash));
        below.map(|walked| walked.height + 1).max().unwrap_or_default()
    }

    fn runs(&self, nodes: &[PinnedNode]) -> usize {
        let below = nodes.iter().filter_map(plan_of).filter_map(|hash| self.walked.get(&hash));
        below.fold(0, |sum, walked| sum.saturating_add(1).saturating_add(walked.runs))
    }
}

fn too_deep(node: &str, hash: &Digest) -> Refusal {
    let text = format!(
        "node {} is bound to the plan {hash}, which goes below the {SUBGRAPH_DEPTH_MAX} levels of plans that a run may have: \
         flatten them",
        shown(node)
    );
    Refusal::new(RefusalCode::BadPlan, text).with("plan_hash", hash.to_hex()).at(node)
}

fn too_many(runs: usize) -> Refusal {
    let text = format!(
        "the plan has {runs} child runs when all of its subgraphs run, over all levels: use at most {SUBGRAPH_RUNS_MAX}"
    );
    Refusal::new(RefusalCode::BadPlan, text)
}
