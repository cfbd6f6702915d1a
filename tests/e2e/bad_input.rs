//! Bad input and missing neighbours: a clear typed answer, nothing lost, nothing hung.

use e2e::{
    client::{Client, NAMESPACE, request},
    document::{Definition, Plan},
    flags::Flags,
    guests,
    host_tool::HostTool,
    refusal::Refusal,
    service,
    shell_tool::ShellTool,
    stack::Stack,
    upstream::{Answer, Upstream},
};
use proto::{
    runner::v1::{ListEventsRequest, ListRunsRequest, NodePolicy, RunOptions, RunStatus, StartRunRequest, StepAction},
    tool::v1::{ExecuteToolResponse, execute_tool_response::Outcome},
};
use serde_json::{Value, json};
use tonic::Code;

const MIB: usize = 1024 * 1024;

/// Runs the one node and hands back its failed effect. The run ends, verifies, and its neighbours go on.
async fn failed(client: &Client, run_id: &str, plan: &str) -> StepAction {
    failed_with(client, run_id, plan, RunOptions::default()).await
}

/// An effect gives up a service that is away when its own time is over: a node with little of it shows that soon.
fn in_seconds(seconds: i64) -> RunOptions {
    let timeout = Some(prost_types::Duration { seconds, nanos: 0 });
    let policy = NodePolicy { node: "work".to_owned(), timeout, backoff: None };
    RunOptions { node_policies: vec![policy], ..RunOptions::default() }
}

async fn failed_with(client: &Client, run_id: &str, plan: &str, options: RunOptions) -> StepAction {
    let run = client.run_with(run_id, plan, &json!({}), options).await.unwrap();
    assert_eq!((run.status(), run.failed_node.as_str()), (RunStatus::Failed, "work"), "{}", run.reason);
    assert!(client.verify(run_id).await.unwrap().clean);
    let actions = client.step_actions(plan).await.unwrap();
    actions.into_iter().find(|action| action.run_id == run_id).expect("the effect is listed")
}

#[tokio::test]
async fn random_bytes_are_no_module() {
    // The state of a small generator: the same bytes in every run.
    let bytes: Vec<u8> = (0..4096_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    for code in [bytes, Vec::from(b"\0asm"), Vec::from(b"(module)"), Vec::from(b"\x7fELF and more")] {
        let stack = Stack::builder().unwrap().pin(&code).sandbox().start().await.unwrap();
        let client = stack.client();
        let uri = client.put_blob(&code).await.unwrap();
        let plan = client.put_work(&Definition::pure("work", &uri)).await.unwrap();
        let action = failed(&client, "r1", &plan).await;
        assert_eq!(action.failure_cause, "executor_error");
        assert!(action.failure_detail.contains("module"), "{}", action.failure_detail);
    }
}

#[tokio::test]
async fn an_empty_plan_is_refused() {
    let stack = Stack::builder().unwrap().start().await.unwrap();
    let client = stack.client();
    for text in [r#"{"nodes":[]}"#, "{}"] {
        let refusal = match client.put_plan_json(text).await {
            Err(status) => Refusal::of(&status),
            Ok(hash) => Refusal::expected(client.start("r1", &hash, &json!({})).await),
        };
        refusal.is(Code::InvalidArgument, "BAD_PLAN").says("RUN-E019", &["nodes"]);
    }
    for text in ["", "[]", "{", "null", "{\"nodes\": 7}"] {
        let refusal = match client.put_plan_json(text).await {
            Err(status) => Refusal::of(&status),
            Ok(hash) => Refusal::expected(client.start("r1", &hash, &json!({})).await),
        };
        assert_eq!(refusal.grpc, Code::InvalidArgument, "{text:?}: {refusal:?}");
        assert!(!refusal.reason.is_empty() && !refusal.text.is_empty(), "{text:?}: {refusal:?}");
    }
}

#[tokio::test]
async fn a_node_id_of_300_bytes_is_refused_and_256_are_not() {
    let stack = Stack::builder().unwrap().runner(|flags| flags.tool_cmd("cat")).start().await.unwrap();
    let client = stack.client();
    let hash = client.put_definition(&Definition::tool("work")).await.unwrap();
    for bad in [&"n".repeat(300), &"n".repeat(257), "tab\tbed"] {
        let refusal = match client.put_plan(&Plan::new().node(bad, &hash)).await {
            Err(status) => Refusal::of(&status),
            Ok(plan) => Refusal::expected(client.start("r1", &plan, &json!({})).await),
        };
        assert_eq!(refusal.grpc, Code::InvalidArgument, "{refusal:?}");
        assert!(refusal.text.len() < 1024 && refusal.text.contains("node"), "{refusal:?}");
    }
    let plan = client.put_plan(&Plan::new().node(&"n".repeat(256), &hash)).await.unwrap();
    assert_eq!(client.run("r1", &plan, &json!({})).await.unwrap().status(), RunStatus::Completed);
}

#[tokio::test]
async fn a_result_of_20_mib_fails_its_run_and_nothing_else() {
    let builder = Stack::builder().unwrap();
    let body = "cat > /dev/null; printf '\"'; head -c 20971520 /dev/zero | tr '\\0' a; printf '\"'";
    let tool = ShellTool::write(builder.directory(), "big.sh", body).unwrap();
    let stack = builder.runner(|flags| flags.tool_cmd(&tool.command())).start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    let action = failed(&client, "r1", &plan).await;
    assert!(
        action.failure_detail.contains("8388608") || action.failure_detail.contains("8 MiB"),
        "{}",
        action.failure_detail
    );
    assert!(action.failure_detail.len() < 4096);

    let big = "a".repeat(20 * MIB);
    let answer = move || ExecuteToolResponse { outcome: Some(Outcome::OutputJson(format!("\"{big}\""))) };
    let service = HostTool::start(move |_| Ok(answer())).await.unwrap();
    let stack = Stack::builder().unwrap().runner(|flags| flags.tool_url(&service.url())).start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    let action = failed(&client, "r1", &plan).await;
    assert!(!action.failure_detail.is_empty() && action.failure_detail.len() < 4096);
}

#[tokio::test]
async fn an_input_over_its_bound_is_refused_before_anything_is_written() {
    let stack = Stack::builder().unwrap().runner(|flags| flags.tool_cmd("cat")).start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    let refusal = Refusal::expected(client.start("r1", &plan, &json!({"text": "a".repeat(9 * MIB)})).await);
    refusal.is(Code::ResourceExhausted, "TOO_LARGE").says("RUN-E015", &["input"]);
    Refusal::expected(client.get("r1").await).is(Code::NotFound, "RUN_NOT_FOUND");
}

#[tokio::test]
async fn a_second_runner_on_the_same_directory_is_refused_with_the_first_ones_pid() {
    let mut stack = Stack::builder().unwrap().start().await.unwrap();
    let second = service::refused_start(&Flags::runner(&stack.data())).unwrap();
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr);
    let pid = stack.runner.process().pid().to_string();
    assert!(said.contains(&pid) && said.contains(&stack.data().display().to_string()), "{said}");
    stack.client().put_work(&Definition::client("work")).await.expect("the first goes on");
}

