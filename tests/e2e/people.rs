//! People steer runs: approvals that no crash repeats, pauses that outlive a restart, and decisions about effects in doubt.

use std::time::Instant;

use e2e::{
    document::{Definition, Plan},
    process::{PATIENCE, POLL},
    refusal::Refusal,
    shell_tool::ShellTool,
    stack::{Stack, Who},
};
use proto::runner::v1::{OnDangling, RunOptions, RunStatus, StartRunRequest};
use serde_json::{Value, json};
use tonic::Code;

/// Waits until a run has a status.
async fn until(stack: &Stack, run_id: &str, status: RunStatus) -> proto::runner::v1::Run {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let run = stack.client().get(run_id).await.unwrap();
        if run.status() == status {
            return run;
        }
        assert!(Instant::now() < deadline, "{run_id} is {:?}, never {status:?}: {}", run.status(), run.reason);
        tokio::time::sleep(POLL).await;
    }
}

async fn restart(stack: &mut Stack) {
    stack.runner.process().kill().unwrap();
    stack.runner.restart().await.unwrap();
}

#[tokio::test]
async fn effects_between_approvals_happen_once_however_often_the_runner_dies_in_between() {
    let builder = Stack::builder().unwrap();
    let tool = ShellTool::doing(builder.directory()).unwrap();
    let command = tool.command();
    let mut stack = builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap();
    let client = stack.client();
    let approve = client.put_definition(&Definition::client("approve")).await.unwrap();
    let mut plan = Plan::new();
    for node in ["a", "b", "c"] {
        let definition = client.put_definition(&Definition::tool(node)).await.unwrap();
        plan = plan.node(node, &definition);
    }
    let plan = plan.node("first", &approve).node("second", &approve);
    let plan = plan.edge("a", "first").edge("first", "b").edge("b", "second").edge("second", "c");
    let plan = client.put_plan(&plan).await.unwrap();
    client.run("r1", &plan, &json!({})).await.unwrap();
    for node in ["first", "second"] {
        for _ in 0..2 {
            restart(&mut stack).await;
        }
        let asks = stack.client().asks("r1").await.unwrap();
        assert_eq!((asks.len(), asks[0].node.as_str()), (1, node));
        stack.client_of(Who::Approver).respond(&asks[0], &json!({})).await.unwrap();
        stack.client().wait_ask("r1").await.unwrap();
    }
    let run = stack.client().wait("r1").await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    let tools: Vec<String> = tool.calls().into_iter().map(|call| call.tool).collect();
    assert_eq!(tools, ["a", "b", "c"]);
    assert!(stack.client().verify("r1").await.unwrap().clean);
}

#[tokio::test]
async fn a_paused_run_rests_across_a_restart_until_it_is_resumed() {
    let builder = Stack::builder().unwrap();
    let (begun, go) = (builder.directory().join("begun"), builder.directory().join("go"));
    let body =
        format!("touch '{}'; while [ ! -e '{}' ]; do sleep 0.05; done; echo '{{}}'", begun.display(), go.display());
    let tool = ShellTool::write(builder.directory(), "slow.sh", &body).unwrap();
    let command = tool.command();
    let mut stack = builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap();
    let client = stack.client();
    let work = client.put_definition(&Definition::tool("work")).await.unwrap();
    let plan = client.put_plan(&Plan::chain([("a", &*work), ("b", &work)])).await.unwrap();
    client.start("r1", &plan, &json!({})).await.unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !begun.exists() {
        assert!(Instant::now() < deadline, "the tool was never started");
        tokio::time::sleep(POLL).await;
    }
    let run = client.pause("r1").await.unwrap();
    assert_eq!((run.status(), run.paused_by.as_str()), (RunStatus::Running, "user:runner"));
    assert!(run.waiting.iter().any(|waiting| waiting.what.contains("to pause there for user:runner")), "{run:?}");
    std::fs::write(&go, "").unwrap();
    let run = until(&stack, "r1", RunStatus::Paused).await;
    assert!(run.waiting[0].what.contains("user:runner paused") && run.waiting[0].unblocked_by == "ResumeRun");
    assert_eq!(client.pause("r1").await.unwrap().events, run.events, "pausing twice is the same as once");

    restart(&mut stack).await;
    let run = until(&stack, "r1", RunStatus::Paused).await;
    assert_eq!((run.paused_by.as_str(), tool.calls().len()), ("user:runner", 1));
    let client = stack.client();
    client.resume("r1").await.unwrap();
    let run = client.wait("r1").await.unwrap();
    assert_eq!((run.status(), run.paused_by.as_str()), (RunStatus::Completed, ""), "{}", run.reason);
    assert_eq!(tool.calls().len(), 2);
    assert!(client.verify("r1").await.unwrap().clean);
    for refused in [client.pause("r1").await, client.resume("r1").await] {
        Refusal::expected(refused).is(Code::FailedPrecondition, "NOT_PAUSABLE").says("RUN-E029", &["has ended"]);
    }
    Refusal::expected(client.pause("ghost").await).is(Code::NotFound, "RUN_NOT_FOUND");
    Refusal::expected(stack.client_of(Who::Reader).pause("r1").await).says("RUN-E012", &["run.execute"]);
}

