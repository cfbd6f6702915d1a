//! Native blobs: what they see, what comes out, and that nothing of them stays behind.

use content_digest::Digest;
use proto::{
    fault::{Reason, reason_of},
    sandbox::v1::{Cancel, Egress, ExecuteRequest, Outcome, OutcomeKind, Runtime, Start, execute_request::Message},
};

use crate::rig::{PATIENCE, Rig, assert_failed, assert_output, start, until, within_ms};

pub async fn message(rig: &Rig, script: &str, input: &str) -> Start {
    let uri = rig.put(format!("#!/bin/sh\n{script}\n").as_bytes()).await;
    start(&uri, Runtime::Native, input)
}

pub async fn run(rig: &Rig, script: &str, input: &str) -> Outcome {
    let message = message(rig, script, input).await;
    rig.execute(message).await.unwrap().0
}

/// Whether a process runs that has the word among its arguments: numbers of processes are each namespace's own.
pub fn running(word: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.into_iter().any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    })
}

/// A length of sleep that nobody else sleeps.
pub fn unique_sleep() -> String {
    format!("1000.{}", uuid::Uuid::new_v4().as_u128())
}

#[tokio::test]
async fn native_execution_is_off_unless_it_is_allowed() {
    let rig = Rig::new().await;
    let message = message(&rig, "echo 1", "null").await;
    let status = rig.execute(message).await.unwrap_err();
    assert_eq!((status.code(), reason_of(&status)), (tonic::Code::FailedPrecondition, Some(Reason::NativeDisabled)));
    assert!(status.message().contains("--allow-native"), "{status:?}");
}

#[tokio::test]
async fn a_script_reads_one_line_and_its_output_is_the_result() {
    let rig = Rig::native().await;
    let script = r#"read -r line || exit 9
echo "{\"ran\":true,\"saw\":$line}""#;
    let outcome = run(&rig, script, "{ \"q\" : 7 }").await;
    assert_output(&outcome, "{\"ran\":true,\"saw\":{\"q\":7}}");
    assert_output(&run(&rig, "cat", "9007199254740993").await, "9007199254740993");
    assert_output(&run(&rig, "echo 1", &format!("\"{}\"", "x".repeat(1_000_000))).await, "1");
}

#[tokio::test]
async fn what_a_child_leaves_is_removed_also_where_it_closed_it_to_everybody() {
    let rig = Rig::native().await;
    let native = rig.directory().join("native");
    let outcome = run(
        &rig,
        "mkdir -p a/b/c && echo >a/b/c/d && ln -s / a/root && chmod 0 a/b/c && chmod 0 a/b && chmod 0 a && chmod 0 . && echo 1",
        "null",
    );
    assert_output(&outcome.await, "1");
    assert_eq!(std::fs::read_dir(native.join("work")).unwrap().count(), 0);
    until("all of it has gone", || std::fs::read_dir(native.join("gone")).unwrap().count() == 0).await;
}

#[tokio::test]
async fn a_child_sees_the_named_variables_and_nothing_else() {
    let rig = Rig::native().await;
    let script = r#"printf '{'; env | sed 's/"/\\"/g; s/^\([^=]*\)=\(.*\)$/"\1":"\2",/'; printf '"cwd":"%s"}' "$PWD""#;
    let mut with = message(&rig, script, "null").await;
    let digest = with.module_digest.clone();
    with.tool_name = "poster".to_owned();
    with.definition_hash = "ab".repeat(32);
    with.idempotency_key = "cd".repeat(32);
    let without = with.clone();
    with.egress =
        Some(Egress { token: "t0".to_owned(), url: "http://127.0.0.1:7431/".to_owned(), ..Egress::default() });
    let seen = |outcome: Outcome| -> std::collections::BTreeMap<String, String> {
        assert_eq!(outcome.kind(), OutcomeKind::Completed, "{outcome:?}");
        serde_json::from_str(&outcome.output_json).unwrap()
    };
    let (with, without) = (seen(rig.execute(with).await.unwrap().0), seen(rig.execute(without).await.unwrap().0));
    let allowed = [
        "PATH",
        "HOME",
        "TMPDIR",
        "LANG",
        "LC_ALL",
        "TZ",
        "AREEV_TOOL_NAME",
        "AREEV_TOOL_HASH",
        "AREEV_IDEMPOTENCY_KEY",
        "AREEV_EXECUTOR_URI",
        "AREEV_EGRESS_URL",
        "AREEV_EGRESS_TOKEN",
        // The shell's own.
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
        "cwd",
    ];
    let strangers: Vec<_> = with.keys().filter(|name| !allowed.contains(&name.as_str())).collect();
    assert!(strangers.is_empty(), "{strangers:?}");
    assert_eq!((with["AREEV_TOOL_NAME"].as_str(), &with["AREEV_EXECUTOR_URI"]), ("poster", &digest));
    assert_eq!((&with["AREEV_TOOL_HASH"], &with["AREEV_IDEMPOTENCY_KEY"]), (&"ab".repeat(32), &"cd".repeat(32)));
    assert_eq!(
        (with["AREEV_EGRESS_TOKEN"].as_str(), with["AREEV_EGRESS_URL"].as_str()),
        ("t0", "http://127.0.0.1:7431/")
    );
    assert!(!without.contains_key("AREEV_EGRESS_URL") && !without.contains_key("AREEV_EGRESS_TOKEN"));
    assert!(with["cwd"].contains("/work/") && with["cwd"] != without["cwd"], "a directory of its own");
    assert!(!std::path::Path::new(&with["cwd"]).exists(), "which is gone afterwards");
}

