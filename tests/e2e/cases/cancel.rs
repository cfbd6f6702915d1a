//! Cancel in every state, twice: the run is over within a second, the second call says what the first said, and nothing that
//! the run waited for is left.

use std::time::{Duration, Instant};

use e2e::{
    client::{Client, request},
    document::{Definition, Plan},
    guests,
    host_tool::HostTool,
    stack::Stack,
};
use proto::{
    runner::v1::{Backoff, CancelResult, CancelRunResponse, RunOptions, RunStatus, StartRunRequest},
    tool::v1::{ExecuteToolResponse, ToolFailure, execute_tool_response::Outcome},
};
use serde_json::json;

use super::{ended_once, policy, until, waits_for};

/// Longest time from a cancel to the end of the run.
const A_SECOND: Duration = Duration::from_secs(1);

/// A runner with one worker, a tool whose calls wait for the test, and a module whose sandbox is gone.
struct Office {
    stack: Stack,
    tool: HostTool,
    tool_plan: String,
    ask_plan: String,
    module_plan: String,
}

async fn office() -> Office {
    let failing = |name: &str| name == "broken";
    let tool = HostTool::start(move |request| {
        let outcome = if failing(&request.tool_name) {
            Outcome::Failure(ToolFailure { retryable: true, detail: "not today".to_owned() })
        } else {
            Outcome::OutputJson("{}".to_owned())
        };
        Ok(ExecuteToolResponse { outcome: Some(outcome) })
    })
    .await
    .unwrap();
    let url = tool.url();
    let module = guests::echo();
    let builder = Stack::builder().unwrap().pin(&module).sandbox();
    let mut stack = builder.runner(|flags| flags.tool_url(&url).value("--workers", "1")).start().await.unwrap();
    let client = stack.client();
    let tool_plan = client.put_work(&Definition::tool("work")).await.unwrap();
    let ask_plan = client.put_work(&Definition::client("work")).await.unwrap();
    let uri = client.put_blob(&module).await.unwrap();
    let module_plan = client.put_work(&Definition::pure("work", &uri)).await.unwrap();
    stack.sandbox.as_mut().unwrap().process().kill().unwrap();
    Office { stack, tool, tool_plan, ask_plan, module_plan }
}

/// Cancels twice: over within a second, the same receipt, nothing left to wait for.
async fn canceled_twice(client: &Client, run_id: &str) -> CancelRunResponse {
    let asked = Instant::now();
    let first = client.cancel(run_id, "enough").await.unwrap();
    let took = asked.elapsed();
    assert!(took < A_SECOND, "{run_id} took {took:?} to end");
    assert_eq!(first.result(), CancelResult::Canceled, "{run_id}");
    let run = first.run.clone().unwrap();
    assert_eq!(run.status(), RunStatus::Canceled, "{run_id}: {}", run.reason);
    assert!(run.waiting.is_empty() && run.asks.is_empty(), "{run_id}: {:?}", run.waiting);
    let events = client.events(run_id).await.unwrap().len();
    let second = client.cancel(run_id, "again").await.unwrap();
    let told = |receipt: &CancelRunResponse| {
        (receipt.result, receipt.fence_sequence, receipt.effects_stopped, receipt.tokens_revoked)
    };
    assert_eq!(told(&first), told(&second), "{run_id}: canceling twice is the same as once");
    assert!(client.asks(run_id).await.unwrap().is_empty(), "{run_id}");
    assert_eq!(client.events(run_id).await.unwrap().len(), events, "{run_id}: nothing was written after the end");
    ended_once(client, run_id).await;
    first
}

