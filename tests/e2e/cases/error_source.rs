//! Whether a tool failed for good or the engine cannot work now is told apart by status and detail, not by reading texts.

use e2e::{document::Definition, host_tool::HostTool, refusal::Refusal, stack::Stack};
use proto::{
    runner::v1::RunStatus,
    tool::v1::{ExecuteToolResponse, ToolFailure, execute_tool_response::Outcome},
};
use serde_json::json;
use tonic::{Code, Status};

#[tokio::test]
async fn a_terminal_tool_failure_is_a_failed_run_and_a_transient_engine_failure_is_unavailable_with_a_delay() {
    let answer = |name: &str| match name {
        "declines" => {
            let failure = ToolFailure { detail: "the card was declined".to_owned(), retryable: false };
            Ok(ExecuteToolResponse { outcome: Some(Outcome::Failure(failure)) })
        }
        _ => Err(Status::unavailable("the tool's own trouble")),
    };
    let tool = HostTool::start(move |request| answer(&request.tool_name)).await.unwrap();
    let url = tool.url();
    let builder = Stack::builder().unwrap();
    let failing = builder.directory().join("failing");
    let stack = builder.runner(|flags| flags.tool_url(&url).fail_sync_while(&failing)).start().await.unwrap();
    let client = stack.client();
    for (name, detail) in [("declines", "the card was declined"), ("breaks", "the tool's own trouble")] {
        let plan = client.put_work(&Definition::tool(name)).await.unwrap();
        // The call itself went well: what failed is the run, at a node, for a cause, and nothing says to call again.
        let run = client.run(name, &plan, &json!({})).await.unwrap();
        assert_eq!((run.status(), run.failed_node.as_str()), (RunStatus::Failed, "work"));
        let action = client.step_actions(&plan).await.unwrap().remove(0);
        assert_eq!(action.failure_cause, "executor_error");
        assert!(action.failure_detail.contains(detail) && run.reason.contains(detail), "{}", run.reason);
        assert!(!run.reason.starts_with("RUN-E020"), "{}", run.reason);
    }
    let plan = client.put_work(&Definition::tool("declines")).await.unwrap();
    std::fs::write(&failing, "").unwrap();
    let refusal = Refusal::expected(client.run("later", &plan, &json!({})).await);
    refusal.is(Code::Unavailable, "STORAGE_UNAVAILABLE");
    assert!(refusal.retry, "it says when to call again: {refusal:?}");
    assert_eq!(refusal.domain, "areev.runner");
    stack.runner.until_serving(false).await.unwrap();
    std::fs::remove_file(&failing).unwrap();
    stack.runner.until_serving(true).await.unwrap();
    let run = client.run("later", &plan, &json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Failed, "called again it gets as far as the tool");
}
