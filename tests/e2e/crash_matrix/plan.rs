//! The plan with a node of every kind, the stack that runs it, and what is counted on the way.

use std::{collections::BTreeMap, time::SystemTime};

use e2e::{
    client::{Client, request},
    document::{Definition, Plan},
    flags::Flags,
    guests,
    process::POLL,
    shell_tool::{Call, ShellTool},
    stack::{Stack, Who},
    upstream::{Answer, Received, Upstream},
};
use proto::{
    runner::v1::{Backoff, Event, JournalEntry, NodePolicy, RunOptions, RunStatus, StartRunRequest, VerifyRunResponse},
    sandbox::v1::StatModulesRequest,
};
use serde_json::{Value, json};

use super::life::Life;

/// Where the module with outbound calls goes, in order.
pub const PATHS: [&str; 3] = ["/one", "/two", "/three"];
/// Where the model is asked.
const MODEL: &str = "/v1/chat/completions";
/// Delay between the attempts of `flaky`, in milliseconds.
pub const BACKOFF_MS: u64 = 40;
/// Nodes that modules and native blobs execute.
const IN_THE_SANDBOX: [&str; 3] = ["calls_out", "pure", "native"];
/// `flaky` fails in its first attempt, however often that is delivered; `split` asks for tasks.
const TOOL: &str = "cat > /dev/null\n\
    if [ \"$AREEV_TOOL_NAME\" = split ]; then\n\
    printf '{\"$send\":[{\"node\":\"part\",\"input\":{\"n\":0}},{\"node\":\"part\",\"input\":{\"n\":1}}]}'; exit 0; fi\n\
    if [ \"$AREEV_TOOL_NAME\" = flaky ] && [ \"$(grep '^flaky ' \"$0.calls\" | sort -u | wc -l)\" -lt 2 ]; then exit 1; fi\n\
    printf '{\"did_%s\": true}' \"$AREEV_TOOL_NAME\"";

/// The stack and the plan.
pub struct Everything {
    stack: Stack,
    tool: ShellTool,
    upstream: Upstream,
    modules: BTreeMap<&'static str, String>,
    plan: String,
    /// What was called before the life that is looked at.
    seen: Counted,
}

impl Everything {
    pub async fn start() -> Self {
        let upstream = Upstream::start(answer).await.unwrap();
        let origin = upstream.origin();
        let calls: Vec<Value> = PATHS.iter().map(|path| json!({"url": format!("{origin}{path}")})).collect();
        let code = [
            ("calls_out", guests::fetches(&calls)),
            ("pure", guests::sum()),
            ("native", b"#!/bin/sh\nread -r line\nprintf '{\"native\":true}'\n".to_vec()),
        ];
        let settings = format!(
            "[policy]\nallow_hosts = [{origin:?}]\nallow_private = [\"127.0.0.0/8\"]\n\
             [grants.calls_out]\nmethods = [\"GET\"]\nhosts = [{origin:?}]\n\
             [grants.model]\nmethods = [\"POST\"]\nhosts = [{origin:?}]\n"
        );
        let builder = Stack::builder().unwrap().native_sandbox().broker(&settings, &[]).unwrap();
        let builder = code.iter().fold(builder, |builder, (_, code)| builder.pin(code));
        let tool = ShellTool::write(builder.directory(), "tool.sh", TOOL).unwrap();
        let command = tool.command();
        let model = |flags: Flags| flags.value("--model-url", format!("{origin}{MODEL}")).value("--model", "small-1");
        let stack = builder.runner(|flags| model(flags.tool_cmd(&command))).start().await.unwrap();
        let mut modules = BTreeMap::new();
        for (node, code) in &code {
            modules.insert(*node, stack.client().put_blob(code).await.unwrap());
        }
        let plan = put_plan(&stack.client(), &modules, &origin).await;
        Self { stack, tool, upstream, modules, plan, seen: Counted::default() }
    }

    /// Restarts the runner with other flags.
    pub async fn arm(&mut self, change: impl FnOnce(Flags) -> Flags) -> anyhow::Result<()> {
        self.stack.runner.flags = change(self.stack.runner.flags.clone());
        self.stack.runner.restart().await
    }

    /// Begins a run that no earlier one is mixed up with.
    pub async fn begin(&mut self) {
        self.tool.forget().unwrap();
        self.seen = self.counted().await;
    }

