//! Child runs: what a subgraph's effect in flight is, derived from what its parent froze and from nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use content_digest::Digest;

use crate::{
    budget::Spent,
    event::Event,
    key::EffectKey,
    lineage::Lineage,
    manifest::{Manifest, ParentRun},
    outcome::{ChildUsage, EffectOutcome, Failure, FailureCause, FailureCode, RunOutcome, Usage},
    payload::Payload,
    pinned::{Executor, PinnedNode, PinnedPlans},
    run_id::RunId,
    state::State,
};

/// A child run as its parent's state makes it: the same whenever it is asked for, so that a crash between the parent's intent
/// and the child's start changes nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildRun {
    /// What it starts with: its plan and nodes from the parent's pins, its share of the parent's budgets, the same principal
    /// and initiator, the clock of the parent's intent.
    pub manifest: Manifest,
    /// Its input: the parent's state at dispatch.
    pub input: Payload,
    /// When the parent stops waiting for it, in milliseconds since 1970; none unless the parent's node has a timeout.
    pub deadline_ms: Option<u64>,
}

impl ChildRun {
    /// The child run of an effect in flight; none when the effect is no subgraph or not in flight.
    pub fn of(state: &State, key: &EffectKey) -> Option<Self> {
        let (flight, node, parent) = (state.flight(key)?, state.node_of(key)?, state.manifest());
        let pinned = parent.plans.get(&plan_of(node)?)?;
        let manifest = Manifest {
            run_id: parent.run_id.child(key),
            namespace: parent.namespace.clone(),
            plan_hash: node.tool.definition,
            plan: pinned.plan.clone(),
            nodes: pinned.nodes.clone(),
            plans: below(&pinned.nodes, &parent.plans),
            // It begins anew; who cannot answer asks is the same as in its parent.
            lineage: parent.lineage.as_ref().map(|lineage| Lineage { checkpoint: None, ..lineage.clone() }),
            parent: Some(ParentRun { run_id: parent.run_id.clone(), effect: key.clone() }),
            principal: parent.principal.clone(),
            initiator: parent.initiator.clone(),
            budgets: flight.allowance.unwrap_or_default(),
            on_dangling: parent.on_dangling,
            node_policies: Default::default(),
            wave_effects_max: parent.wave_effects_max,
            reserves_storage: parent.reserves_storage,
            ask_ttl_ms: parent.ask_ttl_ms,
            durability: parent.durability,
            policy_digest: parent.policy_digest,
            native_isolation: parent.native_isolation.clone(),
            input_digest: flight.input.digest(),
            engine_epoch: parent.engine_epoch,
            engine_version: parent.engine_version.clone(),
            started_at_ms: flight.since_ms,
        };
        let deadline_ms = parent.timeout_ms_of(&key.node).map(|timeout_ms| flight.since_ms.saturating_add(timeout_ms));
        Some(Self { manifest, input: flight.input.clone(), deadline_ms })
    }
}

/// Levels of plans below these nodes.
pub fn levels(nodes: &[PinnedNode], plans: &PinnedPlans) -> usize {
    let below = nodes.iter().filter_map(plan_of).filter_map(|plan| plans.get(&plan));
    below.map(|pinned| 1 + levels(&pinned.nodes, plans)).max().unwrap_or(0)
}

/// The run that a subgraph's effect is; none of another effect's.
pub fn run_id_of(parent: &RunId, key: &EffectKey) -> Option<RunId> {
    (key.kind == crate::key::EffectKind::Subgraph).then(|| parent.child(key))
}

/// Child runs that a run's events name, and where those that ended do.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Named(BTreeMap<RunId, Option<Digest>>);

impl Named {
    /// Takes an event of a run.
    pub fn take(&mut self, parent: &RunId, event: &Event) {
        match event {
            Event::IntentRecorded { key, .. } => {
                if let Some(child) = run_id_of(parent, key) {
                    self.0.entry(child).or_default();
                }
            }
            Event::ResultRecorded { key, usage: Usage { child: Some(usage), .. }, .. } => {
                if let Some(child) = run_id_of(parent, key) {
                    self.0.insert(child, Some(usage.head));
                }
            }
            _ => {}
        }
    }

    /// In order of their ids, each with the hash of its last event where the parent's journal vouches for it. One for which it
    /// does not may not have been started, and may go on.
    pub fn into_runs(self) -> impl Iterator<Item = (RunId, Option<Digest>)> {
        self.0.into_iter()
    }
}

/// A child run's end as the result of its parent's effect: its final state, or its own cause of failure.
pub fn result(run_id: &RunId, outcome: &RunOutcome, spent: Spent, head: Digest) -> (EffectOutcome, Usage) {
    let failed = |cause, code: Option<FailureCode>, permanent| {
        let reason = outcome.reason();
        let reason = code.and_then(|code| reason.strip_prefix(code.as_str())?.strip_prefix(": ")).unwrap_or(&reason);
        let failure = Failure::new(cause, &format!("child run {run_id}: {reason}"));
        EffectOutcome::Failed { failure: Failure { code, permanent, ..failure } }
    };
    let outcome = match outcome {
        RunOutcome::Completed { output } => EffectOutcome::Completed { output: output.clone() },
        RunOutcome::Failed { failure, .. } => failed(failure.cause, failure.code, failure.permanent),
        RunOutcome::Canceled { .. } => failed(FailureCause::UserAborted, Some(FailureCode::Canceled), true),
        RunOutcome::Stalled { .. } => failed(FailureCause::ExecutorError, Some(FailureCode::Stalled), false),
        RunOutcome::BudgetExhausted { .. } => {
            failed(FailureCause::ExecutorError, Some(FailureCode::BudgetExhausted), true)
        }
    };
    (outcome, Usage { child: Some(ChildUsage { spent, head }), ..Usage::default() })
}

/// The plan that a node is bound to; none unless it is a subgraph.
pub(crate) fn plan_of(node: &PinnedNode) -> Option<Digest> {
    (node.tool.executor == Executor::ChildRun).then_some(node.tool.definition)
}

/// Those of the plans that are below these nodes.
fn below(nodes: &[PinnedNode], plans: &PinnedPlans) -> PinnedPlans {
    let mut found = PinnedPlans::new();
    let mut to_see: BTreeSet<Digest> = nodes.iter().filter_map(plan_of).collect();
    while let Some(hash) = to_see.pop_first() {
        let Some(pinned) = plans.get(&hash) else { continue };
        if found.insert(hash, Arc::clone(pinned)).is_none() {
            to_see.extend(pinned.nodes.iter().filter_map(plan_of));
        }
    }
    found
}
