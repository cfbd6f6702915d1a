//! Abstract nodes: a model asked through the broker, its tool calls as effects, all of it journaled; a crash asks nothing again
//! that was answered.

use e2e::{
    client::{Client, request},
    document::{Definition, Plan},
    evidence::verify,
    flags::Flags,
    process::POLL,
    refusal::Refusal,
    service::refused_start,
    shell_tool::ShellTool,
    stack::{Builder, Stack, Who},
    upstream::{Answer, Received, Upstream},
};
use proto::runner::v1::{Budgets, RunOptions, RunStatus, StartRunRequest};
use serde_json::{Value, json};

const SECRET: &str = "areev-canary-Zq7-of-the-model";
/// More commits than any run here makes: a bound for the sweep.
const COMMITS_MAX: u32 = 100;

/// Calls the tool `lookup` first, and ends with what it is told.
fn respond(request: &Received) -> Option<Answer> {
    let asked: Value = serde_json::from_slice(&request.body).unwrap();
    let messages = asked["messages"].as_array().unwrap();
    let message = match messages.last().unwrap()["role"].as_str().unwrap() {
        "tool" => json!({"role": "assistant", "content": "{\"answer\": 42}"}),
        _ => json!({"role": "assistant", "content": null, "tool_calls": [{
            "id": "call_1", "type": "function",
            "function": {"name": "lookup", "arguments": "{\"key\":\"meaning\"}"}}]}),
    };
    Some(Answer::json(200, &json!({"choices": [{"message": message}], "usage": {"total_tokens": 7}})))
}

struct Lab {
    stack: Stack,
    tool: ShellTool,
    upstream: Upstream,
    plan: String,
}

fn with_model(builder: Builder, origin: &str, name: &str) -> Builder {
    let url = format!("{origin}/v1/chat/completions");
    builder.runner(|flags| flags.value("--model-url", url).value("--model", name).value("--model-credential", "models"))
}

/// The broker lets model calls out to the upstream, with the credential.
fn settings(origin: &str) -> String {
    format!(
        "[policy]\nallow_hosts = [{origin:?}]\nallow_private = [\"127.0.0.0/8\"]\n\
         [credentials.models]\nkind = \"bearer\"\nfrom = \"env:MODEL_KEY\"\nhosts = [{origin:?}]\n\
         [grants.model]\ncredentials = [\"models\"]\nmethods = [\"POST\"]\nhosts = [{origin:?}]\n"
    )
}

/// `think`, which a model does, then a person, then the tool `lookup`.
async fn lab() -> Lab {
    let upstream = Upstream::start(respond).await.unwrap();
    let origin = upstream.origin();
    let builder = Stack::builder().unwrap().broker(&settings(&origin), &[("MODEL_KEY", SECRET)]).unwrap();
    let tool = ShellTool::doing(builder.directory()).unwrap();
    let command = tool.command();
    let builder = with_model(builder.runner(|flags| flags.tool_cmd(&command)), &origin, "small-1");
    let stack = builder.start().await.unwrap();
    let client = stack.client();
    let lookup = client.put_definition(&Definition::tool("lookup")).await.unwrap();
    let approve = client.put_definition(&Definition::client("approve")).await.unwrap();
    let plan = Plan::new().unbound("think").node("approve", &approve).node("last", &lookup);
    let plan = client.put_plan(&plan.edge("think", "approve").edge("approve", "last")).await.unwrap();
    Lab { stack, tool, upstream, plan }
}

impl Lab {
    fn client(&self) -> Client {
        self.stack.client()
    }

