//! The behaviours that this system was specified by: code-carrying tools, and the host-side pin that decides whether any
//! of it runs.

use e2e::{
    document::{Definition, IO, PURE},
    guests,
    refusal::Refusal,
    shell_tool::ShellTool,
    stack::{Builder, Stack},
    upstream::{Answer, Upstream},
};
use proto::{
    runner::v1::{ListEventsRequest, ListRunsRequest, RunStatus},
    sandbox::v1::{LastExecution, OutcomeKind, StatModulesRequest},
};
use serde_json::{Value, json};
use tonic::Code;

/// A script that reads one line and answers with it.
const READ_A_LINE: &[u8] = b"#!/bin/sh\nread -r line\necho \"{\\\"ran\\\":true,\\\"saw\\\":$line}\"\n";
/// A script that nobody pinned.
const SCRIPT: &[u8] = b"#!/bin/sh\necho '{}'\n";

fn gmail() -> Value {
    json!([{"http": {"hosts": ["https://gmail.googleapis.com"], "methods": ["POST"], "credentials": ["gmail"]}}])
}

const GMAIL_BROKER: &str = r#"
[policy]
allow_hosts = ["https://gmail.googleapis.com"]
[credentials.gmail]
kind = "bearer"
from = "env:E2E_GMAIL_TOKEN"
hosts = ["https://gmail.googleapis.com"]
[grants.work]
credentials = ["gmail"]
methods = ["POST"]
"#;

/// A stack whose only host tool says that it was called.
fn with_fallback() -> (Builder, ShellTool) {
    let builder = Stack::builder().unwrap();
    let fallback = ShellTool::write(builder.directory(), "fallback.sh", "echo '{\"fell_back\":true}'").unwrap();
    let command = fallback.command();
    (builder.runner(|flags| flags.tool_cmd(&command)), fallback)
}

/// Starts `work` with a definition that breaks authoring rules, on a runner that pinned `code` and has no sandbox.
async fn foreign_start(definition: impl FnOnce(&str) -> Definition, code: &[u8]) -> Refusal {
    let (builder, fallback) = with_fallback();
    let stack = builder.pin(code).start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(code).await.unwrap();
    let plan = client.import_work(&definition(&uri)).await.unwrap();
    let refusal = Refusal::expected(client.start("r1", &plan, &json!({})).await);
    assert_eq!(Refusal::expected(client.get("r1").await).grpc, Code::NotFound);
    assert!(fallback.calls().is_empty(), "nothing may run for a refused start");
    refusal
}

/// The sandbox's own record of the last call of a module.
async fn last_execution(stack: &Stack, uri: &str) -> LastExecution {
    let request = StatModulesRequest { digests: vec![uri.to_owned()] };
    let answer = stack.sandbox_client().stat_modules(request).await.unwrap().into_inner();
    answer.modules[0].last_execution.clone().expect("the module was executed")
}

#[tokio::test]
async fn an_executor_uri_that_is_not_a_content_address_is_refused_by_name() {
    let stack = Stack::builder().unwrap().start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::code("work", "executor://crm.lookup@v3")).await.unwrap();
    let refusal = Refusal::expected(client.start("r1", &plan, &json!({})).await);
    refusal.says("RUN-E018", &["executor://crm.lookup@v3", "cas://sha256:"]);
    refusal.is(Code::FailedPrecondition, "EXECUTOR_REFUSED");
}

#[tokio::test]
async fn an_unpinned_code_executor_is_refused_before_the_run_exists() {
    let (builder, fallback) = with_fallback();
    let stack = builder.start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(SCRIPT).await.unwrap();
    let plan = client.put_work(&Definition::code("work", &uri)).await.unwrap();
    let refusal = Refusal::expected(client.start("r1", &plan, &json!({})).await);
    refusal.says("RUN-E018", &["--allow-executor", uri.trim_start_matches("cas://sha256:")]);

    Refusal::expected(client.get("r1").await).is(Code::NotFound, "RUN_NOT_FOUND");
    Refusal::expected(client.manifest("r1").await).is(Code::NotFound, "RUN_NOT_FOUND");
    Refusal::expected(client.entries("r1").await).is(Code::NotFound, "RUN_NOT_FOUND");
    let events = ListEventsRequest { namespace: "ops".into(), run_id: "r1".into(), ..Default::default() };
    Refusal::expected(client.runner().list_events(events).await).is(Code::NotFound, "RUN_NOT_FOUND");
    let listed = ListRunsRequest { namespace: "ops".into(), ..Default::default() };
    assert!(client.runner().list_runs(listed).await.unwrap().into_inner().runs.is_empty());
    assert!(client.step_actions(&plan).await.unwrap().is_empty());
    assert!(fallback.calls().is_empty(), "unpinned code may not fall back to the tool command");
}

