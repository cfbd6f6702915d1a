//! Codes that a start is refused with.

use e2e::{
    client::Client,
    document::{Definition, Plan},
    stack::{Stack, Who},
};
use proto::{fault::Reason, runner::v1::Run};
use serde_json::json;
use tonic::Status;

use super::{Raised, nothing, refused};

pub async fn raise(reason: Reason, stack: &Stack) -> Raised {
    let client = stack.client();
    let hash = client.put_definition(&Definition::tool("work")).await.unwrap();
    let plan = client.put_plan(&Plan::work(&hash)).await.unwrap();
    let two = || Plan::new().node("a", &hash).node("b", &hash);
    match reason {
        Reason::UnboundedCycle => refused(placed(&client, &two().edge("a", "b").edge("b", "a")).await, &["a", "b"]),
        Reason::UnreachableNodes => refused(placed(&client, &two()).await, &["`b`", "cannot be reached"]),
        Reason::Unresolved => {
            let nowhere = "ab".repeat(32);
            refused(client.start("r1", &nowhere, &nothing()).await, &[&nowhere])
        }
        Reason::BadCondition => refused(placed(&client, &two().edge_if("a", "b", "x === 1")).await, &["a -> b", "=="]),
        Reason::NoModel => {
            let abstract_node = client.put_plan(&Plan::new().unbound("think")).await.unwrap();
            refused(client.start("no-model", &abstract_node, &nothing()).await, &["think"])
        }
        Reason::NotPermitted => {
            let reader = stack.client_of(Who::Reader);
            refused(reader.start("r1", &plan, &nothing()).await, &["user:reader", "run.execute", "ops"])
        }
        Reason::TooLarge => {
            let input = json!({"text": "x".repeat(9 * 1024 * 1024)});
            refused(client.start("too-large", &plan, &input).await, &["input", "8388608"])
        }
        Reason::RunExists => {
            client.run("taken", &plan, &nothing()).await.unwrap();
            refused(client.start("taken", &plan, &json!({"other": true})).await, &["taken", "another input"])
        }
        Reason::ExecutorRefused => {
            let uri = client.put_blob(b"#!/bin/sh\necho {}\n").await.unwrap();
            let plan = client.put_work(&Definition::code("work", &uri)).await.unwrap();
            refused(client.start("unpinned", &plan, &nothing()).await, &["--allow-executor", &uri])
        }
        Reason::BadPlan => refused(client.start("no-plan", &hash, &nothing()).await, &[&hash]),
        Reason::BadRunId => refused(client.start("a\nb", &plan, &nothing()).await, &["a\\nb", "control"]),
        Reason::TooManyRuns => too_many_runs().await,
        Reason::StorageUnavailable => storage_unavailable().await,
        other => panic!("{other:?} is not a start's"),
    }
}

/// A plan is refused where it is authored, or where it is started.
async fn placed(client: &Client, plan: &Plan) -> Result<Run, Status> {
    let hash = client.put_plan(plan).await?;
    client.start("no-run", &hash, &nothing()).await
}

async fn too_many_runs() -> Raised {
    let builder = Stack::builder().unwrap().runner(|flags| flags.value("--max-concurrent-runs", "1"));
    let stack = builder.start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::client("work")).await.unwrap();
    client.run("r1", &plan, &nothing()).await.unwrap();
    refused(client.start("r2", &plan, &nothing()).await, &["--max-concurrent-runs"])
}

async fn storage_unavailable() -> Raised {
    let builder = Stack::builder().unwrap();
    let failing = builder.directory().join("failing");
    let stack = builder.runner(|flags| flags.fail_sync_while(&failing)).start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::client("work")).await.unwrap();
    std::fs::write(failing, "").unwrap();
    refused(client.start("r1", &plan, &nothing()).await, &["syncing the log"])
}
