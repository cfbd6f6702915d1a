//! The manifest: everything a run froze at start. Its digest is the SHA-256 of its JSON text.

mod pins;

use std::{collections::BTreeMap, sync::Arc};

use content_digest::Digest;
use serde::{Deserialize, Serialize};

use self::pins::PlanPins;
use crate::{
    budget::Budgets,
    key::EffectKey,
    lineage::Lineage,
    model::ModelPin,
    payload::Payload,
    pinned::{Executor, PinnedNode, PinnedPlans, PinnedTool},
    plan::PlanDocument,
    retry::Backoff,
    run_id::RunId,
};

/// Number of the rules by which this crate decides. A journal is driven and verified by the epoch that wrote it.
pub const ENGINE_EPOCH: u32 = 1;

/// Most effects that a run has in flight at once, asks not counted: one commit holds the intents of all of them.
pub const WAVE_EFFECTS_MAX: u32 = 1024;

/// What a run froze at start; nothing re-resolves it later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Document", into = "Document")]
pub struct Manifest {
    /// The run.
    pub run_id: RunId,
    /// Its namespace.
    pub namespace: String,
    /// Address of the plan.
    pub plan_hash: Digest,
    /// The plan itself.
    pub plan: PlanDocument,
    /// The pinned nodes, in the plan's order.
    pub nodes: Vec<PinnedNode>,
    /// The plans of its child runs, whatever their depth: a child run takes its own from here and resolves nothing.
    pub plans: PinnedPlans,
    /// The run that it is a part of; none for a run that a caller started.
    pub parent: Option<ParentRun>,
    /// The run that it goes on from; none unless it is a fork.
    pub lineage: Option<Lineage>,
    /// Who started it.
    pub principal: String,
    /// On whose behalf, when that is someone else.
    pub initiator: Option<String>,
    /// Bounds of the run.
    pub budgets: Budgets,
    /// What to do with an effect that was in flight at a crash.
    pub on_dangling: OnDangling,
    /// Per node: timeout, delay between attempts.
    pub node_policies: BTreeMap<String, NodePolicy>,
    /// How long an ask may stay open, in milliseconds; none for no end.
    pub ask_ttl_ms: Option<u64>,
    /// Most effects of one wave, asks not counted; a new run has [`WAVE_EFFECTS_MAX`]. None by the rules of release 0.1: all
    /// at once, each with the whole rest of the budgets.
    pub wave_effects_max: Option<u32>,
    /// Whether effects reserve what they may write into the journal; a new run's do. The runs of release 0.1 only look
    /// whether any is left.
    pub reserves_storage: bool,
    /// What a commit survives.
    pub durability: Durability,
    /// Digest of the broker's policy at start; none without a broker.
    pub policy_digest: Option<Digest>,
    /// What isolated native blobs at the start, by the names that the sandbox has for it; of several sandboxes what all have.
    /// Empty for a run without them, and when none said so.
    pub native_isolation: Vec<String>,
    /// Digest of the input as it was merged into the state.
    pub input_digest: Digest,
    /// The rules by which it is decided: [`ENGINE_EPOCH`].
    pub engine_epoch: u32,
    /// Version of the runner that started it.
    pub engine_version: String,
    /// Wall clock of the start, in milliseconds since 1970.
    pub started_at_ms: u64,
}

/// The effect of another run that a child run is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParentRun {
    /// The parent.
    pub run_id: RunId,
    /// Its effect, of kind `subgraph`.
    pub effect: EffectKey,
}

impl ParentRun {
    /// By what name it pauses, resumes and cancels its child runs: no principal has one with a space.
    pub fn name(&self) -> String {
        format!("run {}", self.run_id.as_str())
    }
}

/// What a principal has to do with a run whose asks it cannot answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tie {
    /// It started the run.
    Starter,
    /// The run was started on its behalf.
    Initiator,
    /// The run is a fork, and a run before it was started by it or on its behalf.
    Before,
}

/// What to do with an effect that was in flight at a crash. Append-only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDangling {
    /// Send it again with the same idempotency key.
    #[default]
    Redispatch,
    /// Fail the run (`RUN-E008`).
    Fail,
    /// Ask a person, who decides: send it again, let it fail, or say what its result was.
    Ask,
}

/// What a commit survives. Append-only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Loss of power: fdatasync has returned.
    #[default]
    PowerLoss,
    /// The end of the process only.
    ProcessCrash,
}

impl Durability {
    /// The word that options and the API use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PowerLoss => "power-loss",
            Self::ProcessCrash => "process-crash",
        }
    }
}

/// Policy of one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodePolicy {
    /// Longest wait for one effect, in milliseconds; none takes the runner's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Delay between attempts; none tries again at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
}

impl Manifest {
    /// Its JSON text, the same bytes for the same manifest.
    pub fn to_payload(&self) -> Payload {
        Payload::new(serde_json::to_string(self).expect("a manifest has text keys and finite numbers only"))
    }

    /// The model of its abstract nodes, those of its child runs included.
    pub fn model(&self) -> Option<&ModelPin> {
        let below = self.plans.values().flat_map(|pinned| &pinned.nodes);
        self.nodes.iter().chain(below).find_map(|node| match &node.tool.executor {
            Executor::Model { model } => Some(model),
            Executor::HostTool | Executor::Code { .. } | Executor::Person | Executor::ChildRun => None,
        })
    }