#[tokio::test]
async fn a_client_tool_carrying_an_executor_uri_is_refused() {
    let stack = Stack::builder().unwrap().pin(SCRIPT).start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(SCRIPT).await.unwrap();
    let definition = Definition::client("work").with("executor_uri", uri);
    let plan = client.put_work(&definition).await.unwrap();
    let refusal = Refusal::expected(client.start("r1", &plan, &json!({})).await);
    refusal.says("RUN-E018", &["client tool"]);
}

#[tokio::test]
async fn a_pinned_code_executor_runs_and_its_output_is_the_node_result() {
    let (builder, fallback) = with_fallback();
    let stack = builder.pin(READ_A_LINE).native_sandbox().start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(READ_A_LINE).await.unwrap();
    let plan = client.put_work(&Definition::code("work", &uri)).await.unwrap();
    let run = client.run("r1", &plan, &json!({"q": 7})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);

    assert_eq!(client.entries("r1").await.unwrap().len(), 1, "intent and result share one key");
    let actions = client.step_actions(&plan).await.unwrap();
    assert_eq!(actions.len(), 1);
    assert_eq!(actions[0].status, "completed");
    let content: Value = serde_json::from_str(&actions[0].tool_content).expect("the blob's output is JSON");
    assert_eq!(content["ran"], json!(true));
    assert_eq!(content["saw"]["q"], json!(7), "the node's input reached the blob's standard input");
    assert!(fallback.calls().is_empty(), "a pinned blob may not fall through to the tool command");
}

