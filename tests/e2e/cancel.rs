//! Cancel: what is in flight stops, nothing starts any more, and there is exactly one end.

use std::{path::Path, time::Instant};

use e2e::{
    client::Client,
    document::{Definition, Plan},
    guests,
    process::{PATIENCE, POLL},
    refusal::Refusal,
    shell_tool::ShellTool,
    stack::{Stack, Who},
};
use proto::runner::v1::{CancelResult, RunStatus};
use serde_json::json;
use tonic::Code;

/// Waits until the condition holds.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(POLL).await;
    }
}

/// The run's journal ends with its one end.
async fn ended_once(client: &Client, run_id: &str) {
    let events = client.events(run_id).await.unwrap();
    let ends = events.iter().filter(|event| event.kind == "RunFinished").count();
    assert_eq!(ends, 1, "exactly one end");
    assert_eq!(events.last().unwrap().kind, "RunFinished", "nothing after the end");
    assert!(client.verify(run_id).await.unwrap().clean);
}

#[tokio::test]
async fn a_tool_in_flight_is_stopped_with_its_children() {
    let builder = Stack::builder().unwrap();
    let pids = builder.directory().join("pids");
    let body =
        format!("sleep 1000 & echo $! > '{0}.part'; echo $$ >> '{0}.part'; mv '{0}.part' '{0}'; wait", pids.display());
    let tool = ShellTool::write(builder.directory(), "slow.sh", &body).unwrap();
    let command = tool.command();
    let stack = builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap();
    let client = stack.client();
    let work = client.put_definition(&Definition::tool("work")).await.unwrap();
    let plan = client.put_plan(&Plan::chain([("work", &*work), ("after", &work)])).await.unwrap();
    client.start("r1", &plan, &json!({})).await.unwrap();
    until("the tool was never started", || pids.exists()).await;
    let children: Vec<String> = std::fs::read_to_string(&pids).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(children.len(), 2);

    let receipt = client.cancel("r1", "changed my mind").await.unwrap();
    assert_eq!(receipt.result(), CancelResult::Canceled);
    assert_eq!(receipt.effects_stopped, 1);
    let run = client.wait("r1").await.unwrap();
    assert_eq!(run.status(), RunStatus::Canceled);
    assert!(run.reason.contains("RUN-E013"), "{}", run.reason);
    for pid in children {
        until("a process of the tool still runs", || !alive(&pid)).await;
    }
    assert_eq!(tool.calls().len(), 1, "nothing was dispatched after the cancel");
    ended_once(&client, "r1").await;

    let again = client.cancel("r1", "again").await.unwrap();
    assert_eq!(again.result(), CancelResult::Canceled, "canceling twice is the same as once");
    assert_eq!(again.fence_sequence, receipt.fence_sequence);
    ended_once(&client, "r1").await;
}

#[tokio::test]
async fn a_spinning_guest_is_stopped() {
    let module = guests::spin();
    let stack = Stack::builder().unwrap().pin(&module).sandbox().start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(&module).await.unwrap();
    let limits = json!({"fuel": 100_000_000_000_u64});
    let plan = client.put_work(&Definition::pure("work", &uri).with("runtime_limits", limits)).await.unwrap();
    client.start("r1", &plan, &json!({})).await.unwrap();
    stack.running_guests(1).await.unwrap();
    assert_eq!(client.cancel("r1", "").await.unwrap().result(), CancelResult::Canceled);
    assert_eq!(client.wait("r1").await.unwrap().status(), RunStatus::Canceled);
    stack.running_guests(0).await.unwrap();
    ended_once(&client, "r1").await;
}

#[tokio::test]
async fn a_run_that_waits_for_a_person_is_canceled_and_its_ask_is_closed() {
    let stack = Stack::builder().unwrap().start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::client("work")).await.unwrap();
    let run = client.run("r1", &plan, &json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Waiting);
    assert_eq!(client.cancel("r1", "").await.unwrap().result(), CancelResult::Canceled);
    assert_eq!(client.get("r1").await.unwrap().status(), RunStatus::Canceled);
    assert!(client.asks("r1").await.unwrap().is_empty());
    let late = stack.client_of(Who::Approver).respond(&run.asks[0], &json!({})).await;
    Refusal::expected(late).says("RUN-E011", &[]);
    ended_once(&client, "r1").await;
}

#[tokio::test]
async fn a_finished_run_stays_as_it_ended() {
    let builder = Stack::builder().unwrap();
    let tool = ShellTool::doing(builder.directory()).unwrap();
    let stack = builder.runner(|flags| flags.tool_cmd(&tool.command())).start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    let before = client.run("r1", &plan, &json!({})).await.unwrap();
    assert_eq!(client.cancel("r1", "").await.unwrap().result(), CancelResult::AlreadyFinished);
    let after = client.get("r1").await.unwrap();
    assert_eq!((after.status(), &after.head_hash), (RunStatus::Completed, &before.head_hash));
    ended_once(&client, "r1").await;
}

#[tokio::test]
async fn a_cancel_needs_its_run_and_its_permission() {
    let stack = Stack::builder().unwrap().start().await.unwrap();
    let client = stack.client();
    Refusal::expected(client.cancel("no-such-run", "").await).is(Code::NotFound, "RUN_NOT_FOUND");
    let plan = client.put_work(&Definition::client("work")).await.unwrap();
    client.run("r1", &plan, &json!({})).await.unwrap();
    let refusal = Refusal::expected(stack.client_of(Who::Reader).cancel("r1", "").await);
    refusal.says("RUN-E012", &["run.cancel"]);
    assert_eq!(client.get("r1").await.unwrap().status(), RunStatus::Waiting);
}

/// Whether the process runs; a zombie does not.
fn alive(pid: &str) -> bool {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    status.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}
