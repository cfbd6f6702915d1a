//! Fan-out and delays, against a real runner: wide waves, bursts of large results, kills in the middle.

use std::collections::{BTreeMap, BTreeSet};

use e2e::{
    client::{Client, request},
    document::{Definition, Plan},
    host_tool::HostTool,
    process::POLL,
    stack::Stack,
};
use proto::{
    runner::v1::{Backoff, NodePolicy, Run, RunOptions, RunStatus, StartRunRequest},
    tool::v1::{ExecuteToolRequest, ExecuteToolResponse, ToolFailure, execute_tool_response::Outcome},
};
use serde_json::{Value, json};
use tonic::Status;

fn answer(output: &Value) -> Result<ExecuteToolResponse, Status> {
    Ok(ExecuteToolResponse { outcome: Some(Outcome::OutputJson(output.to_string())) })
}

fn broken() -> Result<ExecuteToolResponse, Status> {
    let failure = ToolFailure { detail: "it broke".into(), retryable: true };
    Ok(ExecuteToolResponse { outcome: Some(Outcome::Failure(failure)) })
}

/// A runner with a host-tool service.
async fn stack(tool: &HostTool) -> Stack {
    let url = tool.url();
    Stack::builder().unwrap().runner(|flags| flags.tool_url(&url)).start().await.unwrap()
}

/// `split` sends so many tasks, each of which gives so many bytes; `join` comes after.
async fn splitting(tasks: usize, bytes: usize) -> HostTool {
    let work = move |call: &ExecuteToolRequest| match call.tool_name.as_str() {
        "split" => {
            let send = |n| json!({"node": "work", "input": {"n": n}});
            answer(&json!({"$send": (0..tasks).map(send).collect::<Vec<_>>()}))
        }
        "work" => {
            let input: Value = serde_json::from_str(&call.input_json).unwrap();
            answer(&json!({"log": input["n"], "last": "x".repeat(bytes)}))
        }
        _ => answer(&json!({})),
    };
    HostTool::start(work).await.unwrap()
}

async fn plan(client: &Client) -> String {
    let mut plan = Plan::new();
    for name in ["split", "work", "join"] {
        plan = plan.node(name, &client.put_definition(&Definition::tool(name)).await.unwrap());
    }
    let plan = plan.edge("split", "work").edge("work", "join").with("reducers", json!({"log": "append"}));
    client.put_plan(&plan).await.unwrap()
}

/// Calls of a tool, by idempotency key.
fn calls(tool: &HostTool, name: &str) -> BTreeMap<String, usize> {
    let mut calls = BTreeMap::new();
    for call in tool.calls().into_iter().filter(|call| call.tool_name == name) {
        *calls.entry(call.idempotency_key).or_default() += 1;
    }
    calls
}

