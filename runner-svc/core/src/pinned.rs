//! What a node was resolved to at start: frozen in the manifest, never resolved again.

use std::{collections::BTreeMap, sync::Arc};

use content_digest::Digest;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{key::EffectKind, model::ModelPin, plan::PlanDocument};

/// Name under which the broker grants model calls.
pub const MODEL_TOOL: &str = "model";
/// Most levels of child runs below a run: each level takes 17 of the 128 bytes that a run id may have.
pub const SUBGRAPH_DEPTH_MAX: usize = 4;
/// Most child runs that one run may have alive at once, over all levels: what it starts when every subgraph runs.
pub const SUBGRAPH_RUNS_MAX: usize = 256;

/// One node as it was resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct PinnedNode {
    /// The node.
    pub node: String,
    /// The definition behind it; nodes bound to the same definition share it.
    pub tool: Arc<PinnedTool>,
}

/// A plan that a node is bound to, as a run froze it: what its child run will have for its own plan and nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct PinnedPlan {
    /// The plan.
    pub plan: PlanDocument,
    /// Its pinned nodes, in the plan's order.
    pub nodes: Vec<PinnedNode>,
}

/// Every plan below a run, by address, whatever its depth: a plan that is bound often is pinned once.
pub type PinnedPlans = BTreeMap<Digest, Arc<PinnedPlan>>;

/// Whether a node among these, or of the plans below, executes a native blob.
pub fn executes_natively(nodes: &[PinnedNode], plans: &PinnedPlans) -> bool {
    let native = |node: &PinnedNode| matches!(node.tool.executor, Executor::Code { runtime: Runtime::Native, .. });
    nodes.iter().chain(plans.values().flat_map(|below| &below.nodes)).any(native)
}

/// A definition as a run froze it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PinnedTool {
    /// Address of the definition; of the plan when the node is a subgraph.
    pub definition: Digest,
    /// The tool's name; empty when the node is a subgraph.
    pub tool_name: String,
    /// What the tool says of itself; for an ask it is the question.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Who executes it.
    pub executor: Executor,
    /// Schema that the input must fit before dispatch; only of a definition with `strict`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
    /// Schema that a person's answer must fit, and of a definition with `strict` any result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Whether inputs and results are held to the schemas. Runs of earlier releases were not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// Arguments that a caller cannot change: laid over the node's input.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub locked_params: Map<String, Value>,
}

/// Who executes a definition. Append-only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case", deny_unknown_fields)]
pub enum Executor {
    /// The runner's tool command or host-tool service.
    HostTool,
    /// Pinned code.
    Code {
        /// Its digest.
        digest: Digest,
        /// What it is executed as.
        runtime: Runtime,
        /// Limits that the definition names.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limits: Option<RuntimeLimits>,
        /// What the definition says it needs, verbatim; only with `wasm32-areev-io`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        capabilities: Option<Value>,
    },
    /// A person, through an ask.
    Person,
    /// A run of its own, of the plan that `definition` names.
    ChildRun,
    /// A model, which may call the plan's host tools.
    Model {
        /// Which.
        model: ModelPin,
    },
}

/// What code is executed as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Runtime {
    /// A program of the sandbox's host.
    #[serde(rename = "native")]
    Native,
    /// A wasm module that can only compute.
    #[serde(rename = "wasm32-areev")]
    Wasm,
    /// A wasm module that may ask the broker for outbound calls.
    #[serde(rename = "wasm32-areev-io")]
    WasmIo,
}

impl Runtime {
    /// The names a definition may use.
    pub const NAMES: &str = "`native`, `wasm32-areev` or `wasm32-areev-io`";

    /// Reads a definition's word.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "native" => Self::Native,
            "wasm32-areev" => Self::Wasm,
            "wasm32-areev-io" => Self::WasmIo,
            _ => return None,
        })
    }

    /// The word that definitions and the API use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Wasm => "wasm32-areev",
            Self::WasmIo => "wasm32-areev-io",
        }
    }
}

