//! The stack that runs what people steer, who steers it, and what is counted on the way.

use std::{collections::BTreeMap, path::PathBuf, time::SystemTime};

use e2e::{
    client::Client,
    document::{Definition, Plan},
    flags::Flags,
    guests,
    process::POLL,
    shell_tool::{Call, ShellTool},
    stack::{Stack, Who},
    upstream::{Answer, Upstream},
};
use proto::runner::v1::{Budgets, CancelResult, Event, RunStatus};
use serde_json::{Value, json};
use tonic::Status;

/// What a person does to the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steering {
    /// A pause while a tool is in flight, and a resumption.
    Pause,
    /// A fork behind the first superstep of the run, once that has ended.
    Fork,
    /// A cancel while a tool, a module's call, a question and a child run are in flight.
    Cancel,
}

const PAUSING: &str = "asked to pause";
const PAUSED: &str = "paused";
const RESUMED: &str = "resumed";
const UNFORKED: &str = "over and not forked";
const FORKED: &str = "forked, and the fork goes on";
/// The cancel is durable, the end is not.
pub const CANCELING: &str = "being canceled";

/// `gate` and `slow` do not end before they are let go; what never is, ends with the stack.
const TOOL: &str = "cat > /dev/null\n\
    case \"$AREEV_TOOL_NAME\" in gate) gate=\"$0.gate\";; slow|deep) gate=\"$0.never\";; *) gate=\"$0\";; esac\n\
    while [ -e \"$0\" ] && [ ! -e \"$gate\" ]; do sleep 0.02; done\n\
    printf '{\"did_%s\": true}' \"$AREEV_TOOL_NAME\"";

/// A run, and an effect of it by node and attempt.
pub type Name = (String, String, u32);

/// The effect that an event is about.
pub fn name_in(run_id: &str, event: &Event) -> Name {
    let body: Value = serde_json::from_str(&event.body_json).unwrap();
    let attempt = body["attempt"].as_u64().unwrap_or_default().try_into().unwrap();
    (run_id.to_owned(), body["node"].as_str().unwrap_or_default().to_owned(), attempt)
}

/// The id of the fork.
pub fn fork_of(run_id: &str) -> String {
    format!("{run_id}-fork")
}

/// One life of the runner, as the world saw it.
#[derive(Debug)]
pub struct Life {
    /// Whether all is done.
    pub completed: bool,
    /// When it ended.
    pub ended_at: SystemTime,
    /// Calls that reached the tool.
    pub calls: Vec<Call>,
    /// Requests that reached the upstream.
    pub requests: usize,
}

/// The stack, the plan, and what was called before the life that is looked at.
pub struct Steered {
    pub steering: Steering,
    stack: Stack,
    tool: ShellTool,
    gate: PathBuf,
    upstream: Upstream,
    plan: String,
    calls_seen: usize,
    requests_seen: usize,
}

impl Steering {
    /// Moments on which a kill has to fall.
    pub fn moments(self) -> &'static [&'static str] {
        match self {
            Self::Pause => &[PAUSING, PAUSED, RESUMED],
            Self::Fork => &[UNFORKED, FORKED],
            Self::Cancel => &[CANCELING],
        }
    }

    /// Where in the steering a crash fell, by the kinds of the events that were durable.
    pub fn moment(self, run_id: &str, durable: &BTreeMap<String, Vec<String>>) -> Option<&'static str> {
        let has = |run_id: &str, kind: &str| durable.get(run_id).is_some_and(|kinds| kinds.iter().any(|k| k == kind));
        let ended = has(run_id, "RunFinished");
        match self {
            Self::Pause if ended || !has(run_id, "PauseRequested") => None,
            Self::Pause if has(run_id, "Resumed") => Some(RESUMED),
            Self::Pause if durable[run_id].iter().filter(|kind| *kind == "SuperstepClosed").count() > 1 => Some(PAUSED),
            Self::Pause => Some(PAUSING),
            Self::Fork if !ended || has(&fork_of(run_id), "RunFinished") => None,
            Self::Fork if has(&fork_of(run_id), "RunStarted") => Some(FORKED),
            Self::Fork => Some(UNFORKED),
            Self::Cancel => (has(run_id, "CancelRequested") && !ended).then_some(CANCELING),
        }
    }
}