#[tokio::test]
async fn a_child_is_bounded_and_cannot_gain_rights() {
    let rig = Rig::native().await;
    let script = r#"grep NoNewPrivs /proc/self/status | tr -d '\t' | sed 's/.*/{"privs":"&",/'
printf '"core":"%s","files":"%s","umask":"%s"}' "$(ulimit -c)" "$(ulimit -n)" "$(umask)""#;
    assert_output(
        &run(&rig, script, "null").await,
        "{\"privs\":\"NoNewPrivs:1\",\n\"core\":\"0\",\"files\":\"256\",\"umask\":\"0077\"}",
    );
}

#[tokio::test]
async fn a_status_other_than_zero_and_output_that_is_no_json_are_outcomes_with_stderr() {
    let rig = Rig::native().await;
    let outcome = run(&rig, "echo why >&2; echo '{}'; exit 3", "null").await;
    assert_failed(&outcome, OutcomeKind::Exit, "ended with status 3; stderr: why");
    assert_failed(&run(&rig, "kill -9 $$", "null").await, OutcomeKind::Exit, "killed by signal 9");
    assert_failed(&run(&rig, "exit 254", "null").await, OutcomeKind::Exit, "native blob ended with status 254");
    assert_failed(&run(&rig, "echo oops; echo see >&2", "null").await, OutcomeKind::BadOutput, "not JSON");
    assert_failed(&run(&rig, "true", "null").await, OutcomeKind::BadOutput, "not JSON");
    let loud = run(&rig, "head -c 100000 /dev/zero | tr '\\0' e >&2; exit 1", "null").await;
    assert_eq!(loud.kind(), OutcomeKind::Exit);
    assert!(loud.text.len() <= 4096, "{}", loud.text.len());
    let uri = rig.put(b"no program at all").await;
    let outcome = rig.execute(start(&uri, Runtime::Native, "null")).await.unwrap().0;
    assert_failed(&outcome, OutcomeKind::Exit, "cannot execute the blob");
}

#[tokio::test]
async fn output_over_its_cap_ends_the_child() {
    let rig = Rig::native().await;
    let outcome = run(&rig, "trap '' PIPE; while :; do head -c 1000000 /dev/zero; done", "null").await;
    assert_failed(&outcome, OutcomeKind::OutputTooLarge, "8388608");
}

#[tokio::test]
async fn at_the_deadline_the_whole_group_is_killed() {
    let rig = Rig::native().await;
    for start in ["", "setsid "] {
        let sleep = unique_sleep();
        let mut message = message(&rig, &format!("{start}sleep {sleep} & wait; sleep {sleep}"), "null").await;
        message.deadline = within_ms(2000);
        let outcome = rig.execute(message).await.unwrap().0;
        assert_failed(&outcome, OutcomeKind::Timeout, "native blob ran into its deadline");
        until("the grandchild is gone", || !running(&sleep)).await;
    }
    assert_eq!(rig.sandbox.admission.running(), 0);
}

#[tokio::test]
async fn cancel_kills_the_whole_group() {
    let rig = Rig::native().await;
    let sleep = unique_sleep();
    let mut call = rig.begin(message(&rig, &format!("sleep {sleep} & wait"), "null").await).await.unwrap();
    until("the grandchild runs", || running(&sleep)).await;
    call.requests.send(ExecuteRequest { message: Some(Message::Cancel(Cancel {})) }).await.unwrap();
    assert_failed(&call.outcome().await, OutcomeKind::Canceled, "canceled");
    until("the grandchild is gone", || !running(&sleep)).await;
}

#[tokio::test]
async fn a_grandchild_that_holds_the_pipe_does_not_delay_the_result() {
    let rig = Rig::native().await;
    // One in the group, and one that left it.
    for start in ["sleep", "setsid sleep"] {
        let sleep = unique_sleep();
        let script = format!("{start} {sleep} & echo 5");
        let ended = tokio::time::timeout(PATIENCE, run(&rig, &script, "null")).await.expect("it is not waited for");
        assert_output(&ended, "5");
        until("the grandchild is gone", || !running(&sleep)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_children_of_freshly_written_files_all_start() {
    let rig = Rig::native().await;
    // Uploaded one by one, as uploads at once are bounded; the files are written when the calls begin, all together.
    let mut messages = Vec::new();
    for n in 0..40 {
        messages.push(message(&rig, &format!("echo {n}"), "null").await);
    }
    let calls = messages.into_iter().map(|message| rig.execute(message));
    for (n, called) in futures::future::join_all(calls).await.into_iter().enumerate() {
        assert_output(&called.unwrap().0, &n.to_string());
    }
}

#[tokio::test]
async fn a_file_that_was_changed_on_disk_is_not_what_runs() {
    let rig = Rig::native().await;
    let message = message(&rig, "echo 1", "null").await;
    assert_output(&rig.execute(message.clone()).await.unwrap().0, "1");
    let digest = Digest::from_uri(&message.module_digest).unwrap();
    let file = rig.directory().join("native/code").join(digest.to_hex());
    std::fs::write(&file, "#!/bin/sh\necho 2\n").unwrap();
    assert_output(&rig.execute(message).await.unwrap().0, "1");
}
