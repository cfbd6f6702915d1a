//! A run without its surroundings: a journal in memory, effects that settle when the test says so.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use content_digest::Digest;
use runner_core::{
    budget::Budgets,
    child::{self, ChildRun},
    entry::Entry,
    event::Event,
    input::{Declined, Input},
    key::EffectKey,
    lineage::Lineage,
    manifest::{Durability, ENGINE_EPOCH, Manifest, NodePolicy, OnDangling, WAVE_EFFECTS_MAX},
    outcome::{EffectOutcome, Failure, FailureCause, RunOutcome, Usage},
    owed::{self, Dispatch, Owed},
    payload::Payload,
    pinned::{Executor, PinnedNode, PinnedPlan, PinnedTool, Runtime},
    plan::Plan,
    read_input,
    run::{self, Fed},
    run_id::RunId,
    state::State,
    verify::{Replay, Verdict},
};
use serde_json::{Value, json};

/// When every run of the tests starts.
pub const T0: u64 = 1_755_000_000_000;

/// How a run is set up; `..Setup::default()` for the rest.
pub struct Setup {
    pub plan: Value,
    pub input: &'static str,
    pub budgets: Budgets,
    pub on_dangling: OnDangling,
    pub ask_ttl_ms: Option<u64>,
    pub initiator: Option<&'static str>,
    /// Executors by node; a node that is not here is a host tool.
    pub executors: BTreeMap<String, Executor>,
    /// Policies by node.
    pub policies: BTreeMap<String, NodePolicy>,
    /// Locked parameters by node.
    pub locked: BTreeMap<String, Value>,
    /// Effects of one wave; none by the rules of release 0.1.
    pub wave_effects_max: Option<u32>,
    /// Whether effects reserve what they may write.
    pub reserves_storage: bool,
    /// Where the run comes from.
    pub lineage: Option<Lineage>,
    /// By node: what its input must fit; makes the definition strict.
    pub input_schemas: BTreeMap<&'static str, Value>,
    /// By node: what its result or answer must fit; makes the definition of a tool strict.
    pub output_schemas: BTreeMap<&'static str, Value>,
    /// Plans of subgraphs, by the nodes that are bound to them at any depth.
    pub subgraphs: BTreeMap<String, Value>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            plan: json!({"nodes": ["work"]}),
            input: "{}",
            budgets: Budgets::default(),
            on_dangling: OnDangling::Redispatch,
            ask_ttl_ms: None,
            initiator: None,
            executors: BTreeMap::new(),
            policies: BTreeMap::new(),
            locked: BTreeMap::new(),
            wave_effects_max: Some(WAVE_EFFECTS_MAX),
            reserves_storage: true,
            lineage: None,
            input_schemas: BTreeMap::new(),
            output_schemas: BTreeMap::new(),
            subgraphs: BTreeMap::new(),
        }
    }
}

impl Setup {
    pub fn of(plan: Value) -> Self {
        Self { plan, ..Self::default() }
    }

    pub fn with(mut self, node: &str, executor: Executor) -> Self {
        self.executors.insert(node.to_owned(), executor);
        self
    }

    /// Binds a node, wherever it is, to a plan.
    pub fn with_subgraph(mut self, node: &str, plan: Value) -> Self {
        self.subgraphs.insert(node.to_owned(), plan);
        self
    }

    pub fn manifest(&self, input: &Payload) -> Manifest {
        let plan = Plan::from_fields(&self.plan).unwrap();
        let nodes = plan.nodes().iter().map(|node| self.pinned(node)).collect();
        Manifest {
            run_id: RunId::parse("r1").unwrap(),
            namespace: "ops".to_owned(),
            plan_hash: Digest::of("plan"),
            plan: plan.document().clone(),
            nodes,
            plans: self.subgraphs.values().map(|plan| (hash(plan), Arc::new(self.pinned_plan(plan)))).collect(),
            parent: None,
            lineage: self.lineage.clone(),
            principal: "user:runner".to_owned(),
            initiator: self.initiator.map(str::to_owned),
            budgets: self.budgets,
            on_dangling: self.on_dangling,
            node_policies: self.policies.clone(),
            ask_ttl_ms: self.ask_ttl_ms,
            wave_effects_max: self.wave_effects_max,
            reserves_storage: self.reserves_storage,
            durability: Durability::PowerLoss,
            policy_digest: None,
            native_isolation: Vec::new(),
            input_digest: input.digest(),
            engine_epoch: ENGINE_EPOCH,
            engine_version: "0.1.0".to_owned(),
            started_at_ms: T0,
        }
    }