    /// Drives a run until it or the runner ends. What a start does by itself counts too.
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
        let now = self.counted().await;
        let before = std::mem::replace(&mut self.seen, now.clone());
        let mut upstream = BTreeMap::new();
        for path in now.paths.into_iter().skip(before.paths.len()) {
            *upstream.entry(path).or_default() += 1;
        }
        let mut asked = BTreeMap::new();
        for question in now.questions.into_iter().skip(before.questions.len()) {
            *asked.entry(question).or_default() += 1;
        }
        let executed = now.executions.iter().filter(|(node, count)| **count > before.executions[*node]);
        let executed = executed.map(|(node, _)| *node).collect();
        Life { completed, ended_at, calls: now.calls[before.calls.len()..].to_vec(), executed, upstream, asked }
    }

    async fn push(&self, run_id: &str) -> Result<bool, tonic::Status> {
        let client = self.client();
        let initial = Some(prost_types::Duration { seconds: 0, nanos: i32::try_from(BACKOFF_MS * 1_000_000).unwrap() });
        let backoff = Some(Backoff { initial, factor: 1.0, max: None, jitter: 0.0 });
        let node_policies = vec![NodePolicy { node: "flaky".to_owned(), timeout: None, backoff }];
        let options = Some(RunOptions { node_policies, ..RunOptions::default() });
        let start = request(run_id, &self.plan, &json!({"cents": 7}));
        client.start_with(StartRunRequest { options, ..start }).await?;
        let run = client.wait_ask(run_id).await?;
        for ask in client.asks(run_id).await? {
            self.stack.client_of(Who::Approver).respond(&ask, &json!({"approved": true})).await?;
        }
        assert_ne!(run.status(), RunStatus::Failed, "{run_id}: {}", run.reason);
        Ok(run.status() == RunStatus::Completed)
    }

    async fn counted(&self) -> Counted {
        let digests = IN_THE_SANDBOX.map(|node| self.modules[node].clone()).to_vec();
        let stats =
            self.stack.sandbox_client().stat_modules(StatModulesRequest { digests }).await.unwrap().into_inner();
        let executions = IN_THE_SANDBOX.into_iter().zip(stats.modules.iter().map(|module| module.executions));
        let (models, others): (Vec<_>, Vec<_>) =
            self.upstream.received().into_iter().partition(|request| path(request) == MODEL);
        let paths = others.iter().map(|request| path(request).to_owned()).collect();
        let questions = models.iter().map(question).collect();
        Counted { executions: executions.collect(), calls: self.tool.calls(), paths, questions }
    }

    /// The events of a run and of its child runs.
    pub async fn events(&self, run_id: &str) -> Vec<Event> {
        let mut events = Vec::new();
        for run_id in self.journals(run_id).await {
            events.extend(self.client().events(&run_id).await.unwrap());
        }
        events
    }

    /// The effects of a run and of its child runs.
    pub async fn entries(&self, run_id: &str) -> Vec<JournalEntry> {
        let mut entries = Vec::new();
        for run_id in self.journals(run_id).await {
            entries.extend(self.client().entries(&run_id).await.unwrap());
        }
        entries
    }

    /// A run and its child runs.
    pub async fn journals(&self, run_id: &str) -> Vec<String> {
        let entries = self.client().entries(run_id).await.unwrap();
        let children = entries.into_iter().map(|entry| entry.child_run_id).filter(|child| !child.is_empty());
        std::iter::once(run_id.to_owned()).chain(children).collect()
    }

    pub async fn output(&self, run_id: &str) -> String {
        self.client().get(run_id).await.unwrap().output_json
    }

    pub async fn verify(&self, run_id: &str) -> VerifyRunResponse {
        self.client().verify(run_id).await.unwrap()
    }

    fn client(&self) -> Client {
        self.stack.client()
    }
}

/// What was called so far.
#[derive(Debug, Clone, Default)]
struct Counted {
    executions: BTreeMap<&'static str, u64>,
    calls: Vec<Call>,
    paths: Vec<String>,
    /// Questions to the model, by their effects' numbers.
    questions: Vec<u32>,
}

fn path(request: &Received) -> &str {
    request.head.split(' ').nth(1).unwrap_or_default()
}

/// The number of the effect that asks the model: the first one, or what it is told after its tool call.
fn question(request: &Received) -> u32 {
    let asked: Value = serde_json::from_slice(&request.body).unwrap();
    if asked["messages"].as_array().unwrap().iter().any(|message| message["role"] == "tool") { 2 } else { 0 }
}

/// What the world answers: the model calls the tool `command` first, and ends with what it is told.
fn answer(request: &Received) -> Option<Answer> {
    if path(request) != MODEL {
        return Some(Answer::json(200, &json!({"ok": true})));
    }
    let message = match question(request) {
        0 => json!({"role": "assistant", "content": null, "tool_calls": [{
            "id": "call_1", "type": "function", "function": {"name": "command", "arguments": "{\"n\":1}"}}]}),
        _ => json!({"role": "assistant", "content": "{\"thought\": true}"}),
    };
    Some(Answer::json(200, &json!({"choices": [{"message": message}], "usage": {"total_tokens": 7}})))
}

/// One node of every kind, some beside each other, one that is tried again, one that a person answers.
async fn put_plan(client: &Client, modules: &BTreeMap<&str, String>, origin: &str) -> String {
    let capabilities = json!([{"http": {"hosts": [origin], "methods": ["GET"]}}]);
    let definitions = [
        ("calls_out", Definition::io("calls_out", &modules["calls_out"], capabilities)),
        ("pure", Definition::pure("pure", &modules["pure"])),
        ("native", Definition::code("native", &modules["native"])),
        ("command", Definition::tool("command")),
        ("flaky", Definition::tool("flaky")),
        ("approve", Definition::client("approve")),
        ("split", Definition::tool("split")),
        ("part", Definition::tool("part")),
        ("last", Definition::tool("last")),
    ];
    let inner = client.put_definition(&Definition::tool("inner")).await.unwrap();
    let inner = client.put_plan(&Plan::new().node("inner", &inner)).await.unwrap();
    let mut plan = Plan::new();
    for (node, definition) in definitions {
        plan = plan.node(node, &client.put_definition(&definition).await.unwrap());
    }
    // A model thinks beside the other three.
    let mut plan = plan.unbound("think");
    for node in ["pure", "native", "command", "think"] {
        plan = plan.edge("calls_out", node).edge(node, "flaky");
    }
    // Three tasks at a time: two parts and a child run beside them.
    let plan = plan.node("sub", &inner).edge("flaky", "split").edge("flaky", "sub");
    let plan = plan.edge("split", "part").edge("part", "approve").edge("sub", "approve");
    let plan = plan.edge_if("approve", "last", "approved");
    client.put_plan(&plan.with("retries", json!({"flaky": 1}))).await.unwrap()
}
