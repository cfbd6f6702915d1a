//! Host tools: by command and by service.

use e2e::{document::Definition, host_tool::HostTool, shell_tool::ShellTool, stack::Stack};
use proto::{
    runner::v1::{Run, RunStatus, StepAction},
    tool::v1::{ExecuteToolResponse, ToolFailure, execute_tool_response::Outcome},
};
use serde_json::{Value, json};
use tonic::Status;

async fn by_command(body: &str) -> (Run, StepAction) {
    let builder = Stack::builder().unwrap();
    let tool = ShellTool::write(builder.directory(), "tool.sh", body).unwrap();
    let command = tool.command();
    let stack =
        builder.runner(|flags| flags.tool_cmd(&command).variable("E2E_PRIVATE", "private")).start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    let run = client.run("r1", &plan, &json!({"q": 7})).await.unwrap();
    assert!(client.verify("r1").await.unwrap().clean);
    (run, client.step_actions(&plan).await.unwrap().remove(0))
}

async fn by_service(answer: Result<ExecuteToolResponse, Status>) -> (HostTool, Run, StepAction) {
    let tool = HostTool::start(move |_| answer.clone()).await.unwrap();
    let url = tool.url();
    let stack = Stack::builder().unwrap().runner(|flags| flags.tool_url(&url)).start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    let run = client.run("r1", &plan, &json!({"q": 7})).await.unwrap();
    assert!(client.verify("r1").await.unwrap().clean);
    (tool, run, client.step_actions(&plan).await.unwrap().remove(0))
}

#[tokio::test]
async fn a_command_gets_its_input_and_its_names_and_nothing_of_the_services_environment() {
    // The value of every variable is left out: names are enough, and values need escaping.
    let names = "env | sed 's/=.*//' | sort | tr '\\n' ' '";
    let body = format!(
        "printf '{{\"env\":\"%s\",\"input\":%s,\"key\":\"%s\"}}' \"$({names})\" \"$(cat)\" \"$AREEV_IDEMPOTENCY_KEY\""
    );
    let (run, _) = by_command(&body).await;
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    let output: Value = serde_json::from_str(&run.output_json).unwrap();
    assert_eq!(output["input"], json!({"q": 7}), "the input is one line of JSON, and then the end");
    assert_eq!(output["key"].as_str().unwrap().len(), 64);
    let allowed = ["AREEV_TOOL_NAME", "AREEV_TOOL_HASH", "AREEV_IDEMPOTENCY_KEY", "AREEV_EXECUTOR_URI"];
    let ordinary = ["PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "TZ", "PWD", "OLDPWD", "SHLVL", "_"];
    for name in output["env"].as_str().unwrap().split_whitespace() {
        assert!(allowed.contains(&name) || ordinary.contains(&name), "the tool sees {name}");
    }
}

#[tokio::test]
async fn a_command_that_exits_badly_fails_its_effect_with_its_own_words() {
    let (run, action) = by_command("echo 'no such customer' >&2; exit 4").await;
    assert_eq!((run.status(), run.failed_node.as_str()), (RunStatus::Failed, "work"));
    assert_eq!(action.failure_cause, "executor_error");
    assert!(action.failure_detail.contains("no such customer"), "{}", action.failure_detail);
    assert!(action.failure_detail.contains('4'), "{}", action.failure_detail);
}

#[tokio::test]
async fn a_command_that_prints_no_json_fails_its_effect() {
    let (run, action) = by_command("echo 'done, thanks'").await;
    assert_eq!(run.status(), RunStatus::Failed);
    assert!(action.failure_detail.contains("JSON"), "{}", action.failure_detail);
}

#[tokio::test]
async fn a_service_is_told_what_it_needs_and_its_answer_is_the_result() {
    let answer = ExecuteToolResponse { outcome: Some(Outcome::OutputJson("{\"done\":true}".into())) };
    let (tool, run, action) = by_service(Ok(answer)).await;
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    assert_eq!(action.tool_content, "{\"done\":true}");
    let calls = tool.calls();
    assert_eq!(calls.len(), 1);
    assert_eq!((calls[0].tool_name.as_str(), calls[0].input_json.as_str()), ("work", "{\"q\":7}"));
    assert_eq!((calls[0].definition_hash.len(), calls[0].idempotency_key.len()), (64, 64));
    assert!(calls[0].deadline.is_some() && calls[0].egress_token.is_empty());
}

#[tokio::test]
async fn a_service_that_fails_or_answers_nonsense_fails_the_effect() {
    let failure = ToolFailure { detail: "out of stock".into(), retryable: false };
    let (_, run, action) = by_service(Ok(ExecuteToolResponse { outcome: Some(Outcome::Failure(failure)) })).await;
    assert_eq!((run.status(), action.failure_cause.as_str()), (RunStatus::Failed, "executor_error"));
    assert!(action.failure_detail.contains("out of stock"), "{}", action.failure_detail);

    let (_, run, action) = by_service(Err(Status::unavailable("closed for lunch"))).await;
    assert_eq!((run.status(), action.failure_cause.as_str()), (RunStatus::Failed, "executor_error"));
    assert!(action.failure_detail.contains("closed for lunch"), "{}", action.failure_detail);

    let nonsense = ExecuteToolResponse { outcome: Some(Outcome::OutputJson("{\"done\":".into())) };
    let (_, run, action) = by_service(Ok(nonsense)).await;
    assert_eq!(run.status(), RunStatus::Failed);
    assert!(action.failure_detail.contains("JSON"), "{}", action.failure_detail);
}

#[tokio::test]
async fn a_tool_without_any_executor_is_refused_at_start() {
    let stack = Stack::builder().unwrap().start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    let refusal = e2e::refusal::Refusal::expected(client.start("r1", &plan, &json!({})).await);
    refusal.says("RUN-E018", &["work", "--tool-cmd", "--tool-url"]);
}
