//! An answer is never lost: acknowledged is durable; early, late, doubled and simultaneous ones are told apart.

use content_digest::Digest;
use e2e::{
    document::{Definition, Plan},
    host_tool::HostTool,
    refusal::Refusal,
    stack::{Stack, Who},
};
use proto::{
    runner::v1::{Ask, RunOptions, RunStatus},
    tool::v1::{ExecuteToolResponse, execute_tool_response::Outcome},
};
use serde_json::json;
use tonic::Code;

use super::{ended_once, until};

/// `first`, whose call waits for the test, then `approve`.
async fn office() -> (Stack, HostTool, String) {
    let answer = ExecuteToolResponse { outcome: Some(Outcome::OutputJson("{}".to_owned())) };
    let tool = HostTool::start(move |_| Ok(answer.clone())).await.unwrap();
    let url = tool.url();
    let stack = Stack::builder().unwrap().runner(|flags| flags.tool_url(&url)).start().await.unwrap();
    let client = stack.client();
    let first = client.put_definition(&Definition::tool("first")).await.unwrap();
    let approve = client.put_definition(&Definition::client("approve")).await.unwrap();
    let plan = client.put_plan(&Plan::chain([("first", &*first), ("approve", &approve)])).await.unwrap();
    (stack, tool, plan)
}

/// The address that the ask will have, from its definition alone.
fn address(run_id: &str) -> String {
    let parts: [&[u8]; 7] =
        [b"areev-run:v1", run_id.as_bytes(), b"", b"approve", &1_u32.to_be_bytes(), &0_u32.to_be_bytes(), b"ask"];
    Digest::of(parts.join(&0x1f)).to_hex()
}

fn expiring(milliseconds: i32) -> RunOptions {
    let ask_ttl = Some(prost_types::Duration { seconds: 0, nanos: milliseconds * 1_000_000 });
    RunOptions { ask_ttl, ..RunOptions::default() }
}

#[tokio::test]
async fn an_answer_before_the_question_is_refused_and_never_acknowledged_and_lost() {
    let (stack, tool, plan) = office().await;
    let (client, approver) = (stack.client(), stack.client_of(Who::Approver));
    tool.answer_at_most(0);
    client.start("r1", &plan, &json!({})).await.unwrap();
    let early = Ask { run_id: "r1".to_owned(), tool_call_id: address("r1"), ..Ask::default() };
    let refusal = Refusal::expected(approver.respond(&early, &json!({"ok": true})).await);
    refusal.is(Code::NotFound, "ASK_NOT_OPEN").says("RUN-E011", &[&early.tool_call_id]);
    tool.answer_at_most(usize::MAX);
    let run = client.wait_ask("r1").await.unwrap();
    assert_eq!(run.asks[0].tool_call_id, early.tool_call_id, "it was the right address, too early");
    assert_eq!(run.status(), RunStatus::Waiting, "the early answer is not taken later either");
    approver.respond(&run.asks[0], &json!({"ok": true})).await.unwrap();
    assert_eq!(client.wait("r1").await.unwrap().status(), RunStatus::Completed);
}

#[tokio::test]
async fn an_answer_at_once_after_the_question_is_taken_and_is_durable_when_it_is_acknowledged() {
    let (mut stack, tool, plan) = office().await;
    let (client, approver) = (stack.client(), stack.client_of(Who::Approver));
    for round in 0..5 {
        let run_id = format!("r{round}");
        tool.answer_at_most(tool.calls().len());
        client.start(&run_id, &plan, &json!({})).await.unwrap();
        let ask = Ask { run_id: run_id.clone(), tool_call_id: address(&run_id), ..Ask::default() };
        tool.answer_at_most(usize::MAX);
        // Again and again, so that the first moment at which it can be taken is met.
        let answer = json!({"round": round});
        while let Err(status) = approver.respond(&ask, &answer).await {
            assert_eq!(Refusal::of(&status).reason, "ASK_NOT_OPEN", "{status:?}");
            tokio::task::yield_now().await;
        }
        let run = client.wait(&run_id).await.unwrap();
        assert_eq!(run.output_json, answer.to_string());
        ended_once(&client, &run_id).await;
    }
    client.start("killed", &plan, &json!({})).await.unwrap();
    let ask = client.wait_ask("killed").await.unwrap().asks.remove(0);
    approver.respond(&ask, &json!({"kept": true})).await.unwrap();
    stack.runner.process().kill().unwrap();
    stack.runner.restart().await.unwrap();
    let run = stack.client().wait("killed").await.unwrap();
    assert_eq!(run.output_json, json!({"kept": true}).to_string(), "acknowledged is durable");
}

