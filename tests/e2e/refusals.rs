//! Every refusal at start has its code, its gRPC status and its reason, names the value, and leaves no trace of a run.

use std::time::{Duration, Instant};

use e2e::{
    client::Client,
    document::{Definition, Plan},
    process::POLL,
    refusal::Refusal,
    shell_tool::ShellTool,
    stack::{Stack, Who},
};
use proto::runner::v1::{ValidatePlanRequest, validate_plan_request};
use serde_json::json;
use tonic::Code;

async fn stack() -> Stack {
    Stack::builder().unwrap().runner(|flags| flags.tool_cmd("cat")).start().await.unwrap()
}

/// The refusal of a plan, wherever it comes: when it is authored, or when it is started.
async fn refused(client: &Client, plan: &Plan) -> Refusal {
    let stored = client.put_plan(plan).await;
    let refusal = match stored {
        Err(status) => Refusal::of(&status),
        Ok(hash) => Refusal::expected(client.start("r1", &hash, &json!({})).await),
    };
    Refusal::expected(client.get("r1").await).is(Code::NotFound, "RUN_NOT_FOUND");
    refusal
}

async fn work(client: &Client) -> String {
    client.put_definition(&Definition::tool("work")).await.unwrap()
}

#[tokio::test]
async fn a_bad_run_id_is_refused() {
    let stack = stack().await;
    let client = stack.client();
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    for bad in ["", &"x".repeat(129), "line\nbreak", "nul\0byte", "delete\u{7f}"] {
        let refusal = Refusal::expected(client.start(bad, &plan, &json!({})).await);
        refusal.is(Code::InvalidArgument, "BAD_RUN_ID").says("RUN-E020", &[]);
        assert!(refusal.fields.iter().any(|field| field.contains("run_id")), "{refusal:?}");
        assert_eq!(refusal.domain, "areev.runner");
    }
    client.run(&"x".repeat(128), &plan, &json!({})).await.expect("128 bytes are a run id");
}

#[tokio::test]
async fn what_a_plan_names_must_exist_and_fit() {
    let stack = stack().await;
    let client = stack.client();
    let nowhere = "ab".repeat(32);
    let refusal = Refusal::expected(client.start("r1", &nowhere, &json!({})).await);
    refusal.is(Code::NotFound, "UNRESOLVED").says("RUN-E004", &[&nowhere]);
    let refusal = Refusal::expected(client.start("r1", "not-a-hash", &json!({})).await);
    assert!(matches!(refusal.grpc, Code::InvalidArgument | Code::NotFound), "{refusal:?}");
    assert!(refusal.text.contains("not-a-hash"), "{refusal:?}");

    refused(&client, &Plan::work(&nowhere)).await.says("RUN-E004", &[&nowhere, "work"]);
    refused(&client, &Plan::work("crm.lookup")).await.says("RUN-E004", &["crm.lookup", "work"]);
    let definition = work(&client).await;
    let refusal = Refusal::expected(client.start("r1", &definition, &json!({})).await);
    refusal.says("RUN-E019", &[&definition]);
}

#[tokio::test]
async fn a_plan_with_a_broken_structure_is_refused_by_the_name_of_what_is_broken() {
    let stack = stack().await;
    let client = stack.client();
    let hash = work(&client).await;
    let a = || Plan::new().node("a", &hash);
    for (plan, names) in [
        (Plan::new(), "node"),
        (a().node("a", &hash), "a"),
        (a().unbound(" "), "blank"),
        (a().edge("a", "ghost"), "ghost"),
        (a().with("retries", json!({"ghost": 1})), "ghost"),
        (a().with("reducers", json!({"key": "median"})), "median"),
    ] {
        let refusal = refused(&client, &plan).await;
        assert_eq!(refusal.grpc, Code::InvalidArgument, "{refusal:?}");
        assert!(refusal.reason == "BAD_PLAN" || refusal.reason == "BAD_GRAIN", "{refusal:?}");
        assert!(refusal.text.contains(names), "{names:?} is not in {:?}", refusal.text);
    }
}

#[tokio::test]
async fn conditions_reachability_and_cycles_are_checked_before_the_run() {
    let stack = stack().await;
    let client = stack.client();
    let hash = work(&client).await;
    let two = || Plan::new().node("a", &hash).node("b", &hash);

    let refusal = refused(&client, &two().edge_if("a", "b", "x === 1")).await;
    refusal.is(Code::InvalidArgument, "BAD_CONDITION").says("RUN-E005", &["a -> b"]);
    let refusal = refused(&client, &two().node("c", &hash)).await;
    refusal.is(Code::InvalidArgument, "UNREACHABLE_NODES").says("RUN-E003", &["b", "c"]);
    let refusal = refused(&client, &two().edge("a", "b").edge("b", "a")).await;
    refusal.is(Code::InvalidArgument, "UNBOUNDED_CYCLE").says("RUN-E002", &["a", "b"]);
    let refusal = refused(&client, &Plan::new().unbound("think")).await;
    refusal.is(Code::FailedPrecondition, "NO_MODEL").says("RUN-E006", &["think"]);
}

