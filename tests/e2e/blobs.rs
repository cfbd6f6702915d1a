//! A module that declares it reads blobs of the catalogue: by their digests, bounded, recorded by address.

use e2e::{client::Client, document::Definition, guests::reference, search, stack::Stack};
use proto::runner::v1::RunStatus;
use serde_json::{Value, json};

/// Held by the blob, and by nothing else.
const MARKER: &str = "marker-of-the-blob-5521";

fn declared() -> Value {
    json!([{"blob": {"read": true}}])
}

fn definition(uri: &str, capabilities: Value) -> Definition {
    Definition::io("work", uri, capabilities)
        .with("runtime_limits", json!({"max_blob_bytes": 3_000_000, "fuel": 1_000_000_000}))
}

async fn stack() -> Stack {
    let module = reference("rust", "read").unwrap();
    // No broker: who only reads blobs calls nobody.
    Stack::builder().unwrap().pin(&module).sandbox().start().await.unwrap()
}

async fn plan(client: &Client, capabilities: Value) -> String {
    let uri = client.put_blob(&reference("rust", "read").unwrap()).await.unwrap();
    client.put_work(&definition(&uri, capabilities)).await.unwrap()
}

/// What the module told.
async fn told(client: &Client, plan: &str, run_id: &str, blob: &str) -> Value {
    let run = client.run(run_id, plan, &json!({"blob": blob})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    assert_eq!(run.spent.unwrap().egress_calls, 0, "nothing went out");
    let mut told: Value = serde_json::from_str(&run.output_json).unwrap();
    told.as_object_mut().unwrap().remove("blob");
    told
}

#[tokio::test]
async fn a_declared_blob_is_read_recorded_by_its_address_and_verified() {
    let stack = stack().await;
    let client = stack.client();
    let plan = plan(&client, declared()).await;
    let text = format!("{MARKER} é");
    let small = client.put_blob(text.as_bytes()).await.unwrap();
    let mut large = vec![0xff; 2_500_000];
    large[..MARKER.len()].copy_from_slice(MARKER.as_bytes());
    let large = client.put_blob(&large).await.unwrap();
    let empty = client.put_blob(b"").await.unwrap();
    assert_eq!(told(&client, &plan, "small", &small).await, json!({"bytes": text.len(), "begins": &MARKER[..16]}));
    assert_eq!(told(&client, &plan, "large", &large).await, json!({"bytes": 2_500_000, "begins": &MARKER[..16]}));
    assert_eq!(told(&client, &plan, "empty", &empty).await, json!({"bytes": 0, "begins": ""}));
    for run in ["small", "large", "empty"] {
        assert_eq!(client.entries(run).await.unwrap()[0].exchanges, 1, "{run}: the read is in the journal");
        assert!(client.verify(run).await.unwrap().clean, "{run}");
    }
    let holders = search::files_with(&stack.data(), &[MARKER.as_bytes().to_vec()]).unwrap();
    assert_eq!(holders.len(), 2, "the two blobs themselves, and no journal: {holders:?}");
}

#[tokio::test]
async fn a_blob_that_is_not_there_or_is_too_long_is_refused_to_the_guest_by_its_digest() {
    let stack = stack().await;
    let client = stack.client();
    let plan = plan(&client, declared()).await;
    let missing = format!("cas://sha256:{}", "0".repeat(64));
    let long = client.put_blob(&[b'x'; 3_000_001]).await.unwrap();
    for (run, blob, text) in [("missing", missing, "there is no blob"), ("long", long, "over the 3000000")] {
        let told = told(&client, &plan, run, &blob).await;
        let refused = told["refused"].as_str().unwrap();
        assert!(refused.contains(text) && refused.contains(&blob), "{refused}");
        assert_eq!(client.entries(run).await.unwrap()[0].exchanges, 1, "a refusal is recorded too");
    }
}

#[tokio::test]
async fn without_the_declaration_the_import_is_not_linked() {
    let stack = stack().await;
    let client = stack.client();
    for (run, capabilities) in [
        ("none", json!([{"blob": {"read": false}}])),
        ("http", json!([{"blob": {"read": false}}, {"http": {"hosts": ["https://x.example"]}}])),
    ] {
        let plan = plan(&client, capabilities).await;
        let ended = client.run(run, &plan, &json!({"blob": "cas://sha256:00"})).await.unwrap();
        assert_eq!(ended.status(), RunStatus::Failed, "{run}");
    }
}

#[tokio::test]
async fn after_a_crash_the_recorded_read_gives_the_same_bytes_and_is_not_recorded_again() {
    let mut stack = stack().await;
    let client = stack.client();
    let plan = plan(&client, declared()).await;
    let blob = client.put_blob(MARKER.as_bytes()).await.unwrap();
    let mut crashes = 0;
    // One commit starts the run, one records the read, one ends it: each of them once the last.
    for commits in 1..=6 {
        stack.runner.flags = stack.runner.flags.clone().crash_after_commits(commits);
        if stack.runner.restart().await.is_err() {
            continue;
        }
        let run_id = format!("crash-{commits}");
        let started = stack.client().run(&run_id, &plan, &json!({"blob": blob})).await;
        crashes += u32::from(started.is_err());
        stack.runner.flags.no_crash();
        stack.runner.restart().await.unwrap();
        let client = stack.client();
        if client.get(&run_id).await.is_err() {
            continue;
        }
        let run = client.wait(&run_id).await.unwrap();
        assert_eq!(run.status(), RunStatus::Completed, "{run_id}: {}", run.reason);
        assert!(run.output_json.contains(&format!("\"bytes\":{}", MARKER.len())), "{}", run.output_json);
        assert_eq!(client.entries(&run_id).await.unwrap()[0].exchanges, 1, "{run_id}");
        assert!(client.verify(&run_id).await.unwrap().clean, "{run_id}");
    }
    assert!(crashes >= 2, "only {crashes} crashes in a run");
}