#[tokio::test]
async fn a_tool_naming_no_executor_still_goes_to_tool_cmd() {
    let (builder, fallback) = with_fallback();
    let stack = builder.start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    let run = client.run("r1", &plan, &json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    let output: Value = serde_json::from_str(&run.output_json).unwrap();
    assert_eq!(output["fell_back"], json!(true));
    assert_eq!(fallback.calls().len(), 1);
    assert_eq!(fallback.calls()[0].tool, "work");
}

#[tokio::test]
async fn a_pinned_blob_reaches_the_credential_broker_on_the_same_terms() {
    const SECRET: &str = "areev-canary-Zq7-of-zoho";
    let blob = b"#!/bin/sh\nprintf '{\"url\":\"%s\",\"token\":\"%s\",\"leak\":\"%s\"}' \"$AREEV_EGRESS_URL\" \
                 \"$AREEV_EGRESS_TOKEN\" \"$E2E_ZOHO_TOKEN\"\n";
    let settings = "[policy]\nunrestricted = true\n\
                    [credentials.zoho]\nkind = \"bearer\"\nfrom = \"env:E2E_ZOHO_TOKEN\"\nhosts = [\"https://api.zoho.com\"]\n\
                    [grants.poster]\ncredentials = [\"zoho\"]\nmethods = [\"POST\"]\n";
    // Every service has the variable, so that only the child's own environment can keep it out.
    let builder = Stack::builder().unwrap().pin(blob).native_sandbox().broker(settings, &[]).unwrap();
    let stack = builder.all(|flags| flags.variable("E2E_ZOHO_TOKEN", SECRET)).start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(blob).await.unwrap();
    let egress_url =
        stack.broker_client().describe(proto::broker::v1::DescribeRequest {}).await.unwrap().into_inner().egress_url;
    assert!(egress_url.starts_with("http://127.0.0.1:"), "{egress_url}");

    let mut seen = Vec::new();
    for (run_id, tool) in [("r1", "poster"), ("r2", "poster"), ("r3", "stranger")] {
        let plan = client.put_work(&Definition::code(tool, &uri)).await.unwrap();
        let run = client.run(run_id, &plan, &json!({})).await.unwrap();
        assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
        seen.push(serde_json::from_str::<Value>(&run.output_json).unwrap());
    }
    for granted in &seen[..2] {
        assert_eq!(granted["url"], json!(egress_url), "the blob gets the broker's address");
        assert!(granted["token"].as_str().unwrap().len() >= 16, "and a token: {granted}");
        assert_eq!(granted["leak"], json!(""), "and never the secret");
    }
    assert_ne!(seen[0]["token"], seen[1]["token"], "each effect has a token of its own");
    assert_eq!(seen[2], json!({"url": "", "token": "", "leak": ""}), "without a grant there is no broker");
}

#[tokio::test]
async fn a_wasm_runtime_without_a_sandbox_refuses_at_start() {
    let module = guests::echo();
    let stack = Stack::builder().unwrap().pin(&module).start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(&module).await.unwrap();
    let plan = client.put_work(&Definition::pure("work", &uri)).await.unwrap();
    let refusal = Refusal::expected(client.start("r1", &plan, &json!({})).await);
    refusal.says("RUN-E018", &["--sandbox-url", "--sandbox-cmd"]);
    Refusal::expected(client.get("r1").await).is(Code::NotFound, "RUN_NOT_FOUND");
}

#[tokio::test]
async fn a_wasm_runtime_dispatches_the_blob_to_the_sandbox_command() {
    let module = guests::echo();
    let limits = json!({"fuel": 5000, "max_pages": 64});

    let stack = Stack::builder().unwrap().pin(&module).sandbox().start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(&module).await.unwrap();
    let plan = client.put_work(&Definition::pure("work", &uri).with("runtime_limits", limits.clone())).await.unwrap();
    let run = client.run("r1", &plan, &json!({"q": 7})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    let seen = last_execution(&stack, &uri).await;
    let in_force = seen.limits.unwrap();
    assert_eq!((in_force.fuel, in_force.max_pages), (Some(5000), Some(64)));
    assert!(!seen.fetch_linked);
    assert_eq!(seen.kind(), OutcomeKind::Completed);

    let builder = Stack::builder().unwrap().pin(&module);
    let stub = ShellTool::argv(builder.directory()).unwrap();
    let stack = builder.runner(|flags| flags.sandbox_cmd(stub.path())).start().await.unwrap();
    let client = stack.client();
    client.put_blob(&module).await.unwrap();
    let plan = client.put_work(&Definition::pure("work", &uri).with("runtime_limits", limits)).await.unwrap();
    let run = client.run("r1", &plan, &json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    let argv = client.step_actions(&plan).await.unwrap()[0].tool_content.clone();
    let digest = uri.trim_start_matches("cas://sha256:");
    for part in ["--module", digest, "--fuel 5000", "--max-pages 64"] {
        assert!(argv.contains(part), "{part:?} is not in {argv}");
    }
    assert!(!argv.contains("--allow-fetch"), "{argv}");
}

#[tokio::test]
async fn an_unknown_runtime_is_refused_by_name() {
    let definition = |uri: &str| Definition::code("work", uri).with("runtime", "python3");
    foreign_start(definition, b"print('{}')").await.says("RUN-E018", &["python3"]);
}

#[tokio::test]
async fn a_runtime_without_an_executor_uri_is_refused() {
    let definition = |_: &str| Definition::tool("work").with("runtime", PURE);
    foreign_start(definition, b"unused").await.says("RUN-E018", &["names no executor_uri"]);
}

#[tokio::test]
async fn a_capability_declaration_is_pinned_into_the_manifest() {
    let module = guests::echo();
    let builder = Stack::builder().unwrap().pin(&module).sandbox();
    let stack = builder
        .broker(GMAIL_BROKER, &[("E2E_GMAIL_TOKEN", "areev-canary-Zq7-of-gmail")])
        .unwrap()
        .start()
        .await
        .unwrap();
    let client = stack.client();
    let uri = client.put_blob(&module).await.unwrap();
    let plan = client.put_work(&Definition::io("work", &uri, gmail())).await.unwrap();
    client.run("r1", &plan, &json!({})).await.unwrap();
    let manifest = client.manifest("r1").await.unwrap();
    let pinned = manifest.nodes.iter().find(|node| node.node == "work").expect("the node is pinned");
    assert_eq!(pinned.runtime, IO);
    assert_eq!(serde_json::from_str::<Value>(&pinned.capabilities_json).unwrap(), gmail());
}

#[tokio::test]
async fn a_capability_runtime_with_no_declaration_refuses_at_start() {
    let definition = |uri: &str| Definition::code("work", uri).with("runtime", IO);
    foreign_start(definition, b"\0asm").await.says("RUN-E018", &["no capabilities"]);
}

#[tokio::test]
async fn capabilities_on_a_pure_runtime_refuse_at_start() {
    let definition = |uri: &str| Definition::pure("work", uri).with("capabilities", gmail());
    foreign_start(definition, b"\0asm").await.says("RUN-E018", &["wasm32-areev-io"]);
}

#[tokio::test]
async fn a_malformed_capability_declaration_refuses_at_start() {
    let definition = |uri: &str| Definition::io("work", uri, json!([{"http": {"hosts": ["https://*"]}}]));
    foreign_start(definition, b"\0asm").await.says("RUN-E018", &["malformed capabilities"]);
}

#[tokio::test]
async fn the_capability_runtime_passes_allow_fetch_to_the_sandbox() {
    let upstream = Upstream::answering(Answer::json(200, &json!({"sent": true}))).await.unwrap();
    let origin = upstream.origin();
    let capabilities = json!([{"http": {"hosts": [origin], "methods": ["POST"]}}]);
    let limits = json!({"fuel": 5000, "max_response_bytes": 4096});
    let module = guests::fetch(&json!({"url": format!("{origin}/send"), "method": "POST", "body": "hello"}));
    let settings = format!(
        "[policy]\nallow_hosts = [{origin:?}]\nallow_private = [\"127.0.0.0/8\"]\n[grants.work]\nmethods = [\"POST\"]\nhosts = [{origin:?}]\n"
    );
    let definition =
        |uri: &str| Definition::io("work", uri, capabilities.clone()).with("runtime_limits", limits.clone());

    let builder = Stack::builder().unwrap().pin(&module).sandbox().broker(&settings, &[]).unwrap();
    let stack = builder.start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(&module).await.unwrap();
    let plan = client.put_work(&definition(&uri)).await.unwrap();
    let run = client.run("r1", &plan, &json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    let output: Value = serde_json::from_str(&run.output_json).unwrap();
    assert_eq!(output["status"], json!(200), "{output}");
    assert_eq!(upstream.received().len(), 1);
    let seen = last_execution(&stack, &uri).await;
    let in_force = seen.limits.unwrap();
    assert!(seen.fetch_linked);
    assert_eq!((in_force.fuel, in_force.max_response_bytes), (Some(5000), Some(4096)));

    let pure = client.put_work(&Definition::pure("work", &uri)).await.unwrap();
    let run = client.run("r2", &pure, &json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Failed, "a pure module is given no fetch");
    let detail = client.step_actions(&pure).await.unwrap()[0].failure_detail.clone();
    assert!(detail.contains("areev") && detail.contains("fetch"), "the import is named: {detail}");
    assert_eq!(upstream.received().len(), 1);

    let builder = Stack::builder().unwrap().pin(&module).broker(&settings, &[]).unwrap();
    let stub = ShellTool::argv(builder.directory()).unwrap();
    let stack = builder.runner(|flags| flags.sandbox_cmd(stub.path())).start().await.unwrap();
    let client = stack.client();
    client.put_blob(&module).await.unwrap();
    let plan = client.put_work(&definition(&uri)).await.unwrap();
    let run = client.run("r1", &plan, &json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    let argv = client.step_actions(&plan).await.unwrap()[0].tool_content.clone();
    for part in ["--allow-fetch", "--max-response-bytes 4096", "--fuel 5000"] {
        assert!(argv.contains(part), "{part:?} is not in {argv}");
    }
}

#[tokio::test]
async fn a_capability_module_without_a_broker_says_so() {
    let module = guests::fetch(&json!({"url": "https://gmail.googleapis.com/send", "method": "POST"}));
    let stack = Stack::builder().unwrap().pin(&module).sandbox().start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(&module).await.unwrap();
    let plan = client.put_work(&Definition::io("work", &uri, gmail())).await.unwrap();
    let run = client.run("r1", &plan, &json!({})).await.expect("the start itself succeeds");
    assert_eq!(run.status(), RunStatus::Failed);
    let actions = client.step_actions(&plan).await.unwrap();
    assert_eq!(actions[0].failure_cause, "executor_error");
    assert!(actions[0].failure_detail.contains("no credential broker"), "{}", actions[0].failure_detail);
}
