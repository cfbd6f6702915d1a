//! Numbers come back digit for digit, whichever way they go.

use e2e::{document::Definition, guests, host_tool::HostTool, shell_tool::ShellTool, stack::Stack};
use proto::{
    runner::v1::{RunStatus, StartRunRequest, start_run_request::InputDocument},
    tool::v1::{ExecuteToolResponse, execute_tool_response::Outcome},
};

/// Integers that a double cannot hold, and texts of numbers that must not be rewritten into others.
const INPUT: &str = r#"{"beyond_double":9007199254740993,"u64_max":18446744073709551615,"i64_min":-9223372036854775808,"zero":0,"half":0.5,"whole":1.0}"#;

async fn through(stack: &Stack, definition: &Definition) {
    let client = stack.client();
    let plan = client.put_work(definition).await.unwrap();
    let request = StartRunRequest {
        namespace: "ops".into(),
        run_id: "r1".into(),
        plan_hash: plan.clone(),
        input_document: Some(InputDocument::InputJson(INPUT.into())),
        options: None,
        wait: true,
    };
    let run = client.start_with(request).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    for member in INPUT.trim_matches(['{', '}']).split(',') {
        assert!(run.output_json.contains(member), "{member} is not in {}", run.output_json);
        let content = &client.step_actions(&plan).await.unwrap()[0].tool_content;
        assert!(content.contains(member), "{member} is not in {content}");
    }
    assert!(client.verify("r1").await.unwrap().clean);
}

#[tokio::test]
async fn numbers_go_through_a_module_digit_for_digit() {
    let module = guests::echo();
    let stack = Stack::builder().unwrap().pin(&module).sandbox().start().await.unwrap();
    let uri = stack.client().put_blob(&module).await.unwrap();
    through(&stack, &Definition::pure("work", &uri)).await;
}

#[tokio::test]
async fn numbers_go_through_a_tool_command_digit_for_digit() {
    let builder = Stack::builder().unwrap();
    let tool = ShellTool::write(builder.directory(), "tool.sh", "cat").unwrap();
    let stack = builder.runner(|flags| flags.tool_cmd(&tool.command())).start().await.unwrap();
    through(&stack, &Definition::tool("work")).await;
}

#[tokio::test]
async fn numbers_go_through_a_tool_service_digit_for_digit() {
    let echo = |input: &str| ExecuteToolResponse { outcome: Some(Outcome::OutputJson(input.to_owned())) };
    let tool = HostTool::start(move |request| Ok(echo(&request.input_json))).await.unwrap();
    let stack = Stack::builder().unwrap().runner(|flags| flags.tool_url(&tool.url())).start().await.unwrap();
    through(&stack, &Definition::tool("work")).await;
}