#[tokio::test]
async fn validating_a_plan_reports_every_problem_at_once_and_stores_nothing() {
    let stack = stack().await;
    let client = stack.client();
    let hash = work(&client).await;
    let nowhere = "cd".repeat(32);
    let structure = Plan::new().node("a", &hash).node("b", &hash).node("island", &hash).edge_if("a", "b", "&&");
    let bindings = Plan::chain([("a", &*hash), ("b", &nowhere), ("c", "no-hash")]);
    for (plan, expected) in [
        (structure, vec![("RUN-E003", "island"), ("RUN-E005", "a -> b")]),
        (bindings, vec![("RUN-E004", "b"), ("RUN-E004", "no-hash")]),
    ] {
        let plan = Some(validate_plan_request::Plan::PlanJson(plan.json().to_string()));
        let request = ValidatePlanRequest { namespace: "ops".into(), plan };
        let problems = client.catalog().validate_plan(request).await.unwrap().into_inner().problems;
        for (code, names) in expected {
            let told = problems.iter().any(|problem| problem.code == code && problem.message.contains(names));
            assert!(told, "{code} {names:?} is not in {problems:?}");
        }
    }
    let listed = proto::runner::v1::ListPlansRequest { namespace: "ops".into(), ..Default::default() };
    assert!(client.catalog().list_plans(listed).await.unwrap().into_inner().plans.is_empty());
}

#[tokio::test]
async fn callers_are_known_and_their_permissions_are_asked() {
    let stack = stack().await;
    let client = stack.client();
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    let reader = stack.client_of(Who::Reader);
    let refusal = Refusal::expected(reader.start("r1", &plan, &json!({})).await);
    refusal.is(Code::PermissionDenied, "NOT_PERMITTED");
    refusal.says("RUN-E012", &["user:reader", "run.execute", "ops"]);
    let refusal = Refusal::expected(reader.put_blob(b"bytes").await);
    refusal.says("RUN-E012", &["catalog.write"]);
    let refusal = Refusal::expected(stack.stranger().start("r1", &plan, &json!({})).await);
    refusal.is(Code::Unauthenticated, "UNAUTHENTICATED");
    let run = client.run("r1", &plan, &json!({})).await.unwrap();
    assert_eq!(run.principal, "user:runner");
}

#[tokio::test]
async fn without_a_token_file_a_caller_on_this_host_is_user_local() {
    let builder = Stack::builder().unwrap().without_tokens();
    let stack = builder.runner(|flags| flags.tool_cmd("cat")).start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    assert_eq!(client.run("r1", &plan, &json!({})).await.unwrap().principal, "user:local");
}

#[tokio::test]
async fn a_run_over_the_cap_is_refused_with_a_delay_and_writes_nothing() {
    let builder = Stack::builder().unwrap();
    let gate = builder.directory().join("gate");
    let body = format!(
        "cat > /dev/null; while [ -e \"$0\" ] && [ ! -e '{}' ]; do sleep 0.02; done; echo '{{}}'",
        gate.display()
    );
    let tool = ShellTool::write(builder.directory(), "tool.sh", &body).unwrap();
    let flags = |flags: e2e::flags::Flags| flags.tool_cmd(&tool.command()).value("--max-concurrent-runs", "1");
    let stack = builder.runner(flags).start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    client.start("r1", &plan, &json!({})).await.unwrap();
    let refusal = Refusal::expected(client.start("r2", &plan, &json!({})).await);
    refusal.is(Code::ResourceExhausted, "TOO_MANY_RUNS").says("RUN-E027", &[]);
    assert!(refusal.retry, "{refusal:?}");
    Refusal::expected(client.get("r2").await).is(Code::NotFound, "RUN_NOT_FOUND");

    std::fs::write(gate, "").unwrap();
    client.wait("r1").await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(status) = client.start("r2", &plan, &json!({})).await {
        assert_eq!(Refusal::of(&status).code, "RUN-E027");
        assert!(Instant::now() < deadline, "the slot of an ended run is never free");
        tokio::time::sleep(POLL).await;
    }
    client.wait("r2").await.unwrap();
}

#[tokio::test]
async fn every_call_needs_its_run_to_exist() {
    let stack = stack().await;
    let client = stack.client();
    Refusal::expected(client.get("ghost").await).is(Code::NotFound, "RUN_NOT_FOUND");
    Refusal::expected(client.wait("ghost").await).is(Code::NotFound, "RUN_NOT_FOUND");
    Refusal::expected(client.manifest("ghost").await).is(Code::NotFound, "RUN_NOT_FOUND");
    Refusal::expected(client.entries("ghost").await).is(Code::NotFound, "RUN_NOT_FOUND");
    Refusal::expected(client.events("ghost").await).is(Code::NotFound, "RUN_NOT_FOUND");
    Refusal::expected(client.verify("ghost").await).is(Code::NotFound, "RUN_NOT_FOUND");
    let text = Refusal::expected(client.get("ghost").await).text;
    assert!(text.contains("ghost"), "{text}");
}