#[tokio::test]
async fn an_answer_after_the_deadline_is_refused_with_what_became_of_the_question() {
    let (stack, _tool, plan) = office().await;
    let (client, approver) = (stack.client(), stack.client_of(Who::Approver));
    let run = client.run_with("r1", &plan, &json!({}), expiring(200)).await.unwrap();
    let over = client.wait("r1").await.unwrap();
    assert_eq!((over.status(), over.failed_node.as_str()), (RunStatus::Failed, "approve"));
    let refusal = Refusal::expected(approver.respond(&run.asks[0], &json!({"ok": true})).await);
    refusal.is(Code::NotFound, "ASK_NOT_OPEN").says("RUN-E011", &["expired at", "nobody had answered"]);
    ended_once(&client, "r1").await;
}

#[tokio::test]
async fn of_two_answers_the_first_stands_and_the_second_is_told_who_was_first() {
    let (stack, _tool, plan) = office().await;
    let (client, approver) = (stack.client(), stack.client_of(Who::Approver));
    let run = client.run("r1", &plan, &json!({})).await.unwrap();
    let (yes, no) = (json!({"answer": "yes"}), json!({"answer": "no"}));
    let (one, other) = tokio::join!(approver.respond(&run.asks[0], &yes), approver.respond(&run.asks[0], &no));
    let (taken, lost, refused) = if one.is_ok() { (&yes, &no, other) } else { (&no, &yes, one) };
    let refusal = Refusal::expected(refused);
    refusal.is(Code::NotFound, "ASK_NOT_OPEN").says("RUN-E011", &["user:approver", "the first answer stands"]);
    let run = client.wait("r1").await.unwrap();
    assert_eq!(run.output_json, taken.to_string());
    Refusal::expected(approver.respond(&run_ask("r1"), lost).await).says("RUN-E011", &["the first answer stands"]);
    assert_eq!(client.get("r1").await.unwrap().output_json, taken.to_string());
}

fn run_ask(run_id: &str) -> Ask {
    Ask { run_id: run_id.to_owned(), tool_call_id: address(run_id), ..Ask::default() }
}

#[tokio::test]
async fn an_answer_at_the_moment_of_the_deadline_is_taken_or_refused_and_the_journal_agrees() {
    let (stack, _tool, plan) = office().await;
    let (client, approver) = (stack.client(), stack.client_of(Who::Approver));
    let (mut taken, mut refused) = (0, 0);
    for round in 0..24 {
        let run_id = format!("r{round}");
        let run = client.run_with(&run_id, &plan, &json!({}), expiring(60)).await.unwrap();
        let deadline = run.asks[0].deadline.unwrap();
        let deadline = std::time::SystemTime::try_from(deadline).unwrap();
        // A little before the deadline, at it, a little after it.
        let early = std::time::Duration::from_millis(12 - round.min(12));
        let late = std::time::Duration::from_millis(round.saturating_sub(12));
        while std::time::SystemTime::now() + early < deadline + late {
            tokio::task::yield_now().await;
        }
        let answered = approver.respond(&run.asks[0], &json!({"in": "time"})).await;
        let over = client.wait(&run_id).await.unwrap();
        match answered {
            Ok(_) => {
                assert_eq!((over.status(), over.output_json.as_str()), (RunStatus::Completed, r#"{"in":"time"}"#));
                taken += 1;
            }
            Err(status) => {
                Refusal::of(&status).says("RUN-E011", &["expired"]);
                assert_eq!(over.status(), RunStatus::Failed);
                refused += 1;
            }
        }
        ended_once(&client, &run_id).await;
    }
    assert!(taken + refused == 24, "{taken} taken, {refused} refused");
}

#[tokio::test]
async fn approvals_in_parallel_branches_each_hold_up_their_own_branch_and_nothing_is_done_twice() {
    let (mut stack, tool, _plan) = office().await;
    let client = stack.client();
    let work = client.put_definition(&Definition::tool("work")).await.unwrap();
    let approve = client.put_definition(&Definition::client("approve")).await.unwrap();
    let plan = Plan::new().node("start", &work).node("left", &approve).node("right", &approve);
    let plan = plan.node("after_left", &work).node("after_right", &work);
    let plan = plan.edge("start", "left").edge("start", "right");
    let plan = client.put_plan(&plan.edge("left", "after_left").edge("right", "after_right")).await.unwrap();
    client.run("r1", &plan, &json!({})).await.unwrap();
    for open in [2, 1] {
        stack.runner.process().kill().unwrap();
        stack.runner.restart().await.unwrap();
        let asks = stack.client().asks("r1").await.unwrap();
        assert_eq!(asks.len(), open, "each branch has its question");
        stack.client_of(Who::Approver).respond(&asks[0], &json!({})).await.unwrap();
    }
    let client = stack.client();
    until(&client, "r1", "ends", |run| run.status() == RunStatus::Completed).await;
    let mut keys: Vec<String> = tool.calls().into_iter().map(|call| call.idempotency_key).collect();
    assert_eq!(keys.len(), 3);
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 3, "each effect once");
}