impl Steered {
    pub async fn start(steering: Steering) -> Self {
        let upstream = Upstream::start(|request| {
            let holds = request.head.contains("/hold");
            (!holds).then(|| Answer::json(200, &json!({"ok": true})))
        });
        let upstream = upstream.await.unwrap();
        let origin = upstream.origin();
        let settings = format!(
            "[policy]\nallow_hosts = [{origin:?}]\nallow_private = [\"127.0.0.0/8\"]\n\
             [grants.calls_out]\nmethods = [\"GET\"]\nhosts = [{origin:?}]\n"
        );
        let path = if steering == Steering::Cancel { "/hold" } else { "/one" };
        let module = guests::fetch(&json!({"url": format!("{origin}{path}")}));
        let builder = Stack::builder().unwrap().pin(&module).sandbox().broker(&settings, &[]).unwrap();
        let tool = ShellTool::write(builder.directory(), "tool.sh", TOOL).unwrap();
        let gate = builder.directory().join("tool.sh.gate");
        let command = tool.command();
        let stack = builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap();
        let plan = put_plan(&stack.client(), steering, &module, &origin).await;
        Self { steering, stack, tool, gate, upstream, plan, calls_seen: 0, requests_seen: 0 }
    }

    pub fn client(&self) -> Client {
        self.stack.client()
    }

    /// Restarts the runner with other flags, and without a crash but for what they say.
    pub async fn arm(&mut self, change: impl FnOnce(Flags) -> Flags) -> anyhow::Result<()> {
        let mut flags = self.stack.runner.flags.clone();
        flags.no_crash();
        self.stack.runner.flags = change(flags);
        self.stack.runner.restart().await
    }

    /// Begins a run that no earlier one is mixed up with.
    pub fn begin(&mut self) {
        let _is_closed_already = std::fs::remove_file(&self.gate);
        self.calls_seen = self.tool.calls().len();
        self.requests_seen = self.upstream.received().len();
    }

    /// Steers a run until all is done or the runner ends. What a start does by itself counts too.
    pub async fn live(&mut self, run_id: &str) -> Life {
        let completed = loop {
            if self.stack.runner.process().exit().is_some() {
                break false;
            }
            // A call may be cut off; all of them may be made again.
            if self.push(run_id).await.unwrap_or_default() {
                break true;
            }
            tokio::time::sleep(POLL).await;
        };
        let ended_at = SystemTime::now();
        self.stack.running_guests(0).await.unwrap();
        let (calls, requests) = (self.tool.calls(), self.upstream.received().len());
        let life = Life {
            completed,
            ended_at,
            calls: calls[self.calls_seen..].to_vec(),
            requests: requests - self.requests_seen,
        };
        (self.calls_seen, self.requests_seen) = (calls.len(), requests);
        life
    }

    async fn push(&self, run_id: &str) -> Result<bool, Status> {
        self.client().start(run_id, &self.plan, &json!({"n": 9_007_199_254_740_993_u64})).await?;
        match self.steering {
            Steering::Pause => self.push_pause(run_id).await,
            Steering::Fork => self.push_fork(run_id).await,
            Steering::Cancel => self.push_cancel(run_id).await,
        }
    }

    async fn push_pause(&self, run_id: &str) -> Result<bool, Status> {
        let client = self.client();
        if !self.has(run_id, "PauseRequested").await? {
            while !self.tool.calls().iter().skip(self.calls_seen).any(|call| call.tool == "gate") {
                self.looks_again(run_id).await?;
            }
            client.pause(run_id).await?;
        }
        std::fs::write(&self.gate, "").unwrap();
        if !self.has(run_id, "Resumed").await? {
            while client.get(run_id).await?.status() != RunStatus::Paused {
                self.looks_again(run_id).await?;
            }
            client.resume(run_id).await?;
        }
        self.answered(run_id).await
    }

    async fn push_fork(&self, run_id: &str) -> Result<bool, Status> {
        if !self.answered(run_id).await? {
            return Ok(false);
        }
        self.client().fork(run_id, &fork_of(run_id), 1, Budgets::default()).await?;
        self.answered(&fork_of(run_id)).await
    }