/// A stack whose node calls out, and the plan.
async fn calling_out(upstream: &Upstream) -> (Stack, String) {
    let origin = upstream.origin();
    let module = guests::fetch(&json!({"url": origin, "method": "GET"}));
    let settings = format!(
        "[policy]\nallow_hosts = [{origin:?}]\nallow_private = [\"127.0.0.0/8\"]\n[grants.work]\nmethods = [\"GET\"]\nhosts = [{origin:?}]\n"
    );
    let builder = Stack::builder().unwrap().pin(&module).sandbox().broker(&settings, &[]).unwrap();
    let stack = builder.start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(&module).await.unwrap();
    let capabilities = json!([{"http": {"hosts": [origin], "methods": ["GET"]}}]);
    let plan = client.put_work(&Definition::io("work", &uri, capabilities)).await.unwrap();
    (stack, plan)
}

#[tokio::test]
async fn a_broker_that_stays_down_ends_the_effect_by_its_timeout_and_is_found_again_when_it_is_back() {
    let upstream = Upstream::answering(Answer::json(200, &json!({}))).await.unwrap();
    let (mut stack, plan) = calling_out(&upstream).await;
    let client = stack.client();
    stack.broker.as_mut().unwrap().process().kill().unwrap();
    let action = failed_with(&client, "r1", &plan, in_seconds(3)).await;
    assert_eq!(action.failure_cause, "timeout");
    assert!(action.failure_detail.contains("broker"), "{}", action.failure_detail);
    assert!(upstream.received().is_empty());

    stack.broker.as_mut().unwrap().restart().await.unwrap();
    let run = client.run("r2", &plan, &json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    assert_eq!(serde_json::from_str::<Value>(&run.output_json).unwrap()["status"], json!(200));
    assert_eq!(upstream.received().len(), 1);
}

#[tokio::test]
async fn a_sandbox_that_stays_down_ends_the_effect_by_its_timeout_and_is_found_again_when_it_is_back() {
    let module = guests::echo();
    let mut stack = Stack::builder().unwrap().pin(&module).sandbox().start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(&module).await.unwrap();
    let plan = client.put_work(&Definition::pure("work", &uri)).await.unwrap();
    stack.sandbox.as_mut().unwrap().process().kill().unwrap();
    let action = failed_with(&client, "r1", &plan, in_seconds(3)).await;
    assert_eq!(action.failure_cause, "timeout");
    assert!(action.failure_detail.contains("sandbox"), "{}", action.failure_detail);

    stack.sandbox.as_mut().unwrap().restart().await.unwrap();
    let run = client.run("r2", &plan, &json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
}

#[tokio::test]
async fn a_call_that_is_lost_with_its_sandbox_is_said_to_be() {
    let module = guests::spin();
    let mut stack = Stack::builder().unwrap().pin(&module).sandbox().start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(&module).await.unwrap();
    let limits = json!({"fuel": 100_000_000_000_u64});
    let hash = client.put_definition(&Definition::pure("work", &uri).with("runtime_limits", limits)).await.unwrap();
    let plan = client.put_plan(&Plan::work(&hash)).await.unwrap();
    let request = StartRunRequest {
        namespace: NAMESPACE.to_owned(),
        run_id: "r1".to_owned(),
        plan_hash: plan.clone(),
        options: Some(in_seconds(20)),
        ..StartRunRequest::default()
    };
    client.start_with(request).await.unwrap();
    stack.running_guests(1).await.unwrap();
    stack.sandbox.as_mut().unwrap().process().kill().unwrap();
    let run = client.wait("r1").await.unwrap();
    assert_eq!(run.status(), RunStatus::Failed, "the call is lost, and said to be");
    assert!(client.verify("r1").await.unwrap().clean);
}

#[tokio::test]
async fn a_blob_that_is_not_what_was_said_is_refused() {
    use proto::runner::v1::{PutBlobRequest, put_blob_request::Message};
    let stack = Stack::builder().unwrap().start().await.unwrap();
    let messages = [Message::ExpectedDigest("ab".repeat(32)), Message::Chunk(b"other bytes".to_vec())];
    let messages = messages.map(|message| PutBlobRequest { message: Some(message) });
    let refusal = Refusal::expected(stack.client().catalog().put_blob(tokio_stream::iter(messages)).await);
    refusal.is(Code::InvalidArgument, "DIGEST_MISMATCH");
}

#[tokio::test]
async fn bytes_that_are_no_grain_are_refused() {
    let stack = Stack::builder().unwrap().start().await.unwrap();
    let client = stack.client();
    let good = Definition::tool("work").grain();
    client.put_grain(good.clone()).await.expect("the foreign writer writes what the reader reads");
    let trailing = [good.clone(), vec![0]].concat();
    let version = [vec![2], good[1..].to_vec()].concat();
    for bad in [Vec::new(), b"short".to_vec(), good[..good.len() - 1].to_vec(), trailing, version, vec![0xff; 64]] {
        let refusal = Refusal::expected(client.put_grain(bad).await);
        refusal.is(Code::InvalidArgument, "BAD_GRAIN");
    }
}

#[tokio::test]
async fn odd_run_ids_namespaces_filters_and_tokens_are_refused_by_name() {
    let stack = Stack::builder().unwrap().runner(|flags| flags.tool_cmd("cat")).start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    let long = "x".repeat(10 * 1024);
    for run_id in ["", " ", &*long, "a\0b", "\u{202e}evil", "\u{5d0}\u{5d1}"] {
        let refusal = Refusal::expected(client.start(run_id, &plan, &json!({})).await);
        refusal.is(Code::InvalidArgument, "BAD_RUN_ID").says("RUN-E020", &[]);
        assert!(refusal.text.len() < 1024);
    }
    for namespace in ["", " ", "a b", "*", "a\0b", "\u{200b}ops", &"n".repeat(300)] {
        let start = StartRunRequest { namespace: namespace.to_owned(), ..request("r1", &plan, &json!({})) };
        let list = ListRunsRequest { namespace: namespace.to_owned(), ..Default::default() };
        for status in [
            client.runner().start_run(start).await.map(drop).unwrap_err(),
            client.runner().list_runs(list).await.map(drop).unwrap_err(),
        ] {
            let refusal = Refusal::of(&status);
            refusal.is(Code::InvalidArgument, "INVALID_ARGUMENT");
            assert_eq!(refusal.fields, ["namespace"], "{refusal:?}");
        }
    }
    for run_id in ["r1", "r2"] {
        client.run(run_id, &plan, &json!({})).await.unwrap();
    }
    let list = |statuses: Vec<i32>, page_token: String| ListRunsRequest {
        namespace: "ops".to_owned(),
        statuses,
        page_size: 1,
        page_token,
        ..Default::default()
    };
    for status in [0, 99, -1] {
        let refusal = Refusal::of(&client.runner().list_runs(list(vec![status], String::new())).await.unwrap_err());
        refusal.is(Code::InvalidArgument, "INVALID_ARGUMENT");
        assert_eq!(refusal.fields, ["statuses"]);
    }
    let first = client.runner().list_runs(list(Vec::new(), String::new())).await.unwrap().into_inner();
    let next = list(Vec::new(), first.next_page_token.clone());
    assert_eq!(client.runner().list_runs(next).await.unwrap().into_inner().runs.len(), 1);
    let completed = i32::from(RunStatus::Completed);
    let other = client.runner().list_runs(list(vec![completed], first.next_page_token.clone())).await.unwrap_err();
    Refusal::of(&other).is(Code::InvalidArgument, "BAD_PAGE_TOKEN");
    let events = ListEventsRequest {
        namespace: "ops".to_owned(),
        run_id: "r1".to_owned(),
        page_size: 1,
        page_token: first.next_page_token,
    };
    let other = client.runner().list_events(events).await.unwrap_err();
    Refusal::of(&other).is(Code::InvalidArgument, "BAD_PAGE_TOKEN");
}
