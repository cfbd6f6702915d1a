//! People: a run parks at a question, and goes on with the answer of somebody who may give it.

use e2e::{
    client::{Client, request},
    document::{Definition, Plan},
    refusal::Refusal,
    shell_tool::ShellTool,
    stack::{Stack, Who},
};
use proto::runner::v1::{Ask, Run, RunOptions, RunStatus, StartRunRequest};
use serde_json::{Value, json};
use tonic::Code;

struct Office {
    stack: Stack,
    tool: ShellTool,
    plan: String,
}

/// A plan `approve → send`: a person, then a host tool.
async fn office(approve: Definition) -> Office {
    let builder = Stack::builder().unwrap();
    let tool = ShellTool::doing(builder.directory()).unwrap();
    let command = tool.command();
    let stack = builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap();
    let client = stack.client();
    let approve = client.put_definition(&approve).await.unwrap();
    let send = client.put_definition(&Definition::tool("send")).await.unwrap();
    let plan = client.put_plan(&Plan::chain([("approve", &*approve), ("send", &send)])).await.unwrap();
    Office { stack, tool, plan }
}

impl Office {
    async fn parked(&self, run_id: &str, options: RunOptions) -> (Run, Ask) {
        let client = self.stack.client();
        let run = client.run_with(run_id, &self.plan, &json!({"amount": 12}), options).await.unwrap();
        assert_eq!(run.status(), RunStatus::Waiting, "{}", run.reason);
        let asks = client.asks(run_id).await.unwrap();
        assert_eq!(asks.len(), 1);
        (run, asks[0].clone())
    }

    fn approver(&self) -> Client {
        self.stack.client_of(Who::Approver)
    }
}

#[tokio::test]
async fn a_run_parks_at_an_ask_survives_a_crash_and_goes_on_with_the_answer() {
    let mut office = office(Definition::client("approve")).await;
    let (run, ask) = office.parked("r1", RunOptions::default()).await;
    assert_eq!((ask.node.as_str(), ask.tool_name.as_str(), ask.run_id.as_str()), ("approve", "approve", "r1"));
    assert_eq!(serde_json::from_str::<Value>(&ask.input_json).unwrap(), json!({"amount": 12}));
    assert_eq!(run.asks, std::slice::from_ref(&ask));
    assert!(run.waiting.iter().any(|waiting| waiting.what.contains("approve")), "{:?}", run.waiting);
    assert!(office.tool.calls().is_empty());

    office.stack.runner.process().kill().unwrap();
    office.stack.runner.restart().await.unwrap();
    let again = office.stack.client().asks("r1").await.unwrap();
    assert_eq!(again, std::slice::from_ref(&ask), "the same ask is open after a crash");

    office.approver().respond(&ask, &json!({"approved": true})).await.unwrap();
    let run = office.stack.client().wait("r1").await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    let output: Value = serde_json::from_str(&run.output_json).unwrap();
    assert_eq!(output, json!({"amount": 12, "approved": true, "did_send": true}));
    assert_eq!(office.tool.calls().len(), 1);
    assert!(office.stack.client().verify("r1").await.unwrap().clean);
}

#[tokio::test]
async fn an_acknowledged_answer_survives_a_kill_right_after() {
    let mut office = office(Definition::client("approve")).await;
    let (_, ask) = office.parked("r1", RunOptions::default()).await;
    office.approver().respond(&ask, &json!({"approved": true})).await.unwrap();
    office.stack.runner.process().kill().unwrap();
    office.stack.runner.restart().await.unwrap();
    let run = office.stack.client().wait("r1").await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
}

#[tokio::test]
async fn whoever_started_the_run_cannot_answer_it() {
    let office = office(Definition::client("approve")).await;
    let (_, ask) = office.parked("r1", RunOptions::default()).await;
    let refusal = Refusal::expected(office.stack.client().respond(&ask, &json!({})).await);
    refusal.is(Code::PermissionDenied, "SELF_APPROVAL");
    refusal.says("RUN-E012", &["user:runner"]);
    assert_eq!(office.stack.client().asks("r1").await.unwrap().len(), 1, "the ask stays open");
    assert!(office.tool.calls().is_empty());
}

