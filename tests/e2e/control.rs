//! People steer runs with others below them and with calls on their way: pauses, cancels with their receipts, doubts.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Instant,
};

use e2e::{
    client::{Client, NAMESPACE, request},
    document::{Definition, Plan},
    guests,
    process::{PATIENCE, POLL},
    refusal::Refusal,
    shell_tool::ShellTool,
    stack::{Stack, Who},
    upstream::{Answer, Upstream},
};
use proto::runner::v1::{CancelResult, ListRunsRequest, OnDangling, Run, RunOptions, RunStatus, StartRunRequest};
use serde_json::{Value, json};
use tonic::Code;

async fn until_is(client: &Client, run_id: &str, status: RunStatus) -> Run {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let run = client.get(run_id).await.unwrap();
        if run.status() == status {
            return run;
        }
        assert!(Instant::now() < deadline, "{run_id} is {:?}, not {status:?}: {}", run.status(), run.reason);
        tokio::time::sleep(POLL).await;
    }
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(POLL).await;
    }
}

async fn child_of(client: &Client, run_id: &str) -> Run {
    let request = ListRunsRequest {
        namespace: NAMESPACE.to_owned(),
        parent_run_id: run_id.to_owned(),
        ..ListRunsRequest::default()
    };
    client.runner().list_runs(request).await.unwrap().into_inner().runs.pop().expect("a child run")
}

#[tokio::test]
async fn a_pause_holds_the_child_runs_too_and_a_resumption_lets_them_go_on() {
    let builder = Stack::builder().unwrap();
    let gate = builder.directory().join("gate");
    let body = format!(
        "cat > /dev/null; while [ -e \"$0\" ] && [ ! -e '{}' ]; do sleep 0.02; done; echo '{{}}'",
        gate.display()
    );
    let tool = ShellTool::write(builder.directory(), "tool.sh", &body).unwrap();
    let command = tool.command();
    let stack = builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap();
    let client = stack.client();
    let step = client.put_definition(&Definition::tool("step")).await.unwrap();
    let inner = client.put_plan(&Plan::chain([("first", &*step), ("second", &step)])).await.unwrap();
    let outer = client.put_plan(&Plan::new().node("sub", &inner)).await.unwrap();
    client.start("r1", &outer, &json!({})).await.unwrap();
    until("the first step of the child run", || tool.calls().len() == 1).await;
    let child = child_of(&client, "r1").await.run_id;
    client.pause("r1").await.unwrap();
    let deadline = Instant::now() + PATIENCE;
    while client.get(&child).await.unwrap().paused_by.is_empty() {
        assert!(Instant::now() < deadline, "the child run is not paused");
        tokio::time::sleep(POLL).await;
    }
    std::fs::write(&gate, "").unwrap();
    let paused = until_is(&client, &child, RunStatus::Paused).await;
    assert_eq!(paused.paused_by, "run r1");
    let parent = until_is(&client, "r1", RunStatus::Paused).await;
    assert!(parent.waiting.iter().any(|waiting| waiting.unblocked_by.contains("Resume")), "{:?}", parent.waiting);
    assert_eq!(tool.calls().len(), 1, "no step begins while it is paused");
    let refusal = Refusal::expected(client.resume(&child).await);
    refusal
        .is(Code::FailedPrecondition, "NOT_PAUSABLE")
        .says("RUN-E029", &[&child, "is a part of run", "r1", "which is paused"]);
    for reason in ["a\u{202e}b", "a\u{0}", "a\nb", "a\u{2028}"] {
        let refusal = Refusal::expected(client.cancel("r1", reason).await);
        refusal.is(Code::InvalidArgument, "INVALID_ARGUMENT").says("", &["reason has the character \\"]);
    }
    client.resume("r1").await.unwrap();
    let run = client.wait("r1").await.unwrap();
    assert_eq!((run.status(), tool.calls().len()), (RunStatus::Completed, 2), "{}", run.reason);
    assert!(client.verify("r1").await.unwrap().clean);
}

/// A broker that lets calls out to an upstream, and a plan of one node that makes such a call.
async fn calling(upstream: &Upstream) -> (Stack, String) {
    let origin = upstream.origin();
    let settings = format!(
        "[policy]\nallow_hosts = [{origin:?}]\nallow_private = [\"127.0.0.0/8\"]\n\
         [grants.work]\nmethods = [\"GET\"]\nhosts = [{origin:?}]\n"
    );
    let module = guests::fetch(&json!({"url": format!("{origin}/a")}));
    let builder = Stack::builder().unwrap().pin(&module).sandbox().broker(&settings, &[]).unwrap();
    let stack = builder.start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(&module).await.unwrap();
    let http = json!([{"http": {"hosts": [origin], "methods": ["GET"]}}]);
    let plan = client.put_work(&Definition::io("work", &uri, http)).await.unwrap();
    (stack, plan)
}

