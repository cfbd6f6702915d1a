//! Native blobs: of a sandbox that is killed none stays, and the next sandbox sweeps what is left; one with egress calls out by
//! the broker's door.

use std::time::Instant;

use e2e::{
    document::Definition,
    process::{PATIENCE, POLL},
    stack::Stack,
    upstream::{Answer, Received, Upstream},
};
use proto::{broker::v1::ListCallsRequest, runner::v1::RunStatus, sandbox::v1::DescribeRequest};
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

const SECRET: &str = "areev-canary-Zq7-of-a-blob";

/// Makes one call by the door, in the way of a program that has nothing but a shell.
const CALLS_OUT: &str = r#"#!/bin/bash
door=${AREEV_EGRESS_URL#http://}; door=${door%/}
body='{"url":"ORIGIN/pay","method":"POST","credential":"bank","body":"hello"}'
exec 3<>"/dev/tcp/${door%:*}/${door##*:}" || exit 7
printf 'POST / HTTP/1.1\r\nhost: %s\r\nx-areev-egress-token: %s\r\ncontent-type: application/json\r\n' "$door" "$AREEV_EGRESS_TOKEN" >&3
printf 'content-length: %s\r\nconnection: close\r\n\r\n%s' "${#body}" "$body" >&3
answer=$(cat <&3)
printf '%s' "${answer##*$'\r\n\r\n'}"
"#;

#[tokio::test]
async fn a_native_blob_calls_out_by_the_brokers_door() {
    let echo = |request: &Received| {
        let seen = request.header("authorization").join(",");
        Some(Answer::json(201, &json!({"you_sent": seen})))
    };
    let upstream = Upstream::start(echo).await.unwrap();
    let origin = upstream.origin();
    let script = CALLS_OUT.replace("ORIGIN", &origin);
    let settings = format!(
        "[policy]\nallow_hosts = [{origin:?}]\nallow_private = [\"127.0.0.0/8\"]\n\
         [credentials.bank]\nkind = \"bearer\"\nfrom = \"env:E2E_BANK\"\nhosts = [{origin:?}]\n\
         [grants.work]\ncredentials = [\"bank\"]\nmethods = [\"POST\"]\nhosts = [{origin:?}]\n"
    );
    let builder = Stack::builder().unwrap().pin(script.as_bytes()).native_sandbox();
    let stack = builder.broker(&settings, &[("E2E_BANK", SECRET)]).unwrap().start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(script.as_bytes()).await.unwrap();
    let plan = client.put_work(&Definition::code("work", &uri)).await.unwrap();
    let run = client.run("r1", &plan, &json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    assert!(run.output_json.contains("201") && run.output_json.contains("you_sent"), "{}", run.output_json);
    assert!(!run.output_json.contains(SECRET), "{}", run.output_json);
    let received = upstream.received();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].header("authorization"), [format!("Bearer {SECRET}")]);
    assert_eq!(received[0].body_text(), "hello");
    let calls = ListCallsRequest { run_id: "r1".into(), ..Default::default() };
    let calls = stack.broker_client().list_calls(calls).await.unwrap().into_inner().calls;
    assert_eq!(calls.iter().map(|call| call.door.as_str()).collect::<Vec<_>>(), ["http"]);
}
