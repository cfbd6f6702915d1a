//! Why a run is not finished: in every state that is no end it says what it waits for, since when, and what would unblock it.

use std::time::SystemTime;

use e2e::{
    document::{Definition, Plan},
    guests,
    host_tool::HostTool,
    stack::Stack,
    stored::Stored,
};
use proto::{
    runner::v1::{Backoff, OnDangling, Run, RunOptions, RunStatus, StartRunRequest},
    tool::v1::{ExecuteToolResponse, ToolFailure, execute_tool_response::Outcome},
};
use serde_json::json;

use super::{policy, until, waits_for};

/// It waits for something that is named, since a time that has come and is not before the run's start, until something that can happen.
fn says_why(run: &Run, what: &str, unblocked_by: &str) {
    assert!(!run.waiting.is_empty(), "{} says nothing", run.run_id);
    for waiting in &run.waiting {
        assert!(!waiting.what.is_empty() && !waiting.unblocked_by.is_empty(), "{waiting:?}");
        let since = SystemTime::try_from(waiting.since.expect("since when")).unwrap();
        let started = SystemTime::try_from(run.started_at.expect("when it started")).unwrap();
        assert!(since <= SystemTime::now() + std::time::Duration::from_secs(1), "{waiting:?}");
        assert!(since >= started, "{waiting:?} since before the run's start");
    }
    let said =
        run.waiting.iter().any(|waiting| waiting.what.contains(what) && waiting.unblocked_by.contains(unblocked_by));
    assert!(said, "{what:?}, unblocked by {unblocked_by:?}, is not in {:?}", run.waiting);
}

#[tokio::test]
async fn every_state_that_is_no_end_says_what_it_waits_for_since_when_and_what_would_unblock_it() {
    let tool = HostTool::start(|request| {
        let outcome = match &*request.tool_name {
            "broken" => Outcome::Failure(ToolFailure { detail: "not today".to_owned(), retryable: true }),
            _ => Outcome::OutputJson("{}".to_owned()),
        };
        Ok(ExecuteToolResponse { outcome: Some(outcome) })
    })
    .await
    .unwrap();
    let url = tool.url();
    let module = guests::echo();
    let builder = Stack::builder().unwrap().pin(&module).sandbox();
    let mut stack = builder.runner(|flags| flags.tool_url(&url).value("--workers", "2")).start().await.unwrap();
    let client = stack.client();
    let work = client.put_work(&Definition::tool("work")).await.unwrap();
    let asks = client.put_work(&Definition::client("work")).await.unwrap();

    // For a person; for the end of a child run, and what that waits for.
    client.run("asks", &asks, &json!({})).await.unwrap();
    says_why(&client.get("asks").await.unwrap(), "answer to ask", "RespondToAsk by someone other than");
    let around = client.put_plan(&Plan::new().node("sub", &asks)).await.unwrap();
    client.run("parent", &around, &json!({})).await.unwrap();
    let run = waits_for(&client, "parent", "answer to ask").await;
    says_why(&run, "child run parent~", "its end");

    // For the clock.
    let broken = client.put_definition(&Definition::tool("broken")).await.unwrap();
    let plan = client.put_plan(&Plan::work(&broken).with("retries", json!({"work": 1}))).await.unwrap();
    let initial = Some(prost_types::Duration { seconds: 3600, nanos: 0 });
    let options = policy(|policy| policy.backoff = Some(Backoff { initial, factor: 1.0, max: None, jitter: 0.0 }));
    let start = e2e::client::request("backs-off", &plan, &json!({}));
    client.start_with(StartRunRequest { options: Some(options), ..start }).await.unwrap();
    says_why(&waits_for(&client, "backs-off", "backing off").await, "backing off", "its retry at");

    // For a tool; for the end of the superstep and then for whoever resumes it; for a worker.
    tool.answer_at_most(tool.calls().len());
    let in_doubt = RunOptions { on_dangling: OnDangling::Ask.into(), ..RunOptions::default() };
    for (run_id, options) in [("works", RunOptions::default()), ("doubted", in_doubt)] {
        let start = e2e::client::request(run_id, &work, &json!({}));
        client.start_with(StartRunRequest { options: Some(options), ..start }).await.unwrap();
    }
    let sent = tool.calls().len();
    until(&client, "works", "is sent", |_| tool.calls().len() >= sent.max(3)).await;
    says_why(&client.get("works").await.unwrap(), "effect of node `work`, attempt 1", "its result");
    client.start("queued", &work, &json!({})).await.unwrap();
    says_why(&waits_for(&client, "queued", "a free slot").await, "a free slot of --workers", "");
    client.pause("works").await.unwrap();
    says_why(&client.get("works").await.unwrap(), "to pause there for user:runner", "ResumeRun");

    // After a crash: for a decision, and for whoever mends its records.
    client.run("broken-records", &asks, &json!({})).await.unwrap();
    stack.runner.process().kill().unwrap();
    let store = Stored::open(&stack.data()).unwrap();
    store.run("broken-records").unwrap().change_record(1, "SuperstepOpened", "SuperstepClosed").unwrap();
    store.close().unwrap();
    stack.sandbox.as_mut().unwrap().process().kill().unwrap();
    stack.runner.restart().await.unwrap();
    let client = stack.client();
    let run = waits_for(&client, "doubted", "decision on ask").await;
    says_why(&run, "was in flight when its process ended", "RespondToAsk by someone other than");
    let run = client.get("broken-records").await.unwrap();
    assert_eq!(run.status(), RunStatus::Quarantined);
    says_why(&run, "RECOVERY_FAILED", "");
    assert!(run.reason.contains("event 1") && run.reason.contains("broken-records"), "{}", run.reason);

    // For a service that does not answer, and for somebody who resumes it.
    let uri = client.put_blob(&module).await.unwrap();
    let pure = client.put_work(&Definition::pure("work", &uri)).await.unwrap();
    tool.answer_at_most(usize::MAX);
    client.start("no-sandbox", &pure, &json!({})).await.unwrap();
    says_why(&waits_for(&client, "no-sandbox", "sandbox").await, "sandbox", "");
    let run = until(&client, "works", "ends or rests", |run| run.status() != RunStatus::Running).await;
    if run.status() == RunStatus::Paused {
        says_why(&run, "someone to resume the run", "ResumeRun");
    }
}
