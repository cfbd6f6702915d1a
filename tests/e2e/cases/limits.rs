//! Results at the limit, over it, far over it, and many below it that are more than one message together: typed failures, a
//! run that ends, a service that stays small.

use e2e::{
    client::Client,
    document::{Definition, Plan},
    host_tool::HostTool,
    refusal::Refusal,
    stack::Stack,
};
use proto::{
    runner::v1::{CancelResult, RunStatus},
    tool::v1::{ExecuteToolResponse, execute_tool_response::Outcome},
};
use serde_json::json;
use tonic::Code;

use super::ended_once;

/// Largest result of an effect, in bytes.
const RESULT_BYTES_MAX: usize = 8 * 1024 * 1024;
const MIB: usize = 1024 * 1024;
/// What a message of the services may have: ten results are more.
const MESSAGE_BYTES_MAX: usize = 18 * MIB;
/// Most that the runner may hold while a result of 64 MiB comes: its own state, and no copy of that.
const HELD_BYTES_MAX: u64 = 400 * 1024 * 1024;

/// A tool whose result is a JSON string of as many bytes as its name says, quotes included.
async fn stack() -> (Stack, HostTool) {
    let tool = HostTool::start(|request| {
        let bytes: usize = request.tool_name.trim_start_matches("bytes_").parse().unwrap();
        let text = format!("\"{}\"", "a".repeat(bytes - 2));
        Ok(ExecuteToolResponse { outcome: Some(Outcome::OutputJson(text)) })
    })
    .await
    .unwrap();
    let url = tool.url();
    (Stack::builder().unwrap().runner(|flags| flags.tool_url(&url)).start().await.unwrap(), tool)
}

async fn plan(client: &Client, bytes: usize) -> String {
    let work = client.put_definition(&Definition::tool(&format!("bytes_{bytes}"))).await.unwrap();
    client.put_plan(&Plan::work(&work)).await.unwrap()
}

/// The most memory that a process has held, in bytes.
fn held(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn a_result_at_the_limit_passes_one_byte_more_and_64_mib_fail_by_name_and_the_runner_stays_small() {
    let (mut stack, tool) = stack().await;
    let client = stack.client();
    let at = plan(&client, RESULT_BYTES_MAX).await;
    let run = client.run("at", &at, &json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    assert_eq!(run.output_json.len(), "{\"work\":}".len() + RESULT_BYTES_MAX, "whole");
    ended_once(&client, "at").await;
    for bytes in [RESULT_BYTES_MAX + 1, 64 * MIB] {
        let run_id = format!("over-{bytes}");
        let over = plan(&client, bytes).await;
        let run = client.run(&run_id, &over, &json!({})).await.unwrap();
        assert_eq!((run.status(), run.failed_node.as_str()), (RunStatus::Failed, "work"));
        assert!(run.reason.len() < 4096, "the text of a failure does not hold the result");
        if bytes == RESULT_BYTES_MAX + 1 {
            let says = ["RUN-E015", "RESULT_TOO_LARGE", "8388609", "8388608"];
            assert!(says.iter().all(|part| run.reason.contains(part)), "{}", run.reason);
        }
        // Whoever looks, cancels or reads what happened gets an answer, and the run's place is free again.
        assert_eq!(client.get(&run_id).await.unwrap().status(), RunStatus::Failed);
        assert_eq!(client.cancel(&run_id, "late").await.unwrap().result(), CancelResult::AlreadyFinished);
        let entries = client.entries(&run_id).await.unwrap();
        assert_eq!((entries.len(), entries[0].status.as_str()), (1, "failed"));
        ended_once(&client, &run_id).await;
    }
    assert_eq!(tool.calls().len(), 3, "none of them is asked for again");
    let held = held(stack.runner.process().pid());
    assert!(held < HELD_BYTES_MAX, "the runner held {held} bytes");
}

#[tokio::test]
async fn ten_results_that_are_more_than_a_message_together_are_journaled_and_can_be_read() {
    const BYTES: usize = 2 * MIB;
    const { assert!(10 * BYTES > MESSAGE_BYTES_MAX) };
    let (stack, _tool) = stack().await;
    let client = stack.client();
    let large = client.put_definition(&Definition::tool(&format!("bytes_{BYTES}"))).await.unwrap();
    let small = client.put_definition(&Definition::tool("bytes_4")).await.unwrap();
    let names: Vec<String> = (0..10).map(|number| format!("n{number}")).collect();
    let plan =
        names.iter().fold(Plan::new().node("first", &small), |plan, node| plan.node(node, &large).edge("first", node));
    let plan = client.put_plan(&plan).await.unwrap();
    let run = client.run("r1", &plan, &json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    // The final state alone is more than a message: its length is told, and the export has it.
    assert!(run.output_json.is_empty() && run.output_bytes > 10 * BYTES as u64, "{}", run.output_bytes);
    assert_eq!(client.get("r1").await.unwrap().output_bytes, run.output_bytes);
    let events = client.events("r1").await.unwrap();
    assert_eq!(events.last().unwrap().kind, "RunFinished");
    assert_eq!(events.iter().filter(|event| event.kind == "ResultRecorded").count(), 11);
    let verified = client.verify("r1").await.unwrap();
    assert!(verified.clean, "{}", verified.divergence);
    let exported = client.export("r1", false).await.unwrap();
    assert!(exported.len() > 10 * BYTES, "{}", exported.len());
    assert_eq!(client.cancel("r1", "late").await.unwrap().result(), CancelResult::AlreadyFinished);
}

#[tokio::test]
async fn a_request_over_the_limit_is_refused_before_anything_is_written() {
    let (stack, tool) = stack().await;
    let client = stack.client();
    let plan = plan(&client, 4).await;
    // Over the input's bound, and over what a message may have at all.
    for bytes in [RESULT_BYTES_MAX + 1, MESSAGE_BYTES_MAX + 1] {
        let refusal = Refusal::expected(client.start("r1", &plan, &json!({"text": "a".repeat(bytes)})).await);
        let expected = matches!(refusal.grpc, Code::ResourceExhausted | Code::OutOfRange);
        assert!(expected && refusal.text.len() < 4096, "{refusal:?}");
        Refusal::expected(client.get("r1").await).is(Code::NotFound, "RUN_NOT_FOUND");
    }
    assert!(tool.calls().is_empty());
}