    async fn approve(&self, run_id: &str) -> Result<(), tonic::Status> {
        for ask in self.client().asks(run_id).await? {
            self.stack.client_of(Who::Approver).respond(&ask, &json!({"ok": true})).await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn the_export_of_a_run_that_asked_a_model_holds_by_itself() {
    let lab = lab().await;
    let client = lab.client();
    client.run("r1", &lab.plan, &json!({"q": "why"})).await.unwrap();
    lab.approve("r1").await.unwrap();
    let run = client.wait("r1").await.unwrap();
    let receipt = run.receipt.expect("a run that has ended has a receipt");
    for with_blobs in [false, true] {
        let file = lab.stack.directory().join("run.jsonl");
        std::fs::write(&file, client.export("r1", with_blobs).await.unwrap()).unwrap();
        let (code, report) = verify(&file, &["--key", &receipt.public_key]).unwrap();
        assert_eq!((code, &report["clean"]), (0, &json!(true)), "{report}");
        assert_eq!((&report["events"], &report["head_hash"]), (&json!(run.events), &json!(receipt.head_hash)));
    }
    assert_eq!(lab.upstream.received().len(), 2, "checking asks nobody");
}

#[tokio::test]
async fn a_model_is_asked_through_the_broker_and_calls_the_plans_tools() {
    let lab = lab().await;
    let client = lab.client();
    let run = client.run("r1", &lab.plan, &json!({"q": "why"})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Waiting, "{}", run.reason);
    lab.approve("r1").await.unwrap();
    let run = client.wait("r1").await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    let output: Value = serde_json::from_str(&run.output_json).unwrap();
    assert_eq!(output, json!({"q": "why", "answer": 42, "ok": true, "did_lookup": true}));

    let entries = client.entries("r1").await.unwrap();
    let of_think: Vec<_> = entries.iter().filter(|entry| entry.node == "think").collect();
    let shape: Vec<_> = of_think.iter().map(|entry| (entry.kind.as_str(), entry.effect_seq, entry.exchanges)).collect();
    assert_eq!(shape, [("llm", 0, 1), ("tool", 1, 0), ("llm", 2, 1)]);
    let manifest = client.manifest("r1").await.unwrap();
    assert_eq!(manifest.nodes[0].kind, "abstract");
    assert!(client.verify("r1").await.unwrap().clean);

    let asked = lab.upstream.received();
    assert_eq!(asked.len(), 2);
    for request in &asked {
        assert!(request.head.starts_with("POST /v1/chat/completions "), "{}", request.head);
        assert_eq!(request.header("authorization"), [format!("Bearer {SECRET}")]);
        assert!(request.body_text().contains("\"temperature\":0"));
    }
    let log = std::fs::read_to_string(lab.stack.runner.log()).unwrap();
    assert!(!log.contains(SECRET) && !manifest.manifest_json.contains(SECRET));
    let events = client.events("r1").await.unwrap();
    assert!(events.iter().all(|event| !event.body_json.contains(SECRET)));
}

#[tokio::test]
async fn a_kill_after_each_commit_asks_nothing_again_that_was_answered() {
    let mut lab = lab().await;
    let mut killed = 0;
    for commits in 1..COMMITS_MAX {
        lab.stack.runner.flags.no_crash();
        lab.stack.runner.flags = lab.stack.runner.flags.clone().crash_after_commits(commits);
        if lab.stack.runner.restart().await.is_err() {
            continue;
        }
        let (before, run_id) = (lab.upstream.received().len(), format!("r{commits}"));
        lab.tool.forget().unwrap();
        let done = drive(&mut lab, &run_id).await;
        if done {
            assert!(killed > 3, "only {killed} points were killed");
            return;
        }
        killed += 1;
        lab.stack.runner.flags.no_crash();
        lab.stack.runner.restart().await.unwrap();
        assert!(drive(&mut lab, &run_id).await);
        let entries = lab.client().entries(&run_id).await.unwrap();
        let again: u32 = entries.iter().map(|entry| entry.dispatches - 1).sum();
        assert!(again <= 1, "{run_id}: only what was in flight is sent again: {entries:?}");
        let asked = lab.upstream.received().len() - before;
        assert!((2..=3).contains(&asked), "{run_id}: the model was asked {asked} times");
        assert!(lab.client().verify(&run_id).await.unwrap().clean);
    }
    panic!("the run still makes commits after {COMMITS_MAX} of them");
}

/// Drives a run until it or the runner ends; true when the run has.
async fn drive(lab: &mut Lab, run_id: &str) -> bool {
    while lab.stack.runner.process().exit().is_none() {
        if push(lab, run_id).await.unwrap_or_default() {
            return true;
        }
        tokio::time::sleep(POLL).await;
    }
    false
}

async fn push(lab: &Lab, run_id: &str) -> Result<bool, tonic::Status> {
    lab.client().start(run_id, &lab.plan, &json!({})).await?;
    let run = lab.client().wait_ask(run_id).await?;
    lab.approve(run_id).await?;
    assert_ne!(run.status(), RunStatus::Failed, "{}", run.reason);
    Ok(run.status() == RunStatus::Completed)
}

#[tokio::test]
async fn a_run_does_not_go_on_under_another_model() {
    let mut lab = lab().await;
    lab.client().run("r1", &lab.plan, &json!({})).await.unwrap();
    let flags = lab.stack.runner.flags.clone();
    lab.stack.runner.process().kill().unwrap();
    lab.stack
        .runner
        .flags
        .arguments
        .iter_mut()
        .filter(|flag| *flag == "small-1")
        .for_each(|flag| *flag = "large-2".into());
    lab.stack.runner.restart().await.unwrap();
    let run = lab.client().get("r1").await.unwrap();
    assert_eq!(run.status(), RunStatus::Quarantined);
    assert!(run.reason.contains("RUN-E025") && run.reason.contains("--model small-1"), "{}", run.reason);
    lab.stack.runner.process().kill().unwrap();
    lab.stack.runner.flags = flags;
    lab.stack.runner.restart().await.unwrap();
    lab.approve("r1").await.unwrap();
    assert_eq!(lab.client().wait("r1").await.unwrap().status(), RunStatus::Completed);
}

/// A model that answers at once and tells what it read and wrote.
fn terse(_: &Received) -> Option<Answer> {
    Some(Answer::json(
        200,
        &json!({"choices": [{"message": {"role": "assistant", "content": "{\"done\": true}"}}],
                "usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}}),
    ))
}

#[tokio::test]
async fn a_models_turns_are_charged_at_the_price_of_the_start_and_a_budget_of_money_needs_one() {
    let upstream = Upstream::start(terse).await.unwrap();
    let origin = upstream.origin();
    let priced = |flags: Flags| flags.value("--model-input-price", "150000").value("--model-output-price", "600000");
    let builder = Stack::builder().unwrap().broker(&settings(&origin), &[("MODEL_KEY", SECRET)]).unwrap();
    let stack = with_model(builder, &origin, "small-1").runner(priced).start().await.unwrap();
    let client = stack.client();
    let plan = Plan::new().unbound("a").unbound("b").edge("a", "b");
    let plan = client.put_plan(&plan).await.unwrap();
    let start = |run_id: &str, max_usd_micros: u64| {
        let budgets = Some(Budgets { max_usd_micros: Some(max_usd_micros), ..Budgets::default() });
        let options = Some(RunOptions { budgets, ..RunOptions::default() });
        StartRunRequest { options, wait: true, ..request(run_id, &plan, &json!({})) }
    };
    let enough = client.runner().start_run(start("r1", 1_000_000)).await.unwrap().into_inner().run.unwrap();
    assert_eq!((enough.status(), enough.spent.unwrap().usd_micros), (RunStatus::Completed, 420), "{}", enough.reason);
    let short = client.runner().start_run(start("r2", 210)).await.unwrap().into_inner().run.unwrap();
    assert_eq!(short.status(), RunStatus::BudgetExhausted, "{}", short.reason);
    assert!(short.reason.contains("max_usd_micros") && short.reason.contains("210"), "{}", short.reason);
    assert!(client.verify("r2").await.unwrap().clean);

    let builder = Stack::builder().unwrap().broker(&settings(&origin), &[("MODEL_KEY", SECRET)]).unwrap();
    let stack = with_model(builder, &origin, "small-1").start().await.unwrap();
    let client = stack.client();
    client.put_plan(&Plan::new().unbound("a").unbound("b").edge("a", "b")).await.unwrap();
    let refusal = Refusal::expected(client.runner().start_run(start("r1", 1_000_000)).await);
    refusal.says("RUN-E006", &["max_usd_micros", "small-1", "--model-input-price"]);
}

#[tokio::test]
async fn an_abstract_node_needs_a_model_and_a_model_needs_a_broker() {
    let stack = Stack::builder().unwrap().start().await.unwrap();
    let plan = stack.client().put_plan(&Plan::new().unbound("think")).await.unwrap();
    let refusal = Refusal::expected(stack.client().start("r1", &plan, &json!({})).await);
    refusal.says("RUN-E006", &["think", "--model-url"]);
    let flags = Flags::runner(&stack.directory().join("other"));
    let output = refused_start(&flags.value("--model-url", "https://m.example.com/v1").value("--model", "m")).unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && said.contains("--broker-url"), "{said}");
}