    fn pinned_plan(&self, fields: &Value) -> PinnedPlan {
        let plan = Plan::from_fields(fields).unwrap().document().clone();
        let nodes = plan.nodes.iter().map(|node| self.pinned(node)).collect();
        PinnedPlan { plan, nodes }
    }

    fn pinned(&self, node: &str) -> PinnedNode {
        if let Some(plan) = self.subgraphs.get(node) {
            return PinnedNode { node: node.to_owned(), tool: Arc::new(PinnedTool::of_plan(hash(plan))) };
        }
        let executor = self.executors.get(node).cloned().unwrap_or(Executor::HostTool);
        let (input_schema, output_schema) = (self.input_schemas.get(node), self.output_schemas.get(node));
        let strict = input_schema.is_some() || (output_schema.is_some() && executor != Executor::Person);
        let schemas = [input_schema, output_schema].into_iter().flatten().map(Value::to_string);
        let definition = match self.locked.get(node) {
            None => Digest::of(serde_json::to_string(&executor).unwrap() + &schemas.collect::<String>()),
            Some(_) => Digest::of(node),
        };
        let tool = PinnedTool {
            definition,
            tool_name: "work".to_owned(),
            description: "Does the work.".to_owned(),
            executor,
            input_schema: input_schema.cloned(),
            output_schema: output_schema.cloned(),
            strict,
            locked_params: self.locked.get(node).and_then(Value::as_object).cloned().unwrap_or_default(),
        };
        PinnedNode { node: node.to_owned(), tool: Arc::new(tool) }
    }

    pub fn start(self) -> Sim {
        let input = read_input(self.input).unwrap();
        let (state, entries) = run::start(&self.manifest(&input), input, T0).unwrap();
        Sim { state, entries, now: T0 }
    }
}

fn hash(plan: &Value) -> Digest {
    Digest::of(plan.to_string())
}

pub fn wasm() -> Executor {
    code(Runtime::Wasm)
}

pub fn wasm_io() -> Executor {
    code(Runtime::WasmIo)
}

pub fn native() -> Executor {
    code(Runtime::Native)
}

fn code(runtime: Runtime) -> Executor {
    let capabilities = (runtime == Runtime::WasmIo).then(|| json!([{"http": {"hosts": ["https://api.example.com"]}}]));
    Executor::Code { digest: Digest::of("module"), runtime, limits: None, capabilities }
}

/// A run and its journal.
pub struct Sim {
    pub state: State,
    pub entries: Vec<Entry>,
    pub now: u64,
}

impl Sim {
    /// Feeds an input a millisecond later; the entries join the journal.
    pub fn feed(&mut self, input: Input) -> Fed {
        self.now += 1;
        self.feed_now(input)
    }

    pub fn feed_now(&mut self, input: Input) -> Fed {
        let fed = run::feed(&mut self.state, input, self.now).unwrap();
        self.entries.extend(fed.entries.iter().cloned());
        fed
    }

    /// Settles the effect in flight of a node with a result.
    pub fn done(&mut self, node: &str, output: impl ToString) {
        let outcome = EffectOutcome::Completed { output: Payload::new(output.to_string()) };
        self.settle(node, outcome, Usage::default());
    }

    /// Settles it with a failure.
    pub fn fail(&mut self, node: &str, cause: FailureCause) {
        self.settle(node, EffectOutcome::Failed { failure: Failure::new(cause, "it broke") }, Usage::default());
    }

    pub fn settle(&mut self, node: &str, outcome: EffectOutcome, usage: Usage) {
        let key = self.key(node);
        let fed = self.feed(Input::Result { key, outcome, usage });
        assert_eq!(fed.declined, None);
    }

    pub fn take_over(&mut self) -> Fed {
        let fence = self.state.fence() + 1;
        self.feed(Input::TakeOver { holder: "user:runner@node-1/abc".to_owned(), fence })
    }

    /// Cancels the run, and says that two of its tokens are dead.
    pub fn cancel(&mut self) -> Fed {
        let fed = self.cancel_only();
        if self.state.owes_revocation() {
            assert_eq!(self.feed(Input::Revoked { tokens: 2 }).declined, None);
        }
        fed
    }

    pub fn cancel_only(&mut self) -> Fed {
        self.feed(Input::Cancel { by: "user:boss".to_owned(), reason: "enough".to_owned() })
    }

    pub fn answer(&mut self, by: &str, answer: &str) -> Option<Declined> {
        let tool_call_id = self.ask();
        self.answer_to(tool_call_id, by, answer, false)
    }