#[tokio::test]
async fn the_person_on_whose_behalf_a_run_was_started_cannot_answer_it_either() {
    let office = office(Definition::client("approve")).await;
    let options = RunOptions { initiator: Who::Approver.name().to_owned(), ..Default::default() };
    let (_, ask) = office.parked("r1", options).await;
    let refusal = Refusal::expected(office.approver().respond(&ask, &json!({})).await);
    refusal.is(Code::PermissionDenied, "SELF_APPROVAL");
    assert_eq!(office.stack.client().asks("r1").await.unwrap().len(), 1, "the ask stays open");
}

#[tokio::test]
async fn whoever_lacks_the_permission_cannot_answer() {
    let office = office(Definition::client("approve")).await;
    let (_, ask) = office.parked("r1", RunOptions::default()).await;
    let reader = office.stack.client_of(Who::Reader);
    let refusal = Refusal::expected(reader.respond(&ask, &json!({})).await);
    refusal.is(Code::PermissionDenied, "NOT_PERMITTED");
    refusal.says("RUN-E012", &["user:reader", "run.respond", "ops"]);
    let refusal = Refusal::expected(office.stack.stranger().respond(&ask, &json!({})).await);
    refusal.is(Code::Unauthenticated, "UNAUTHENTICATED");
}

#[tokio::test]
async fn the_first_answer_stands_and_a_second_is_refused() {
    let office = office(Definition::client("approve")).await;
    let (_, ask) = office.parked("r1", RunOptions::default()).await;
    office.approver().respond(&ask, &json!({"approved": "first"})).await.unwrap();
    let refusal = Refusal::expected(office.approver().respond(&ask, &json!({"approved": "second"})).await);
    refusal.is(Code::NotFound, "ASK_NOT_OPEN");
    refusal.says("RUN-E011", &[&ask.tool_call_id, "was answered by user:approver at 2", "the first answer stands"]);
    let run = office.stack.client().wait("r1").await.unwrap();
    assert_eq!(serde_json::from_str::<Value>(&run.output_json).unwrap()["approved"], json!("first"));
    let late = Refusal::expected(office.approver().respond(&ask, &json!({"approved": "second"})).await);
    late.is(Code::NotFound, "ASK_NOT_OPEN").says("RUN-E011", &["was answered by user:approver at 2"]);
    let again = office.approver().respond(&ask, &json!({"approved": "first"})).await.unwrap();
    assert_eq!(again.status(), RunStatus::Completed, "the same call again is acknowledged again, also after the end");
    assert_eq!(office.stack.client().get("r1").await.unwrap().events, run.events, "and leaves no trace");
}

#[tokio::test]
async fn an_answer_that_breaks_the_schema_is_refused_and_journaled_and_the_ask_stays_open() {
    let schema = json!({"type": "object", "required": ["approved"], "properties": {"approved": {"type": "boolean"}}});
    let office = office(Definition::client("approve").with("output_schema", schema)).await;
    let (_, ask) = office.parked("r1", RunOptions::default()).await;
    let refusal = Refusal::expected(office.approver().respond(&ask, &json!({"approved": "perhaps"})).await);
    refusal.is(Code::InvalidArgument, "INVALID_ARGUMENT");
    refusal.says("", &["output_schema", "/approved must be of type boolean"]);
    let client = office.stack.client();
    let events = client.events("r1").await.unwrap();
    let evidence = events.last().unwrap();
    assert_eq!(evidence.kind, "AskRejected");
    let body: Value = serde_json::from_str(&evidence.body_json).unwrap();
    assert_eq!(body["by"], json!("user:approver"));
    assert!(body["reason"].as_str().unwrap().contains("/approved must be of type boolean"), "{body}");
    assert_eq!(client.asks("r1").await.unwrap(), std::slice::from_ref(&ask), "the ask stays open");
    office.approver().respond(&ask, &json!({"approved": true})).await.unwrap();
    assert_eq!(client.wait("r1").await.unwrap().status(), RunStatus::Completed);
    assert!(client.verify("r1").await.unwrap().clean);
}