    async fn push_cancel(&self, run_id: &str) -> Result<bool, Status> {
        let client = self.client();
        if !self.has(run_id, "CancelRequested").await? {
            let called = |tool: &str| self.tool.calls().iter().skip(self.calls_seen).any(|call| call.tool == tool);
            let requested = || self.upstream.received().len() > self.requests_seen;
            while !(called("slow") && called("deep") && requested()) || client.asks(run_id).await?.is_empty() {
                self.looks_again(run_id).await?;
            }
        }
        let receipt = client.cancel(run_id, "enough of it").await?;
        assert_eq!(receipt.result(), CancelResult::Canceled, "{run_id}");
        Ok(true)
    }

    /// Answers what is asked; true once the run has completed.
    async fn answered(&self, run_id: &str) -> Result<bool, Status> {
        let client = self.client();
        let run = client.wait_ask(run_id).await?;
        for ask in client.asks(run_id).await? {
            self.stack.client_of(Who::Approver).respond(&ask, &json!({"approved": true})).await?;
        }
        assert!(!matches!(run.status(), RunStatus::Failed | RunStatus::Stalled), "{run_id}: {}", run.reason);
        Ok(run.status() == RunStatus::Completed)
    }

    async fn has(&self, run_id: &str, kind: &str) -> Result<bool, Status> {
        Ok(self.client().events(run_id).await?.iter().any(|event| event.kind == kind))
    }

    /// A moment later, as long as the runner is there.
    async fn looks_again(&self, run_id: &str) -> Result<(), Status> {
        tokio::time::sleep(POLL).await;
        self.client().get(run_id).await.map(|_| ())
    }

    /// A run, its child runs, its fork and the child runs of that.
    pub async fn journals(&self, run_id: &str) -> Vec<String> {
        let mut journals = Vec::new();
        let fork = (self.steering == Steering::Fork).then(|| fork_of(run_id));
        for run_id in std::iter::once(run_id.to_owned()).chain(fork) {
            let entries = self.client().entries(&run_id).await.unwrap();
            let children = entries.into_iter().map(|entry| entry.child_run_id).filter(|child| !child.is_empty());
            journals.push(run_id);
            journals.extend(children);
        }
        journals
    }
}

/// A tool; then what is steered; then an end.
async fn put_plan(client: &Client, steering: Steering, module: &[u8], origin: &str) -> String {
    let uri = client.put_blob(module).await.unwrap();
    let capabilities = json!([{"http": {"hosts": [origin], "methods": ["GET"]}}]);
    let mut hashes = BTreeMap::new();
    for name in ["first", "gate", "slow", "deep", "inner", "last"] {
        hashes.insert(name, client.put_definition(&Definition::tool(name)).await.unwrap());
    }
    let calls_out = Definition::io("calls_out", &uri, capabilities);
    hashes.insert("calls_out", client.put_definition(&calls_out).await.unwrap());
    hashes.insert("approve", client.put_definition(&Definition::client("approve")).await.unwrap());
    let inner = if steering == Steering::Cancel { "deep" } else { "inner" };
    let inner = Plan::new().node(inner, &hashes[inner]);
    hashes.insert("sub", client.put_plan(&inner).await.unwrap());
    let nodes: &[&str] = match steering {
        Steering::Pause => &["first", "gate", "calls_out", "approve", "sub", "last"],
        Steering::Fork => &["first", "calls_out", "approve", "sub", "last"],
        Steering::Cancel => &["first", "slow", "calls_out", "approve", "sub", "last"],
    };
    let plan = match steering {
        Steering::Pause | Steering::Fork => Plan::chain(nodes.iter().map(|node| (*node, hashes[node].as_str()))),
        Steering::Cancel => {
            let plan = nodes.iter().fold(Plan::new(), |plan, node| plan.node(node, &hashes[node]));
            let beside = &nodes[1..nodes.len() - 1];
            beside.iter().fold(plan, |plan, node| plan.edge("first", node).edge(node, "last"))
        }
    };
    client.put_plan(&plan).await.unwrap()
}