#[tokio::test]
async fn what_a_crash_left_in_doubt_is_decided_by_a_person_who_did_not_start_it() {
    let builder = Stack::builder().unwrap();
    let (begun, go) = (builder.directory().join("begun"), builder.directory().join("go"));
    let body = format!(
        "echo x >> '{}'; while [ ! -e '{}' ]; do sleep 0.05; done; echo '{{\"sent\": true}}'",
        begun.display(),
        go.display()
    );
    let tool = ShellTool::write(builder.directory(), "slow.sh", &body).unwrap();
    let command = tool.command();
    let mut stack = builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    let runs = ["again", "fails", "happened"];
    for run_id in runs {
        let options = RunOptions { on_dangling: OnDangling::Ask.into(), ..Default::default() };
        let start = e2e::client::request(run_id, &plan, &json!({"n": 9_007_199_254_740_993_u64}));
        client.start_with(StartRunRequest { options: Some(options), ..start }).await.unwrap();
    }
    let deadline = Instant::now() + PATIENCE;
    while std::fs::read_to_string(&begun).unwrap_or_default().lines().count() < runs.len() {
        assert!(Instant::now() < deadline, "the tool was never started for every run");
        tokio::time::sleep(POLL).await;
    }
    restart(&mut stack).await;
    std::fs::write(&go, "").unwrap();
    let approver = stack.client_of(Who::Approver);
    let decisions = [
        json!({"decision": "redispatch"}),
        json!({"decision": "fail", "reason": "it was sent twice"}),
        json!({"decision": "result", "result": {"sent": "by hand"}}),
    ];
    for (run_id, decision) in runs.into_iter().zip(decisions) {
        let run = until(&stack, run_id, RunStatus::Waiting).await;
        assert!(run.waiting[0].what.contains("was in flight when its process ended"), "{:?}", run.waiting);
        let ask = run.asks[0].clone();
        assert!(ask.tool_description.contains("nobody knows whether it happened"), "{}", ask.tool_description);
        let question: Value = serde_json::from_str(&ask.input_json).unwrap();
        assert_eq!(question["input"]["n"], json!(9_007_199_254_740_993_u64));
        assert!(ask.output_schema_json.contains("redispatch"));
        let own = Refusal::expected(stack.client().respond(&ask, &decision).await);
        own.is(Code::PermissionDenied, "SELF_APPROVAL");
        let wrong = Refusal::expected(approver.respond(&ask, &json!({"decision": "perhaps"})).await);
        wrong.is(Code::InvalidArgument, "INVALID_ARGUMENT").says("", &["/decision"]);
        approver.respond(&ask, &decision).await.unwrap();
    }
    let client = stack.client();
    let again = client.wait("again").await.unwrap();
    assert_eq!(again.status(), RunStatus::Completed, "{}", again.reason);
    let entries = client.entries("again").await.unwrap();
    assert_eq!((entries[0].dispatches, entries[0].status.as_str()), (2, "completed"));
    let fails = client.wait("fails").await.unwrap();
    assert_eq!(fails.status(), RunStatus::Failed);
    assert!(fails.reason.starts_with("RUN-E008: ") && fails.reason.contains("it was sent twice"), "{}", fails.reason);
    let happened = client.wait("happened").await.unwrap();
    assert!(happened.output_json.contains("by hand"), "{}", happened.output_json);
    let key = |run_id: &str, calls: &[e2e::shell_tool::Call], entries: &[proto::runner::v1::JournalEntry]| {
        let sent = calls.iter().filter(|call| call.key == entries[0].idempotency_key).count();
        (run_id.to_owned(), sent)
    };
    let mut sent = Vec::new();
    for run_id in runs {
        sent.push(key(run_id, &tool.calls(), &client.entries(run_id).await.unwrap()));
        assert!(client.verify(run_id).await.unwrap().clean);
    }
    assert_eq!(sent.iter().map(|(_, sent)| *sent).collect::<Vec<_>>(), [2, 1, 1], "{sent:?}");
}