    pub fn answer_to(&mut self, tool_call_id: Digest, by: &str, answer: &str, is_error: bool) -> Option<Declined> {
        let (by, answer) = (by.to_owned(), Payload::new(answer));
        self.feed(Input::Answer { tool_call_id, by, answer, is_error }).declined
    }

    /// The only open ask.
    pub fn ask(&self) -> Digest {
        let asks: Vec<Digest> = self.state.asks().map(|ask| ask.tool_call_id).collect();
        assert_eq!(asks.len(), 1, "one ask is open");
        asks[0]
    }

    /// The key of a node's effect in flight.
    pub fn key(&self, node: &str) -> EffectKey {
        let flight = self.state.flights().find(|flight| flight.key.node == node);
        flight.unwrap_or_else(|| panic!("{node} is not in flight")).key.clone()
    }

    /// Nodes whose effects are in flight, in the plan's order.
    pub fn in_flight(&self) -> Vec<&str> {
        self.state.flights().map(|flight| flight.key.node.as_str()).collect()
    }

    /// What the run is owed by way of dispatches.
    pub fn dispatches(&self) -> Vec<Dispatch> {
        let dispatch = |owed| match owed {
            Owed::Dispatch(dispatch) => Some(*dispatch),
            Owed::Child { .. } | Owed::WaitAsk { .. } | Owed::WaitUntil { .. } | Owed::Stop { .. } => None,
        };
        owed::owed(&self.state).into_iter().filter_map(dispatch).collect()
    }

    /// What the subgraph in flight of a node is.
    pub fn child(&self, node: &str) -> ChildRun {
        ChildRun::of(&self.state, &self.key(node)).unwrap_or_else(|| panic!("{node} is no child run"))
    }

    /// Starts it, as a run of its own.
    pub fn start_child(&self, node: &str) -> Sim {
        let child = self.child(node);
        let (state, entries) = run::start(&child.manifest, child.input, self.now).unwrap();
        Sim { state, entries, now: self.now }
    }

    /// Settles the subgraph in flight of a node with the end of its child run.
    pub fn child_ended(&mut self, node: &str, child: &Sim) {
        let (state, run_id) = (&child.state, &child.state.manifest().run_id);
        let (outcome, usage) = child::result(run_id, child.outcome(), *state.spent(), state.head());
        self.settle(node, outcome, usage);
    }

    /// The input of a node's effect in flight.
    pub fn input(&self, node: &str) -> String {
        self.state.flight(&self.key(node)).unwrap().input.text().to_owned()
    }

    pub fn kinds(&self) -> Vec<&'static str> {
        self.entries.iter().map(|entry| entry.event().kind()).collect()
    }

    pub fn count(&self, kind: &str) -> usize {
        self.kinds().into_iter().filter(|found| *found == kind).count()
    }

    /// Intents of a node, by attempt.
    pub fn attempts(&self, node: &str) -> Vec<u32> {
        let intents = self.entries.iter().filter(|entry| entry.event().kind() == "IntentRecorded");
        intents.filter_map(|entry| entry.event().key()).filter(|key| key.node == node).map(|key| key.attempt).collect()
    }

    pub fn outcome(&self) -> &RunOutcome {
        self.state
            .outcome()
            .unwrap_or_else(|| panic!("the run has not ended: {:?}", runner_core::why::why(&self.state)))
    }

    /// The final state of a completed run.
    pub fn output(&self) -> &str {
        match self.outcome() {
            RunOutcome::Completed { output } => output.text(),
            other => panic!("not completed: {}", other.reason()),
        }
    }

    pub fn last(&self) -> &Event {
        self.entries.last().unwrap().event()
    }

    /// Replays the journal; every run of the tests has to be clean at any time.
    pub fn verify(&self) -> Verdict {
        verify(&self.entries)
    }

    /// The run as a new process finds it, from the stored bytes of its first entries.
    pub fn reopen(&self, entries: usize) -> Sim {
        let entries: Vec<Entry> = self.entries[..entries].iter().map(reread).collect();
        Sim { state: run::fold(&entries).unwrap(), entries, now: self.now }
    }
}

/// An entry through its stored form.
pub fn reread(entry: &Entry) -> Entry {
    let beside: BTreeMap<Digest, Payload> =
        entry.payloads().iter().map(|payload| (payload.digest(), payload.clone())).collect();
    Entry::open(entry.record().to_vec(), |named| Ok::<_, Infallible>(beside[&named.digest].clone())).unwrap()
}

pub fn verify(entries: &[Entry]) -> Verdict {
    let mut replay = Replay::new();
    for entry in entries {
        replay.push(entry);
    }
    replay.finish(None)
}