#[tokio::test]
async fn rejected_answers_are_bounded_and_the_bound_is_named() {
    let office = office(Definition::client("approve")).await;
    let (_, ask) = office.parked("r1", RunOptions::default()).await;
    let approver = office.approver();
    for _ in 0..16 {
        let refusal = Refusal::expected(approver.respond_text(&ask, "{\"a\":", false).await);
        refusal.is(Code::InvalidArgument, "INVALID_ARGUMENT").says("", &["the answer is no JSON: EOF"]);
        assert_eq!(refusal.fields, ["answer_json"]);
    }
    let events = office.stack.client().events("r1").await.unwrap().len();
    let refusal = Refusal::expected(approver.respond_text(&ask, "", false).await);
    refusal.is(Code::ResourceExhausted, "TOO_MANY_EVENTS").says("", &["16 rejected answers", "the answer is empty"]);
    assert_eq!(office.stack.client().events("r1").await.unwrap().len(), events);
    office.approver().respond(&ask, &json!({"approved": true})).await.unwrap();
    assert_eq!(office.stack.client().wait("r1").await.unwrap().status(), RunStatus::Completed);
}

#[tokio::test]
async fn a_refusal_whose_reason_is_no_json_does_not_end_the_run() {
    let office = office(Definition::client("approve")).await;
    let (_, ask) = office.parked("r1", RunOptions::default()).await;
    let refusal = Refusal::expected(office.approver().respond_text(&ask, "{\"a\":", true).await);
    refusal.is(Code::InvalidArgument, "INVALID_ARGUMENT").says("", &["the answer is no JSON"]);
    let run = office.stack.client().get("r1").await.unwrap();
    assert_eq!(run.status(), RunStatus::Waiting);
    assert!(run.waiting[0].unblocked_by.ends_with("other than user:runner (started the run)"), "{:?}", run.waiting);
    office.approver().respond_text(&ask, "", true).await.unwrap();
    assert_eq!(office.stack.client().wait("r1").await.unwrap().status(), RunStatus::Failed);
}

#[tokio::test]
async fn an_ask_that_was_never_raised_is_refused_by_name() {
    let office = office(Definition::client("approve")).await;
    let (_, ask) = office.parked("r1", RunOptions::default()).await;
    let unknown = Ask { tool_call_id: "ab".repeat(32), ..ask };
    let refusal = Refusal::expected(office.approver().respond(&unknown, &json!({})).await);
    refusal.says("RUN-E011", &["abababab"]);
    let elsewhere = Ask { run_id: "no-such-run".to_owned(), ..unknown };
    Refusal::expected(office.approver().respond(&elsewhere, &json!({})).await).is(Code::NotFound, "RUN_NOT_FOUND");
}

#[tokio::test]
async fn a_person_who_refuses_fails_the_node() {
    let office = office(Definition::client("approve")).await;
    let (_, ask) = office.parked("r1", RunOptions::default()).await;
    office.approver().reject(&ask, &json!("too expensive")).await.unwrap();
    let run = office.stack.client().wait("r1").await.unwrap();
    assert_eq!(run.status(), RunStatus::Failed);
    assert_eq!(run.failed_node, "approve");
    let actions = office.stack.client().step_actions(&office.plan).await.unwrap();
    assert_eq!(actions[0].failure_cause, "user_aborted");
    assert!(actions[0].failure_detail.contains("too expensive"), "{}", actions[0].failure_detail);
    assert!(office.tool.calls().is_empty());
    assert!(office.stack.client().verify("r1").await.unwrap().clean);
}

#[tokio::test]
async fn an_ask_past_its_end_fails_its_node_by_timeout() {
    let office = office(Definition::client("approve")).await;
    let ask_ttl = Some(prost_types::Duration { seconds: 0, nanos: 200_000_000 });
    let options = Some(RunOptions { ask_ttl, ..Default::default() });
    let client = office.stack.client();
    let start = request("r1", &office.plan, &json!({}));
    client.start_with(StartRunRequest { options, ..start }).await.unwrap();
    let run = client.wait("r1").await.unwrap();
    assert_eq!(run.status(), RunStatus::Failed);
    let actions = client.step_actions(&office.plan).await.unwrap();
    assert_eq!(actions[0].failure_cause, "timeout");
    assert!(office.tool.calls().is_empty());
    let id = actions[0].tool_call_id.clone();
    let ask = Ask { run_id: "r1".to_owned(), tool_call_id: id, ..Default::default() };
    let refusal = Refusal::expected(office.approver().respond(&ask, &json!({})).await);
    refusal.is(Code::NotFound, "ASK_NOT_OPEN").says("RUN-E011", &["expired at 2", "nobody had answered"]);
    assert!(client.verify("r1").await.unwrap().clean);
}
