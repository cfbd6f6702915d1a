//! Bodies that go by their digest: through broker and catalogue, past the guest, the sandbox and the journal.

use std::{fs, sync::Arc};

use content_digest::Digest;
use e2e::{
    client::Client,
    document::{Definition, Plan},
    evidence::{runner_command, verify},
    guests,
    stack::Stack,
    upstream::{Answer, Upstream},
};
use proto::runner::v1::RunStatus;
use serde_json::{Value, json};

/// What no artifact may be longer than.
const ARTIFACT_BYTES_MAX: usize = 32 * 1024 * 1024;
/// What the tests move.
const LARGE_BYTES: usize = 20 * 1024 * 1024;
/// What a service may hold beside a body: windows of the transport, pieces, allocator, and what a debug build costs.
const OVERHEAD_BYTES: u64 = 48 * 1024 * 1024;

/// Bytes that no text is, and of which no kilobyte is like another.
pub fn binary(bytes: usize) -> Vec<u8> {
    let word = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..bytes.div_ceil(8) as u64).flat_map(word).take(bytes).collect()
}

pub fn settings(origin: &str) -> String {
    let ceilings = "artifacts = { max_request_bytes = 33554432, max_response_bytes = 33554432 }\n";
    format!(
        "[policy]\nallow_hosts = [{origin:?}]\nallow_private = [\"127.0.0.0/8\"]\n\
         [grants.down]\nmethods = [\"GET\"]\nhosts = [{origin:?}]\n{ceilings}\
         [grants.up]\nmethods = [\"PUT\"]\nhosts = [{origin:?}]\n{ceilings}"
    )
}

pub fn capabilities(origin: &str, method: &str, reads_blobs: bool) -> Value {
    let ceilings = json!({"max_request_bytes": ARTIFACT_BYTES_MAX, "max_response_bytes": ARTIFACT_BYTES_MAX});
    let http = json!({"http": {"hosts": [origin], "methods": [method], "artifacts": ceilings}});
    if reads_blobs { json!([http, {"blob": {"read": true}}]) } else { json!([http]) }
}

/// Gives `body` to whoever reads and takes what is put.
pub async fn upstream(body: Vec<u8>) -> Upstream {
    let body = Arc::new(body);
    let answer = move |request: &e2e::upstream::Received| {
        let body = if request.head.starts_with("GET") { body.to_vec() } else { b"taken".to_vec() };
        Some(Answer { status: 200, headers: Vec::new(), body })
    };
    Upstream::start(answer).await.unwrap()
}

/// A stack with a plan of two nodes: one downloads an artifact, the next one puts that blob back to the upstream.
struct There {
    stack: Stack,
    upstream: Upstream,
    plan: String,
    blob: Digest,
}

async fn there_and_back(body: Vec<u8>, reads_blobs: bool) -> There {
    let blob = Digest::of(&body);
    let upstream = upstream(body).await;
    let origin = upstream.origin();
    let (down, up) = modules(&origin);
    let builder = Stack::builder().unwrap().pin(&down).pin(&up).sandbox();
    let stack = builder.broker(&settings(&origin), &[]).unwrap().start().await.unwrap();
    let plan = put_plan(&stack.client(), &origin, reads_blobs).await;
    There { stack, upstream, plan, blob }
}

/// One that downloads an artifact, and one that puts the blob that it is given.
pub fn modules(origin: &str) -> (Vec<u8>, Vec<u8>) {
    let down = guests::fetch(&json!({"url": format!("{origin}/down"), "response_mode": "artifact"}));
    (down, guests::give(&json!({"url": format!("{origin}/up"), "method": "PUT"})))
}

/// The plan of the two.
pub async fn put_plan(client: &Client, origin: &str, reads_blobs: bool) -> String {
    let define = async |name: &str, module: &[u8], capabilities: Value| {
        let uri = client.put_blob(module).await.unwrap();
        client.put_definition(&Definition::io(name, &uri, capabilities)).await.unwrap()
    };
    let (down, up) = modules(origin);
    let down = define("down", &down, capabilities(origin, "GET", false)).await;
    let up = define("up", &up, capabilities(origin, "PUT", reads_blobs)).await;
    client.put_plan(&Plan::chain([("down", down.as_str()), ("up", up.as_str())])).await.unwrap()
}

fn seen(upstream: &Upstream, path: &str) -> usize {
    upstream.received().iter().filter(|request| request.head.split(' ').nth(1) == Some(path)).count()
}

