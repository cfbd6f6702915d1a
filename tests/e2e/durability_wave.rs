//! Many effects beside each other, killed in the middle: those that answered are not sent again.

use std::collections::BTreeMap;

use e2e::{
    document::{Definition, Plan},
    host_tool::HostTool,
    process::POLL,
    stack::Stack,
};
use proto::{
    runner::v1::RunStatus,
    tool::v1::{ExecuteToolResponse, execute_tool_response::Outcome},
};
use serde_json::json;

/// Effects of the wave.
const WAVE: usize = 100;
/// Those that have answered when the runner is killed.
const ANSWERED: usize = 84;

#[tokio::test]
async fn a_wave_of_100_killed_when_84_have_answered_sends_at_most_16_again() {
    let answer = ExecuteToolResponse { outcome: Some(Outcome::OutputJson("{}".to_owned())) };
    let tool = HostTool::start(move |_| Ok(answer.clone())).await.unwrap();
    // The entry's call is answered too.
    tool.answer_at_most(1 + ANSWERED);
    let url = tool.url();
    let builder = Stack::builder().unwrap();
    let mut stack = builder.runner(|flags| flags.tool_url(&url).value("--workers", "100")).start().await.unwrap();
    let work = stack.client().put_definition(&Definition::tool("work")).await.unwrap();
    let plan = (0..WAVE).map(|number| format!("n{number}"));
    let plan = plan.fold(Plan::new().node("entry", &work), |plan, node| plan.node(&node, &work).edge("entry", &node));
    let plan = stack.client().put_plan(&plan).await.unwrap();
    stack.client().start("r1", &plan, &json!({})).await.unwrap();
    loop {
        let entries = stack.client().entries("r1").await.unwrap();
        let settled = entries.iter().filter(|entry| entry.status == "completed").count();
        assert!(settled <= 1 + ANSWERED);
        if settled == 1 + ANSWERED && tool.calls().len() == 1 + WAVE {
            break;
        }
        tokio::time::sleep(POLL).await;
    }
    stack.runner.process().kill().unwrap();
    tool.answer_at_most(usize::MAX);
    stack.runner.restart().await.unwrap();

    let run = stack.client().wait("r1").await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    let mut calls: BTreeMap<String, usize> = BTreeMap::new();
    for call in tool.calls() {
        *calls.entry(call.idempotency_key).or_default() += 1;
    }
    let again = calls.values().filter(|count| **count > 1).count();
    assert_eq!(
        (calls.len(), again),
        (1 + WAVE, WAVE - ANSWERED),
        "only what had not answered came again, by the same key"
    );
    let redelivered = stack.client().events("r1").await.unwrap();
    let redelivered = redelivered.iter().filter(|event| event.kind == "Redelivered").count();
    assert_eq!(redelivered, WAVE - ANSWERED);
    assert!(stack.client().verify("r1").await.unwrap().clean);
}