#[tokio::test]
async fn a_run_is_canceled_twice_while_queued_for_a_worker_while_its_tool_works_and_while_it_waits_for_a_person() {
    let office = office().await;
    let client = office.stack.client();
    office.tool.answer_at_most(0);
    client.start("works", &office.tool_plan, &json!({})).await.unwrap();
    while office.tool.calls().is_empty() {
        tokio::time::sleep(e2e::process::POLL).await;
    }
    client.start("queued", &office.tool_plan, &json!({})).await.unwrap();
    waits_for(&client, "queued", "a free slot of --workers").await;
    canceled_twice(&client, "queued").await;
    assert_eq!(office.tool.calls().len(), 1, "what was queued was never sent");
    assert_eq!(canceled_twice(&client, "works").await.effects_stopped, 1);
    let options = RunOptions { ask_ttl: Some(prost_types::Duration { seconds: 1, nanos: 0 }), ..RunOptions::default() };
    client.run_with("asks", &office.ask_plan, &json!({}), options).await.unwrap();
    canceled_twice(&client, "asks").await;
}

#[tokio::test]
async fn a_run_is_canceled_twice_while_its_intent_is_written_and_no_sandbox_has_begun() {
    let office = office().await;
    let client = office.stack.client();
    client.start("r1", &office.module_plan, &json!({})).await.unwrap();
    let events = client.events("r1").await.unwrap();
    assert!(events.iter().any(|event| event.kind == "IntentRecorded"), "the intent is durable");
    canceled_twice(&client, "r1").await;
}

#[tokio::test]
async fn a_run_is_canceled_twice_while_it_backs_off_and_while_it_is_paused_and_no_timer_is_left() {
    let office = office().await;
    let client = office.stack.client();
    let broken = client.put_definition(&Definition::tool("broken")).await.unwrap();
    let plan = Plan::work(&broken).with("retries", json!({"work": 3}));
    let plan = client.put_plan(&plan).await.unwrap();
    let backoff = Backoff {
        initial: Some(prost_types::Duration { seconds: 3600, nanos: 0 }),
        factor: 1.0,
        max: None,
        jitter: 0.0,
    };
    let options = policy(|policy| policy.backoff = Some(backoff));
    let start = |run_id: &str| StartRunRequest { options: Some(options.clone()), ..request(run_id, &plan, &json!({})) };
    client.start_with(start("backing-off")).await.unwrap();
    waits_for(&client, "backing-off", "backing off").await;
    assert_eq!(canceled_twice(&client, "backing-off").await.effects_stopped, 0);

    let steps = client.put_definition(&Definition::tool("work")).await.unwrap();
    let chain = client.put_plan(&Plan::chain([("a", &*steps), ("b", &steps)])).await.unwrap();
    let before = office.tool.calls().len();
    office.tool.answer_at_most(before);
    client.start("paused", &chain, &json!({})).await.unwrap();
    client.pause("paused").await.unwrap();
    office.tool.answer_at_most(usize::MAX);
    until(&client, "paused", "is paused", |run| run.status() == RunStatus::Paused).await;
    canceled_twice(&client, "paused").await;
}

#[tokio::test]
async fn a_run_is_canceled_twice_while_its_result_arrives_and_one_of_both_wins() {
    let office = office().await;
    let client = office.stack.client();
    for round in 0..20 {
        let run_id = format!("r{round}");
        office.tool.answer_at_most(office.tool.calls().len());
        client.start(&run_id, &office.tool_plan, &json!({})).await.unwrap();
        let before = office.tool.calls().len();
        while office.tool.calls().len() < before.max(1) {
            tokio::time::sleep(e2e::process::POLL).await;
        }
        // The answer and the cancel set out at the same time.
        office.tool.answer_at_most(usize::MAX);
        let said = client.cancel(&run_id, "now").await.unwrap();
        let again = client.cancel(&run_id, "again").await.unwrap();
        assert_eq!(said.result, again.result, "{run_id}");
        let status = client.wait(&run_id).await.unwrap().status();
        let wanted = match said.result() {
            CancelResult::Canceled => RunStatus::Canceled,
            CancelResult::AlreadyFinished | CancelResult::Unspecified => RunStatus::Completed,
        };
        assert_eq!(status, wanted, "{run_id}");
        ended_once(&client, &run_id).await;
    }
}