/// The most memory that a process had, in bytes.
fn peak_bytes(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Bytes of everything in the data directory but the blobs.
fn journal_bytes(stack: &Stack) -> u64 {
    fn size(path: &std::path::Path) -> u64 {
        if path.is_dir() {
            fs::read_dir(path).unwrap().map(|entry| size(&entry.unwrap().path())).sum()
        } else {
            fs::metadata(path).map(|meta| meta.len()).unwrap_or_default()
        }
    }
    let entries = fs::read_dir(stack.data()).unwrap().map(|entry| entry.unwrap());
    // Room that is kept for a full disk is no journal.
    let counted = entries.filter(|entry| !matches!(entry.file_name().to_str(), Some("blobs" | "reserve")));
    counted.map(|entry| size(&entry.path())).sum()
}

/// The report and the exit code of a command of the runner's program.
fn command(arguments: &[&str]) -> (i32, Value) {
    let output = runner_command(arguments).unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).unwrap_or_else(|_| json!(error)))
}

async fn output_of(client: &Client, plan: &str, run_id: &str) -> Value {
    let run = client.run(run_id, plan, &json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    serde_json::from_str(&run.output_json).unwrap()
}

#[tokio::test]
async fn twenty_mebibytes_come_as_an_artifact_and_go_out_again_byte_for_byte() {
    let body = binary(LARGE_BYTES);
    let mut there = there_and_back(body.clone(), true).await;
    let before = journal_bytes(&there.stack);
    let client = there.stack.client();
    let output = output_of(&client, &there.plan, "r1").await;
    assert_eq!(output["status"], json!(200), "{output}");
    assert_eq!((&output["body_ref"], &output["size_bytes"]), (&json!(there.blob.to_uri()), &json!(LARGE_BYTES)));
    let put = there.upstream.received().into_iter().find(|request| request.head.starts_with("PUT")).unwrap();
    assert!(put.body == body, "the upstream received {} other bytes", put.body.len());
    assert_eq!(put.header("content-type"), ["application/octet-stream"]);

    let grown = journal_bytes(&there.stack) - before;
    assert!(grown < 1024 * 1024, "the journal grew by {grown} bytes");
    let exchanges: Vec<_> = client.entries("r1").await.unwrap().iter().map(|entry| entry.exchanges).collect();
    assert_eq!(exchanges, [1, 1]);
    assert!(client.verify("r1").await.unwrap().clean);

    let large = LARGE_BYTES as u64;
    for (service, allowed) in [
        // Pieces alone pass the runner; the broker holds one body, and for a moment what it grew out of; the sandbox nothing.
        (&mut there.stack.runner, OVERHEAD_BYTES + large / 2),
        (there.stack.sandbox.as_mut().unwrap(), OVERHEAD_BYTES + large),
        (there.stack.broker.as_mut().unwrap(), OVERHEAD_BYTES + 3 * large),
    ] {
        let peak = peak_bytes(service.process().pid());
        assert!(peak < allowed, "{} had {peak} bytes, over {allowed}", service.url());
    }
}

#[tokio::test]
async fn an_answer_of_33_mebibytes_is_refused_by_name_and_leaves_no_blob() {
    let body = binary(ARTIFACT_BYTES_MAX + 1024 * 1024);
    let there = there_and_back(body, true).await;
    let client = there.stack.client();
    // The second node is given the address that the blob would have.
    let given = json!({"blob": there.blob.to_uri()});
    let run = client.run("r1", &there.plan, &given).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    let output: Value = serde_json::from_str(&run.output_json).unwrap();
    let error = output["error"].as_str().unwrap();
    assert!(error.contains("there is no blob"), "{output}");
    assert_eq!(output["code"], json!("RUN-E022"));
    assert_eq!((seen(&there.upstream, "/down"), seen(&there.upstream, "/up")), (1, 0));
    let hex = there.blob.to_hex();
    assert!(!there.stack.data().join("blobs").join(&hex[..2]).join(&hex[2..]).exists(), "half a blob was stored");
    assert_eq!(fs::read_dir(there.stack.data().join("blobs/tmp")).unwrap().count(), 0);
}

#[tokio::test]
async fn who_may_not_read_blobs_can_send_none() {
    let there = there_and_back(binary(1000), false).await;
    let output = output_of(&there.stack.client(), &there.plan, "r1").await;
    let error = output["error"].as_str().unwrap();
    assert!(error.contains("does not declare that it reads blobs"), "{output}");
    assert_eq!((seen(&there.upstream, "/down"), seen(&there.upstream, "/up")), (1, 0));
}

#[tokio::test]
async fn a_runner_that_dies_anywhere_asks_again_only_what_was_not_recorded() {
    let mut there = there_and_back(binary(300_000), true).await;
    let (mut crashes, mut in_doubt) = (0, 0);
    for (before, number) in (1..=6).flat_map(|number| [(true, number), (false, number)]) {
        let flags = there.stack.runner.flags.clone();
        there.stack.runner.flags =
            if before { flags.crash_before_commit(number) } else { flags.crash_after_commits(number) };
        let begun = (seen(&there.upstream, "/down"), seen(&there.upstream, "/up"));
        let started = there.stack.runner.restart().await.is_ok();
        let run_id = format!("crash-{before}-{number}");
        let ended = started && there.stack.client().run(&run_id, &there.plan, &json!({})).await.is_ok();
        crashes += u32::from(!ended);
        there.stack.runner.flags.no_crash();
        there.stack.runner.restart().await.unwrap();
        let client = there.stack.client();
        if client.get(&run_id).await.is_err() {
            continue;
        }
        let run = client.wait(&run_id).await.unwrap();
        assert_eq!(run.status(), RunStatus::Completed, "{run_id}: {}", run.reason);
        assert!(run.output_json.contains(&there.blob.to_uri()), "{run_id}: {}", run.output_json);
        assert!(client.verify(&run_id).await.unwrap().clean, "{run_id}");
        let exchanges: Vec<_> = client.entries(&run_id).await.unwrap().iter().map(|entry| entry.exchanges).collect();
        assert_eq!(exchanges, [1, 1], "{run_id}");
        let calls = (seen(&there.upstream, "/down") - begun.0, seen(&there.upstream, "/up") - begun.1);
        // Between blob and event the call is in doubt, and made again; once its event is there, never.
        match (before, calls) {
            (_, (1, 1)) => {}
            (true, (2, 1) | (1, 2)) => in_doubt += 1,
            other => panic!("{run_id}: {other:?} calls"),
        }
    }
    assert!(crashes >= 6 && in_doubt >= 1, "{crashes} crashes, {in_doubt} of them between a blob and its event");
}

#[tokio::test]
async fn exports_backups_and_fsck_know_the_blobs_that_calls_moved() {
    let mut there = there_and_back(binary(300_000), true).await;
    let client = there.stack.client();
    output_of(&client, &there.plan, "r1").await;
    let file = there.stack.directory().join("run.jsonl");
    for (with_blobs, here) in [(false, 0), (true, 1)] {
        fs::write(&file, client.export("r1", with_blobs).await.unwrap()).unwrap();
        let (code, report) = verify(&file, &[]).unwrap();
        assert_eq!(
            (code, &report["named_blobs"], &report["named_blobs_here"]),
            (0, &json!(1), &json!(here)),
            "{report}"
        );
    }
    let (data, copy) = (there.stack.data().display().to_string(), there.stack.directory().join("copy"));
    let copied = copy.display().to_string();
    let (code, report) = command(&["backup", "--json", "--from", &data, &copied]);
    assert_eq!(code, 0, "{report}");
    let (code, report) = command(&["fsck", "--json", &copied]);
    assert_eq!((code, &report["orphan_blobs"]), (0, &json!(0)), "{report}");
    // A blob that no event names is told, and is no damage; one that an event names is missed.
    there.stack.runner.process().kill().unwrap();
    let hex = there.blob.to_hex();
    let named = copy.join("blobs").join(&hex[..2]).join(&hex[2..]);
    let orphan = Digest::of("orphan").to_hex();
    fs::write(copy.join("blobs").join(&orphan[..2]).join(&orphan[2..]), "orphan").unwrap();
    let (code, report) = command(&["fsck", "--json", &copied]);
    assert_eq!((code, &report["orphan_blobs"]), (0, &json!(1)), "{report}");
    fs::remove_file(named).unwrap();
    let (code, report) = command(&["fsck", "--json", &copied]);
    let problem = &report["problems"][0];
    assert_eq!((code, &problem["class"]), (1, &json!("missing")), "{report}");
    assert!(problem["what"].as_str().unwrap().contains(&hex), "{problem}");
}