/// Limits that a definition names; absent takes the sandbox's default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuntimeLimits {
    /// wasmtime fuel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
    /// Memory pages of 64 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_pages: Option<u64>,
    /// Brokered calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_calls: Option<u64>,
    /// Bytes of one brokered response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_response_bytes: Option<u64>,
    /// Bytes of one brokered request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_request_bytes: Option<u64>,
    /// Bytes of one blob that a guest reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_blob_bytes: Option<u64>,
}

/// What a node is, as the manifest and the API name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeKind {
    /// Executed by the tool command, the host-tool service, or as code.
    Host,
    /// Answered by a person.
    Client,
    /// Another plan, as a child run.
    Subgraph,
    /// A model's tool-calling loop.
    Abstract,
}

impl NodeKind {
    /// The word that the API uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Client => "client",
            Self::Subgraph => "subgraph",
            Self::Abstract => "abstract",
        }
    }
}

/// What must be durable before an effect is dispatched, and what becomes of it after a crash. Append-only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// Running it again changes nothing: may be dispatched before its intent is durable, and again silently.
    Pure,
    /// Touches the world through recorded exchanges only: its intent and each exchange are durable first; redelivered with them.
    Brokered,
    /// Anything else: intent durable first; after a crash `on_dangling` decides.
    Opaque,
    /// A child run: its intent is durable before it is started; after a crash it is found again by its id, never started twice.
    Child,
}

impl EffectClass {
    /// The word that the API uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pure => "pure",
            Self::Brokered => "brokered",
            Self::Opaque => "opaque",
            Self::Child => "child",
        }
    }
}

impl PinnedTool {
    /// A plan that a node is bound to.
    pub fn of_plan(plan: Digest) -> Self {
        Self {
            definition: plan,
            tool_name: String::new(),
            description: String::new(),
            executor: Executor::ChildRun,
            input_schema: None,
            output_schema: None,
            strict: false,
            locked_params: Map::new(),
        }
    }

    /// A model: what an abstract node is pinned to. Its address is the SHA-256 of the pin's JSON text.
    pub fn of_model(model: &ModelPin) -> Self {
        let text = serde_json::to_string(model).expect("a pin has text only");
        Self {
            definition: Digest::of(text),
            tool_name: MODEL_TOOL.to_owned(),
            executor: Executor::Model { model: model.clone() },
            ..Self::of_plan(Digest::ZERO)
        }
    }

    /// What the node is.
    pub fn kind(&self) -> NodeKind {
        match self.executor {
            Executor::HostTool | Executor::Code { .. } => NodeKind::Host,
            Executor::Person => NodeKind::Client,
            Executor::ChildRun => NodeKind::Subgraph,
            Executor::Model { .. } => NodeKind::Abstract,
        }
    }

    /// The kind of its effects; of an abstract node, of its first.
    pub fn effect_kind(&self) -> EffectKind {
        match self.kind() {
            NodeKind::Host => EffectKind::Tool,
            NodeKind::Client => EffectKind::Ask,
            NodeKind::Subgraph => EffectKind::Subgraph,
            NodeKind::Abstract => EffectKind::Llm,
        }
    }

    /// The class of its effects; none for an ask.
    pub fn effect_class(&self) -> Option<EffectClass> {
        Some(match &self.executor {
            Executor::HostTool => EffectClass::Opaque,
            Executor::Code { runtime: Runtime::Native, .. } => EffectClass::Opaque,
            Executor::Code { runtime: Runtime::Wasm, .. } => EffectClass::Pure,
            Executor::Code { runtime: Runtime::WasmIo, .. } => EffectClass::Brokered,
            Executor::ChildRun => EffectClass::Child,
            Executor::Model { .. } => EffectClass::Brokered,
            Executor::Person => return None,
        })
    }
}