/// An upstream that never answers its first call.
async fn holding() -> Upstream {
    let calls = AtomicU32::new(0);
    let respond = move |_: &_| {
        let first = calls.fetch_add(1, Ordering::SeqCst) == 0;
        (!first).then(|| Answer::json(200, &json!({"ok": true})))
    };
    Upstream::start(respond).await.unwrap()
}

#[tokio::test]
async fn a_cancel_with_a_call_on_its_way_says_what_it_stopped_and_which_tokens_died() {
    let upstream = holding().await;
    let (stack, plan) = calling(&upstream).await;
    let client = stack.client();
    client.start("r1", &plan, &json!({})).await.unwrap();
    until("the call is on its way", || upstream.received().len() == 1).await;
    let canceled = client.cancel("r1", "not wanted any more").await.unwrap();
    assert_eq!(canceled.result(), CancelResult::Canceled);
    assert_eq!((canceled.effects_stopped, canceled.tokens_revoked), (1, 1));
    let events = client.events("r1").await.unwrap();
    let place = |kind: &str| {
        let places: Vec<u64> = events.iter().filter(|event| event.kind == kind).map(|event| event.sequence).collect();
        assert_eq!(places.len(), 1, "{kind}: {events:?}");
        places[0]
    };
    let order = ["CancelRequested", "TokensRevoked", "ResultRecorded", "RunFinished"].map(place);
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(order[3], events.last().unwrap().sequence, "nothing comes after the end");
    assert_eq!(canceled.fence_sequence, order[0], "nothing was dispatched from there on");
    let report = client.oversight("r1").await.unwrap();
    let cancel = &report["cancel"];
    assert_eq!((&cancel["effects_in_flight"], &cancel["sequence"]), (&json!(1), &json!(order[0])));
    assert!(cancel["drained_ms"].is_u64(), "how fast it obeyed is on record: {cancel}");
}

#[tokio::test]
async fn a_sandbox_that_is_lost_with_a_call_on_its_way_leaves_the_doubt_to_a_person() {
    let upstream = holding().await;
    let (mut stack, plan) = calling(&upstream).await;
    let client = stack.client();
    let options = RunOptions { on_dangling: OnDangling::Ask.into(), ..RunOptions::default() };
    let start = StartRunRequest { options: Some(options), ..request("r1", &plan, &json!({})) };
    client.start_with(start).await.unwrap();
    until("the call is on its way", || upstream.received().len() == 1).await;
    stack.sandbox.as_mut().unwrap().process().kill().unwrap();
    let run = until_is(&client, "r1", RunStatus::Waiting).await;
    let ask = run.asks[0].clone();
    assert!(ask.tool_description.contains("nobody knows whether it happened"), "{}", ask.tool_description);
    stack.sandbox.as_mut().unwrap().restart().await.unwrap();
    let approver = stack.client_of(Who::Approver);
    approver.respond(&ask, &json!({"decision": "redispatch"})).await.unwrap();
    let run = client.wait("r1").await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    let entries = client.entries("r1").await.unwrap();
    assert_eq!((entries[0].attempt, entries[0].dispatches), (1, 2), "the same attempt, sent again");
    assert!(client.verify("r1").await.unwrap().clean);
}

#[tokio::test]
async fn a_child_runs_whole_state_is_its_result_so_that_a_list_it_was_given_comes_back_in_an_appended_one() {
    let builder = Stack::builder().unwrap();
    let tool = ShellTool::write(builder.directory(), "tool.sh", "cat > /dev/null; echo '{\"seen\": [2]}'").unwrap();
    let command = tool.command();
    let stack = builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap();
    let client = stack.client();
    let step = client.put_definition(&Definition::tool("step")).await.unwrap();
    let plans = ["append", "lww"].map(|inner_reducer| {
        let reducers = |reducer: &str| json!({"seen": reducer});
        (Plan::new().node("step", &step).with("reducers", reducers(inner_reducer)), reducers("append"))
    });
    for ((inner, reducers), (run_id, expected)) in
        plans.into_iter().zip([("r1", json!([1, 1, 2])), ("r2", json!([1, 2]))])
    {
        let inner = client.put_plan(&inner).await.unwrap();
        let outer = Plan::new().node("sub", &inner).with("reducers", reducers);
        let outer = client.put_plan(&outer).await.unwrap();
        let run = client.run(run_id, &outer, &json!({"seen": [1]})).await.unwrap();
        let output: Value = serde_json::from_str(&run.output_json).unwrap();
        assert_eq!(output["seen"], expected, "{run_id}");
    }
}
