//! Native blobs of a sandbox that is killed: none of them stays, and the next sandbox sweeps what is left.

use std::time::Instant;

use e2e::{
    document::Definition,
    process::{PATIENCE, POLL},
    stack::Stack,
};
use proto::sandbox::v1::DescribeRequest;
use serde_json::json;

/// Whether a process runs that has the word among its arguments.
fn running(word: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.into_iter().any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    })
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(POLL).await;
    }
}

#[tokio::test]
async fn a_sandbox_that_is_killed_takes_its_native_blobs_along_and_the_next_one_sweeps() {
    // A length that nobody else sleeps.
    let sleep = format!("1000.{}", std::process::id());
    let script = format!("#!/bin/sh\nsetsid sleep {sleep} &\nsleep {sleep}\n");
    let builder = Stack::builder().unwrap().pin(script.as_bytes()).native_sandbox();
    let native = builder.directory().join("native");
    let mut stack = builder.sandbox_flags(|flags| flags.value("--native-dir", &native)).start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(script.as_bytes()).await.unwrap();
    let plan = client.put_work(&Definition::code("work", &uri)).await.unwrap();
    client.start("r1", &plan, &json!({})).await.unwrap();
    until("the blob runs", || running(&sleep)).await;
    stack.sandbox.as_mut().unwrap().process().kill().unwrap();
    until("nothing of it runs", || !running(&sleep)).await;
    let left = || std::fs::read_dir(native.join("work")).unwrap().count();
    assert_eq!(left(), 1, "who was killed removed nothing");
    // The run is over, so that nobody asks the next sandbox for the same again.
    client.cancel("r1", "the sandbox was killed").await.unwrap();
    stack.sandbox.as_mut().unwrap().restart().await.unwrap();
    assert_eq!(left(), 0, "the next one swept");
}

#[tokio::test]
async fn the_manifest_says_what_isolated_native_blobs_and_nothing_of_a_run_without_them() {
    let script = b"#!/bin/sh\necho '{}'\n";
    let module = e2e::guests::echo();
    let builder = Stack::builder().unwrap().pin(script).pin(&module).native_sandbox();
    let stack = builder.start().await.unwrap();
    let client = stack.client();
    let described = stack.sandbox_client().describe(DescribeRequest {}).await.unwrap().into_inner().native_isolation;
    assert!(described.iter().any(|barrier| barrier == "parent_death_signal"), "{described:?}");
    for (run_id, bytes, expected) in [("native", &script[..], described), ("module", &module[..], Vec::new())] {
        let uri = client.put_blob(bytes).await.unwrap();
        let native = Definition::code("work", &uri);
        let definition = if run_id == "native" { native } else { Definition::pure("work", &uri) };
        let plan = client.put_work(&definition).await.unwrap();
        client.run(run_id, &plan, &json!({})).await.unwrap();
        assert_eq!(client.manifest(run_id).await.unwrap().native_isolation, expected, "{run_id}");
    }
}