    /// Whether a principal started the run or is the one on whose behalf it was started; of a fork, also the runs before it.
    pub fn was_started_by(&self, principal: &str) -> bool {
        self.tie_of(principal).is_some()
    }

    /// What bars a principal from answering the run's asks; none if nothing does.
    pub fn tie_of(&self, principal: &str) -> Option<Tie> {
        self.starters().find(|(starter, _)| *starter == principal).map(|(_, tie)| tie)
    }

    /// Everybody who cannot answer the run's asks, each once: who started it, on whose behalf, then those of the runs before it.
    pub fn starters(&self) -> impl Iterator<Item = (&str, Tie)> {
        let before = self.lineage.iter().flat_map(|lineage| &lineage.started_by).map(|name| (name, Tie::Before));
        let all = [(&self.principal, Tie::Starter)].into_iter();
        let all = all.chain(self.initiator.iter().map(|name| (name, Tie::Initiator))).chain(before);
        let mut met = std::collections::BTreeSet::new();
        all.map(|(name, tie)| (name.as_str(), tie)).filter(move |(name, _)| met.insert(*name))
    }

    /// Delay between attempts of a node, where the run names one.
    pub fn backoff_of(&self, node: &str) -> Option<&Backoff> {
        self.node_policies.get(node).and_then(|policy| policy.backoff.as_ref())
    }

    /// Whether a cancel gives every effect its result, and the egress tokens their end, before the run ends. Runs that release
    /// 0.1 started end without.
    pub fn settles_cancels(&self) -> bool {
        self.wave_effects_max.is_some()
    }

    /// Whether each effect of a model's loop asks every budget, and a loop that has begun comes to its end beside a failure. In
    /// the runs before, effects and tool calls were asked for when their superstep opened and never again, and it depended on
    /// who was answered first how far the others came.
    pub(crate) fn settles_loops(&self) -> bool {
        self.reserves_storage
    }

    /// Longest wait for one effect of a node, where the run names one.
    pub fn timeout_ms_of(&self, node: &str) -> Option<u64> {
        self.node_policies.get(node).and_then(|policy| policy.timeout_ms)
    }
}

/// How the manifest is written: nodes name their definition by its place, so that a definition bound often is written once.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    run_id: RunId,
    namespace: String,
    plan_hash: Digest,
    plan: PlanDocument,
    tools: Vec<Arc<PinnedTool>>,
    /// For each node of the plan the place of its tool.
    node_tools: Vec<usize>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    plans: BTreeMap<Digest, PlanPins>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<ParentRun>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lineage: Option<Lineage>,
    principal: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    initiator: Option<String>,
    budgets: Budgets,
    on_dangling: OnDangling,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    node_policies: BTreeMap<String, NodePolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ask_ttl_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wave_effects_max: Option<u32>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    reserves_storage: bool,
    durability: Durability,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy_digest: Option<Digest>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    native_isolation: Vec<String>,
    input_digest: Digest,
    engine_epoch: u32,
    engine_version: String,
    started_at_ms: u64,
}

impl From<Manifest> for Document {
    fn from(manifest: Manifest) -> Self {
        let (tools, node_tools) = pins::of_nodes(manifest.nodes);
        Self {
            run_id: manifest.run_id,
            namespace: manifest.namespace,
            plan_hash: manifest.plan_hash,
            plan: manifest.plan,
            tools,
            node_tools,
            plans: pins::of_plans(&manifest.plans),
            parent: manifest.parent,
            lineage: manifest.lineage,
            principal: manifest.principal,
            initiator: manifest.initiator,
            budgets: manifest.budgets,
            on_dangling: manifest.on_dangling,
            node_policies: manifest.node_policies,
            ask_ttl_ms: manifest.ask_ttl_ms,
            wave_effects_max: manifest.wave_effects_max,
            reserves_storage: manifest.reserves_storage,
            durability: manifest.durability,
            policy_digest: manifest.policy_digest,
            native_isolation: manifest.native_isolation,
            input_digest: manifest.input_digest,
            engine_epoch: manifest.engine_epoch,
            engine_version: manifest.engine_version,
            started_at_ms: manifest.started_at_ms,
        }
    }
}

impl TryFrom<Document> for Manifest {
    type Error = String;

    fn try_from(document: Document) -> Result<Self, String> {
        let nodes = pins::nodes(&document.plan, &(document.tools, document.node_tools))?;
        let plans = pins::plans(document.plans, &nodes)?;
        Ok(Self {
            run_id: document.run_id,
            namespace: document.namespace,
            plan_hash: document.plan_hash,
            plan: document.plan,
            nodes,
            plans,
            parent: document.parent,
            lineage: document.lineage,
            principal: document.principal,
            initiator: document.initiator,
            budgets: document.budgets,
            on_dangling: document.on_dangling,
            node_policies: document.node_policies,
            ask_ttl_ms: document.ask_ttl_ms,
            wave_effects_max: document.wave_effects_max,
            reserves_storage: document.reserves_storage,
            durability: document.durability,
            policy_digest: document.policy_digest,
            native_isolation: document.native_isolation,
            input_digest: document.input_digest,
            engine_epoch: document.engine_epoch,
            engine_version: document.engine_version,
            started_at_ms: document.started_at_ms,
        })
    }
}
