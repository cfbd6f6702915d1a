//! What guests do wrong is told apart, by name.

use std::{
    io::Write as _,
    process::{Command, Output, Stdio},
};

use e2e::{binaries, document::Definition, guests, stack::Stack};
use prost_types::Duration;
use proto::runner::v1::{NodePolicy, Run, RunOptions, RunStatus, StepAction};
use serde_json::{Value, json};

/// The cap of a guest's output.
const OUTPUT_BYTES_MAX: usize = 8 * 1024 * 1024;

async fn run(module: &[u8], limits: Value, options: RunOptions) -> (Run, StepAction) {
    let stack = Stack::builder().unwrap().pin(module).sandbox().start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(module).await.unwrap();
    let plan = client.put_work(&Definition::pure("work", &uri).with("runtime_limits", limits)).await.unwrap();
    let input = json!({"lines": [{"cents": 1250}, {"cents": 99}]});
    let run = client.run_with("r1", &plan, &input, options).await.unwrap();
    assert!(client.verify("r1").await.unwrap().clean);
    (run, client.step_actions(&plan).await.unwrap().remove(0))
}

async fn fails(module: &[u8], parts: &[&str]) {
    let (run, action) = run(module, json!({}), RunOptions::default()).await;
    assert_eq!((run.status(), run.failed_node.as_str()), (RunStatus::Failed, "work"));
    assert_eq!(action.failure_cause, "executor_error");
    for part in parts {
        assert!(action.failure_detail.contains(part), "{part:?} is not in {:?}", action.failure_detail);
    }
}

#[tokio::test]
async fn a_pure_module_computes() {
    let (run, action) = run(&guests::sum(), json!({}), RunOptions::default()).await;
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    assert_eq!(action.tool_content, "{\"total_cents\":1349}");
    assert!(run.spent.unwrap().fuel > 0);
}

#[tokio::test]
async fn a_guest_that_never_returns_runs_out_of_fuel() {
    fails(&guests::spin(), &["guest exhausted its fuel"]).await;
}

#[tokio::test]
async fn a_guest_with_fuel_to_spare_is_stopped_by_the_clock() {
    let policy = NodePolicy { node: "work".into(), timeout: Some(Duration { seconds: 1, nanos: 0 }), backoff: None };
    let options = RunOptions { node_policies: vec![policy], ..Default::default() };
    let (run, action) = run(&guests::spin(), json!({"fuel": 100_000_000_000_u64}), options).await;
    assert_eq!(run.status(), RunStatus::Failed);
    assert_eq!(action.failure_cause, "timeout");
}

#[tokio::test]
async fn a_trap_is_an_outcome() {
    fails(&guests::trap(), &["unreachable"]).await;
}

#[tokio::test]
async fn memory_ends_at_its_limit_and_the_guest_is_told() {
    let (run, action) = run(&guests::grow(), json!({"max_pages": 4}), RunOptions::default()).await;
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    assert_eq!(action.tool_content, "{\"refused\":true}");
}

#[tokio::test]
async fn a_guest_that_emits_nothing_or_no_json_fails() {
    fails(&guests::silent(), &["guest never called areev::emit"]).await;
    fails(&guests::not_json(), &["guest output is not JSON"]).await;
}

#[tokio::test]
async fn an_import_that_no_guest_is_given_is_named() {
    fails(&guests::wasi(), &["wasi_snapshot_preview1", "random_get"]).await;
}

#[tokio::test]
async fn an_output_at_its_cap_passes_and_one_byte_more_fails() {
    let (run, action) = run(&guests::big(OUTPUT_BYTES_MAX), json!({}), RunOptions::default()).await;
    assert_eq!(action.status, "completed", "{}", action.failure_detail);
    // The state is the result and what is around it: over the cap of the state, or under it, but said.
    assert!(run.status() == RunStatus::Completed || run.reason.starts_with("RUN-E015"), "{}", run.reason);
    fails(&guests::big(OUTPUT_BYTES_MAX + 1), &["output"]).await;
}

#[test]
fn the_one_shot_form_keeps_the_argument_vector() {
    let directory = tempfile::tempdir().unwrap();
    let exec = |module: &[u8], input: &str, arguments: &[&str]| -> Output {
        let file = directory.path().join("module.wasm");
        std::fs::write(&file, module).unwrap();
        let mut child = Command::new(binaries::directory().unwrap().join("sandbox-svc"))
            .args(["exec", "--module"])
            .arg(&file)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();

    // The guest gets compact JSON, however its input was written.
    let done = exec(&guests::sum(), "{ \"cents\": 5 }", &["--fuel", "5000", "--max-pages", "4"]);
    assert_eq!(
        (done.status.code(), text(&done.stdout).as_str()),
        (Some(0), "{\"total_cents\":5}\n"),
        "{}",
        text(&done.stderr)
    );
    assert!(text(&done.stderr).contains("fuel used "), "{}", text(&done.stderr));
    let blank = exec(&guests::echo(), "", &[]);
    assert_eq!(text(&blank.stdout), "null\n");

    let spent = exec(&guests::spin(), "{}", &["--fuel", "1000"]);
    assert_eq!((spent.status.code(), text(&spent.stdout).as_str()), (Some(1), ""));
    assert!(text(&spent.stderr).contains("guest exhausted its fuel"), "{}", text(&spent.stderr));
    let closed = exec(&guests::fetch(&json!({"url": "https://example.com/"})), "{}", &[]);
    assert_eq!(closed.status.code(), Some(1));
    assert!(text(&closed.stderr).contains("fetch"), "the import is named: {}", text(&closed.stderr));
    let unknown = exec(&guests::echo(), "{}", &["--no-such-flag"]);
    assert!(!unknown.status.success() && text(&unknown.stderr).contains("--no-such-flag"));
}
