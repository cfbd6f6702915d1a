//! SIGTERM: what is in flight ends and is journaled; meanwhile whoever asks is told that the service drains.

use std::{fs, time::Instant};

use e2e::{
    client::Client,
    document::Definition,
    process::{PATIENCE, POLL},
    shell_tool::ShellTool,
    stack::Stack,
};
use proto::{
    fault::{Reason, reason_of},
    runner::v1::RunStatus,
};
use serde_json::json;
use tonic::Code;

/// Polls until the runner refuses a call, and hands the refusal back.
async fn refused(client: &Client) -> tonic::Status {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Err(status) = client.get("r1").await {
            return status;
        }
        assert!(Instant::now() < deadline, "the runner still answers as if nothing were");
        tokio::time::sleep(POLL).await;
    }
}

#[tokio::test]
async fn a_runner_that_drains_says_so_on_every_port_until_its_effects_have_ended() {
    let builder = Stack::builder().unwrap();
    let (begun, may_end) = (builder.directory().join("begun"), builder.directory().join("may-end"));
    let body = format!(
        "cat > /dev/null; touch '{}'; while [ ! -e '{}' ]; do sleep 0.02; done; echo '{{\"done\": true}}'",
        begun.display(),
        may_end.display()
    );
    let tool = ShellTool::write(builder.directory(), "slow.sh", &body).unwrap().command();
    let mut stack = builder.runner(|flags| flags.tool_cmd(&tool)).start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    client.start("r1", &plan, &json!({})).await.unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !begun.exists() {
        assert!(Instant::now() < deadline, "the tool is not called");
        tokio::time::sleep(POLL).await;
    }

    stack.runner.process().ask_to_end().unwrap();
    let status = refused(&client).await;
    assert_eq!((status.code(), reason_of(&status)), (Code::Unavailable, Some(Reason::Draining)), "{status:?}");
    // A connection of its own, made during the drain.
    let status = stack.client().get("r1").await.unwrap_err();
    assert_eq!((status.code(), reason_of(&status)), (Code::Unavailable, Some(Reason::Draining)), "{status:?}");
    let ready = stack.runner.admin("/readyz").unwrap();
    assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("draining"), "{ready}");
    stack.runner.until_serving(false).await.unwrap();

    fs::write(&may_end, "").unwrap();
    assert!(stack.runner.process().ended(PATIENCE).unwrap().success());
    stack.runner.restart().await.unwrap();
    let client = stack.client();
    let run = client.wait("r1").await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    let entries = client.entries("r1").await.unwrap();
    assert_eq!((entries[0].attempt, entries[0].dispatches), (1, 1), "its result was journaled before the end");
}
