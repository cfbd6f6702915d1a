//! Strict definitions over the wire: what does not fit goes nowhere, and a schema that cannot be used is refused by name.

use e2e::{document::Definition, refusal::Refusal, shell_tool::ShellTool, stack::Stack};
use proto::runner::v1::RunStatus;
use serde_json::{Value, json};
use tonic::Code;

struct Shop {
    stack: Stack,
    tool: ShellTool,
}

async fn shop(body: &str) -> Shop {
    let builder = Stack::builder().unwrap();
    let tool = ShellTool::write(builder.directory(), "tool.sh", body).unwrap();
    let command = tool.command();
    Shop { stack: builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap(), tool }
}

fn amount() -> Value {
    json!({"type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer", "minimum": 1}}})
}

#[tokio::test]
async fn a_strict_input_that_does_not_fit_is_never_dispatched() {
    let shop = shop("echo '{}'").await;
    let client = shop.stack.client();
    let definition = Definition::tool("work").with("strict", true).with("input_schema", amount());
    let plan = client.put_work(&definition).await.unwrap();
    let run = client.run("wrong", &plan, &json!({"amount": 0})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Failed);
    assert!(run.reason.contains("(schema_validation_failed)"), "{}", run.reason);
    assert!(run.reason.contains("/amount must be at least 1"), "{}", run.reason);
    assert!(shop.tool.calls().is_empty());
    let entries = client.entries("wrong").await.unwrap();
    assert_eq!((entries.len(), entries[0].status.as_str(), entries[0].dispatches), (1, "failed", 0));
    assert_eq!(entries[0].failure_cause, "schema_validation_failed");
    assert!(client.verify("wrong").await.unwrap().clean);

    let run = client.run("right", &plan, &json!({"amount": 1})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    assert_eq!(shop.tool.calls().len(), 1);
}

#[tokio::test]
async fn a_strict_result_that_does_not_fit_fails_its_node_and_without_strict_it_is_taken() {
    let shop = shop("echo '{\"amount\": \"many\"}'").await;
    let client = shop.stack.client();
    let loose = Definition::tool("work").with("output_schema", amount());
    let plan = client.put_work(&loose.clone().with("strict", true)).await.unwrap();
    let run = client.run("strict", &plan, &json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Failed);
    assert!(run.reason.contains("does not fit the output_schema of `work`: /amount"), "{}", run.reason);
    assert!(client.verify("strict").await.unwrap().clean);
    let plan = client.put_work(&loose).await.unwrap();
    assert_eq!(client.run("loose", &plan, &json!({})).await.unwrap().status(), RunStatus::Completed);
}

#[tokio::test]
async fn a_schema_that_cannot_be_used_is_refused_by_name_when_it_is_authored_and_again_at_start() {
    let shop = shop("echo '{}'").await;
    let client = shop.stack.client();
    for (schema, named) in [
        (json!({"type": "object", "properties": {"a": {"$ref": "https://example.com/a.json"}}}), "$ref"),
        (json!({"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}}), "$ref"),
        (json!({"type": "object", "oneOf": []}), "oneOf"),
        (json!({"type": "string"}), "\"object\""),
        (json!({"type": "object", "properties": {"a": {"pattern": "(a"}}}), "(a"),
        (json!({"type": "object", "properties": {"a": {"minimum": "1"}}}), "minimum"),
    ] {
        for field in ["input_schema", "output_schema"] {
            let definition = Definition::tool("work").with(field, schema.clone());
            let refusal = Refusal::expected(client.put_definition(&definition).await);
            refusal.is(Code::InvalidArgument, "BAD_GRAIN").says("", &[field, named]);
            let plan = client.import_work(&definition).await.unwrap();
            let refusal = Refusal::expected(client.run("r1", &plan, &json!({})).await);
            refusal.is(Code::FailedPrecondition, "EXECUTOR_REFUSED");
            refusal.says("RUN-E018", &["work", field, named]);
            Refusal::expected(client.get("r1").await).is(Code::NotFound, "RUN_NOT_FOUND");
        }
    }
    assert!(shop.tool.calls().is_empty());
}