fn log(run: &Run) -> Vec<u64> {
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    let output: Value = serde_json::from_str(&run.output_json).unwrap();
    output["log"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect()
}

#[tokio::test]
async fn thousands_of_tasks_run_once_each_and_merge_in_their_order() {
    const TASKS: usize = 2500;
    let tool = splitting(TASKS, 0).await;
    let stack = stack(&tool).await;
    let plan = plan(&stack.client()).await;
    let run = stack.client().run("r1", &plan, &json!({})).await.unwrap();
    assert_eq!(log(&run), (0..TASKS as u64).collect::<Vec<_>>());
    let work = calls(&tool, "work");
    assert_eq!((work.len(), work.values().max()), (TASKS, Some(&1)));
    assert_eq!((calls(&tool, "join").len(), run.supersteps), (1, 3));
    assert!(stack.client().verify("r1").await.unwrap().clean);
}

#[tokio::test]
async fn a_burst_of_large_results_is_journaled_whole() {
    // Together far more than one append to the journal holds.
    const TASKS: usize = 300;
    let tool = splitting(TASKS, 60_000).await;
    let stack = stack(&tool).await;
    let plan = plan(&stack.client()).await;
    tool.answer_at_most(1);
    stack.client().start("r1", &plan, &json!({})).await.unwrap();
    while calls(&tool, "work").is_empty() {
        tokio::time::sleep(POLL).await;
    }
    tool.answer_at_most(usize::MAX);
    let run = stack.client().wait("r1").await.unwrap();
    assert_eq!(log(&run).len(), TASKS);
    assert!(run.spent.unwrap().storage_bytes > 60_000 * TASKS as u64);
    assert!(stack.client().verify("r1").await.unwrap().clean);
}

#[tokio::test]
async fn a_kill_in_the_middle_of_a_fan_out_repeats_only_what_was_in_flight() {
    const TASKS: usize = 100;
    const ANSWERED: usize = 84;
    let tool = splitting(TASKS, 0).await;
    let mut stack = stack(&tool).await;
    let plan = plan(&stack.client()).await;
    tool.answer_at_most(1 + ANSWERED);
    stack.client().start("r1", &plan, &json!({})).await.unwrap();
    let recorded = async |client: Client| {
        let entries = client.entries("r1").await.unwrap();
        entries.into_iter().filter(|entry| entry.node == "work" && entry.status == "completed").count()
    };
    while recorded(stack.client()).await < ANSWERED {
        tokio::time::sleep(POLL).await;
    }
    stack.runner.process().kill().unwrap();
    tool.answer_at_most(usize::MAX);
    stack.runner.restart().await.unwrap();
    let run = stack.client().wait("r1").await.unwrap();
    assert_eq!(log(&run), (0..TASKS as u64).collect::<Vec<_>>());
    let work = calls(&tool, "work");
    let again = work.values().filter(|calls| **calls > 1).count();
    assert_eq!(work.len(), TASKS, "the same keys again");
    assert!(again <= TASKS - ANSWERED, "{again} were sent again");
    let paths: BTreeSet<String> =
        stack.client().entries("r1").await.unwrap().into_iter().map(|entry| entry.task_path).collect();
    assert_eq!(paths.len(), 1 + TASKS);
    assert!(paths.contains("split/0099"));
    assert!(stack.client().verify("r1").await.unwrap().clean);
}

#[tokio::test]
async fn a_bad_list_fails_its_sender_by_name() {
    let tool = HostTool::start(|_| answer(&json!({"$send": [{"node": "nobody", "input": {}}]}))).await.unwrap();
    let stack = stack(&tool).await;
    let plan = plan(&stack.client()).await;
    let run = stack.client().run("r1", &plan, &json!({})).await.unwrap();
    assert_eq!((run.status(), run.failed_node.as_str()), (RunStatus::Failed, "split"));
    assert!(run.reason.contains("`$send[0]` names node `nobody`"), "{}", run.reason);
    assert_eq!(tool.calls().len(), 1);
}

#[tokio::test]
async fn a_delay_between_attempts_is_kept_over_a_crash() {
    let tool = HostTool::start(|_| broken()).await.unwrap();
    let mut stack = stack(&tool).await;
    let client = stack.client();
    let hash = client.put_definition(&Definition::tool("work")).await.unwrap();
    let plan = client.put_plan(&Plan::work(&hash).with("retries", json!({"work": 2}))).await.unwrap();
    let initial = Some(prost_types::Duration { seconds: 1, nanos: 0 });
    let backoff = Some(Backoff { initial, factor: 1.0, max: None, jitter: 0.0 });
    let node_policies = vec![NodePolicy { node: "work".into(), timeout: None, backoff }];
    let options = Some(RunOptions { node_policies, ..Default::default() });
    client.start_with(StartRunRequest { options, ..request("r1", &plan, &json!({})) }).await.unwrap();
    let scheduled = async |client: Client| {
        let events = client.events("r1").await.unwrap();
        events.into_iter().find(|event| event.kind == "RetryScheduled")
    };
    let scheduled = loop {
        if let Some(event) = scheduled(stack.client()).await {
            break event;
        }
        tokio::time::sleep(POLL).await;
    };
    let waiting = stack.client().get("r1").await.unwrap().waiting;
    assert!(tool.calls().len() > 1 || waiting[0].what.contains("backing off"), "{waiting:?}");
    stack.runner.process().kill().unwrap();
    stack.runner.restart().await.unwrap();
    let run = stack.client().wait("r1").await.unwrap();
    assert_eq!((run.status(), tool.calls().len()), (RunStatus::Failed, 3), "three attempts, three calls");
    let body: Value = serde_json::from_str(&scheduled.body_json).unwrap();
    let due_ms = body["due_ms"].as_u64().unwrap();
    let events = stack.client().events("r1").await.unwrap();
    let is_second = |body: &Value| body["attempt"] == 2;
    let second = events
        .into_iter()
        .find(|event| event.kind == "IntentRecorded" && is_second(&serde_json::from_str(&event.body_json).unwrap()));
    let at = second.unwrap().at.unwrap();
    let began_ms = u64::try_from(at.seconds * 1000 + i64::from(at.nanos / 1_000_000)).unwrap();
    assert!(began_ms >= due_ms, "{began_ms} is before {due_ms}");
    assert!(stack.client().verify("r1").await.unwrap().clean);
}
