//! Host tools by command, with the real `/bin/sh`.

use std::{collections::BTreeSet, path::Path};

use runner_core::{outcome::FailureCause, payload::Payload};
use runner_svc::dispatch::{DispatchConfig, Dispatcher, Ending, HostToolAt, OUTPUT_BYTES_MAX};
use tokio_util::sync::CancellationToken;

use proto::broker::v1::CallRecord;

use super::{fake_broker::FakeBroker, rig::*};

#[tokio::test]
async fn the_input_is_one_line_and_what_is_printed_is_the_result() {
    let dispatcher = tool_command("read -r line && ! read -r more && printf ' {\"saw\":%s}\\n' \"$line\"");
    assert_eq!(output(&send(&dispatcher, host_tool()).await), "{\"saw\":{\"q\":7}}");
}

#[tokio::test]
async fn the_exact_text_of_the_result_is_kept() {
    let text = "{\"big\": 18446744073709551615, \"a\": 1.10, \"é\": \"\\u00e9\"}";
    let dispatcher = tool_command(&format!("cat >/dev/null; cat <<'END'\n{text}\nEND"));
    assert_eq!(output(&send(&dispatcher, host_tool()).await), text);
}

#[tokio::test]
async fn a_child_is_told_of_its_effect_and_of_nothing_else() {
    let print = "printf '{\"names\":\"%s\",\"tool\":\"%s\",\"hash\":\"%s\",\"key\":\"%s\"}' \
                 \"$(env | cut -d= -f1 | tr '\\n' ' ')\" \"$AREEV_TOOL_NAME\" \"$AREEV_TOOL_HASH\" \"$AREEV_IDEMPOTENCY_KEY\"";
    let effect = host_tool();
    let (hash, key) = (effect.tool.definition.to_hex(), effect.idempotency_key.to_hex());
    let told: serde_json::Value = serde_json::from_str(&output(&send(&tool_command(print), effect).await)).unwrap();
    assert_eq!((told["tool"].as_str(), told["hash"].as_str()), (Some("work"), Some(hash.as_str())));
    assert_eq!(told["key"], key);

    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "the service has variables that a child must not get");
    let ours = ["AREEV_TOOL_NAME", "AREEV_TOOL_HASH", "AREEV_IDEMPOTENCY_KEY"];
    let inherited = ["PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "TZ"];
    let of_the_shell = ["PWD", "OLDPWD", "SHLVL", "_"];
    let allowed: BTreeSet<_> = ours.into_iter().chain(inherited).chain(of_the_shell).collect();
    let names: BTreeSet<_> = told["names"].as_str().unwrap().split_whitespace().collect();
    assert_eq!(names.difference(&allowed).collect::<Vec<_>>(), Vec::<&&str>::new());
}

#[tokio::test]
async fn the_broker_is_named_only_to_a_tool_with_a_grant() {
    let print = "printf '[\"%s\",\"%s\"]' \"$AREEV_EGRESS_URL\" \"$AREEV_EGRESS_TOKEN\"";
    for (broker, seen) in [
        (FakeBroker::granting("token-1").await, "[\"http://egress.example:7431\",\"token-1\"]"),
        (FakeBroker::granting_nothing().await, "[\"\",\"\"]"),
    ] {
        let dispatcher = with_broker(print, &broker);
        assert_eq!(output(&send(&dispatcher, host_tool()).await), seen);
    }
}

#[tokio::test]
async fn an_exit_status_fails_the_effect_with_the_end_of_stderr() {
    let dispatcher = tool_command("yes noise | head -c 100000 >&2; echo 'the disk is on fire' >&2; echo '{}'; exit 3");
    let settled = send(&dispatcher, host_tool()).await;
    assert_eq!(failure(&settled).cause, FailureCause::ExecutorError);
    let detail = detail(&settled);
    assert!(detail.contains("exit status 3") && detail.contains("the disk is on fire"), "{detail}");
    assert!(detail.len() <= 4096, "{}", detail.len());
}

#[tokio::test]
async fn a_signal_is_named() {
    let settled = send(&tool_command("kill -9 $$"), host_tool()).await;
    assert!(detail(&settled).contains("killed by signal 9"), "{}", detail(&settled));
}

#[tokio::test]
async fn what_is_not_json_fails_the_effect_and_is_shown() {
    for (command, told) in
        [("echo hello", "hello"), ("true", "empty"), ("printf '\\377'", "UTF-8"), ("echo 1 2", "trailing")]
    {
        let settled = send(&tool_command(command), host_tool()).await;
        assert_eq!(failure(&settled).cause, FailureCause::ExecutorError);
        assert!(detail(&settled).contains(told), "{command}: {}", detail(&settled));
    }
}

#[tokio::test]
async fn a_result_over_the_cap_is_named_with_both_sizes() {
    let twenty_mib = 20 * 1024 * 1024;
    let dispatcher = tool_command(&format!("head -c {twenty_mib} /dev/zero | tr '\\0' '1'"));
    let settled = send(&dispatcher, host_tool()).await;
    let detail = detail(&settled);
    assert!(detail.contains(&twenty_mib.to_string()) && detail.contains(&OUTPUT_BYTES_MAX.to_string()), "{detail}");
}

#[tokio::test]
async fn a_tool_that_never_stops_writing_is_stopped() {
    let settled = send(&tool_command("exec yes 1"), host_tool()).await;
    assert!(detail(&settled).contains("never stopped writing"), "{}", detail(&settled));
}

#[tokio::test]
async fn a_tool_need_not_read_its_input() {
    let mut effect = host_tool();
    effect.input = Payload::new(format!("\"{}\"", "x".repeat(4 * 1024 * 1024)));
    assert_eq!(output(&send(&tool_command("exec echo 1"), effect).await), "1");
}

#[tokio::test]
async fn a_large_result_may_be_written_while_a_large_input_is_not_read_yet() {
    let mut effect = host_tool();
    effect.input = Payload::new(format!("\"{}\"", "x".repeat(1024 * 1024)));
    let command = "printf '\"'; head -c 2000000 /dev/zero | tr '\\0' 'y'; wc -c | tr -d '\\n '; printf '\"'";
    let text = output(&send(&tool_command(command), effect).await);
    assert!(text.ends_with("y1048579\""), "{}", &text[text.len() - 20..]);
}

#[tokio::test]
async fn processes_that_a_tool_leaves_behind_hold_nothing_up_and_are_killed() {
    let dir = tempfile::tempdir().unwrap();
    let pid_file = dir.path().join("pid");
    let dispatcher = tool_command(&format!("sleep 1000 & echo $! > {}; echo '\"done\"'", pid_file.display()));
    assert_eq!(output(&send(&dispatcher, host_tool()).await), "\"done\"");
    gone(&pid_file).await;
}

#[tokio::test]
async fn a_cancel_kills_the_whole_process_group() {
    let dir = tempfile::tempdir().unwrap();
    let pid_file = dir.path().join("pid");
    let dispatcher = tool_command(&leaves_a_grandchild(&pid_file));
    let cancel = CancellationToken::new();
    let canceler = async {
        eventually("the grandchild", || pid_of(&pid_file).is_some()).await;
        cancel.cancel();
    };
    let (settled, ()) = tokio::join!(send_until(&dispatcher, host_tool(), cancel.clone()), canceler);
    assert_eq!(settled.ending, Ending::Canceled);
    gone(&pid_file).await;
}

#[tokio::test]
async fn the_timeout_kills_the_whole_process_group() {
    let dir = tempfile::tempdir().unwrap();
    let pid_file = dir.path().join("pid");
    let dispatcher = tool_command(&leaves_a_grandchild(&pid_file));
    let settled = timed_out(&dispatcher, host_tool, |_| pid_of(&pid_file).is_some()).await;
    assert!(detail(&settled).contains("killed after "), "{}", detail(&settled));
    gone(&pid_file).await;
}

#[tokio::test]
async fn dropping_a_dispatch_kills_the_whole_process_group() {
    let dir = tempfile::tempdir().unwrap();
    let pid_file = dir.path().join("pid");
    let dispatcher = tool_command(&leaves_a_grandchild(&pid_file));
    tokio::select! {
        _ = send(&dispatcher, host_tool()) => panic!("it never ends by itself"),
        () = eventually("the grandchild", || pid_of(&pid_file).is_some()) => {}
    }
    gone(&pid_file).await;
}

#[tokio::test]
async fn an_effect_that_waits_for_a_slot_can_be_canceled() {
    let dir = tempfile::tempdir().unwrap();
    let pid_file = dir.path().join("pid");
    let host_tool_at = Some(HostToolAt::Command(leaves_a_grandchild(&pid_file)));
    let dispatcher = dispatcher(DispatchConfig { host_tool: host_tool_at, children_max: 1, ..config(dir.path()) });
    let (first, second) = (CancellationToken::new(), CancellationToken::new());
    let canceler = async {
        eventually("the first child", || pid_of(&pid_file).is_some()).await;
        second.cancel();
    };
    let holding = send_until(&dispatcher, host_tool(), first.clone());
    let waiting = async {
        eventually("the first child", || pid_of(&pid_file).is_some()).await;
        let settled = send_until(&dispatcher, host_tool(), second.clone()).await;
        first.cancel();
        settled
    };
    let (held, waited, ()) = tokio::join!(holding, waiting, canceler);
    assert_eq!((held.ending, waited.ending), (Ending::Canceled, Ending::Canceled));
}

#[tokio::test]
async fn the_token_is_kept_out_of_a_failures_detail() {
    let broker = FakeBroker::granting("very-secret-token").await;
    let dispatcher = with_broker("echo \"sent $AREEV_EGRESS_TOKEN\" >&2; exit 1", &broker);
    let settled = send(&dispatcher, host_tool()).await;
    assert!(detail(&settled).contains("sent [token]"), "{}", detail(&settled));
    assert!(!format!("{settled:?} {}", detail(&settled)).contains("very-secret-token"));
}

#[tokio::test]
async fn a_call_whose_acknowledgement_was_lost_is_told_again_and_journaled_once() {
    let record = CallRecord {
        sequence: 7,
        run_id: "run-1".into(),
        node: "work".into(),
        attempt: 1,
        host: "api.example.com".into(),
        door: "http".into(),
        ..CallRecord::default()
    };
    let broker = FakeBroker::telling_twice("token-1", record).await;
    let gate = tempfile::tempdir().unwrap();
    let open = gate.path().join("open");
    let dispatcher =
        with_broker(&format!("while [ ! -e '{}' ]; do sleep 0.02; done; echo '{{}}'", open.display()), &broker);
    let journal = Log::default();
    let opener = async {
        broker.log.has("heard 7 0").await;
        std::fs::write(&open, "").unwrap();
    };
    let ((settled, exchanges), ()) = tokio::join!(send_journaled(&dispatcher, host_tool(), &journal), opener);
    assert_eq!(output(&settled), "{}");
    assert_eq!(broker.log.all().iter().filter(|line| *line == "tell").count(), 2);
    assert_eq!(exchanges.len(), 1, "{exchanges:?}");
    assert!(exchanges[0].record.as_ref().unwrap().text().contains("api.example.com"));
}

#[tokio::test]
async fn without_a_host_tool_the_text_says_what_to_configure() {
    let settled = send(&dispatcher(config(Path::new("/nonexistent"))), host_tool()).await;
    assert!(detail(&settled).contains("--tool-cmd") && detail(&settled).contains("--tool-url"), "{}", detail(&settled));
}

#[tokio::test]
async fn a_command_without_a_word_is_refused_at_start() {
    let source = std::sync::Arc::new(Nothing);
    let host_tool = Some(HostToolAt::Command("  ".to_owned()));
    let blank = Dispatcher::new(DispatchConfig { host_tool, ..config(Path::new("/nonexistent")) }, source);
    assert!(blank.err().unwrap().to_string().contains("--tool-cmd"));
}

struct Nothing;

impl runner_svc::dispatch::CodeSource for Nothing {
    fn read(&self, _: &content_digest::Digest) -> Result<Vec<u8>, runner_svc::dispatch::CodeUnreadable> {
        panic!("nothing is read")
    }

    fn size(&self, _: &content_digest::Digest) -> Result<Option<u64>, runner_svc::dispatch::CodeUnreadable> {
        panic!("nothing is read")
    }
}

fn with_broker(command: &str, broker: &FakeBroker) -> Dispatcher {
    let host_tool = Some(HostToolAt::Command(command.to_owned()));
    let broker_urls = vec![broker.url.clone()];
    dispatcher(DispatchConfig { host_tool, broker_urls, ..config(Path::new("/nonexistent")) })
}

/// The grandchild keeps the pipes open; the child waits for it.
fn leaves_a_grandchild(pid_file: &Path) -> String {
    let file = pid_file.display();
    format!("sleep 1000 & echo $! > {file}.new; mv {file}.new {file}; wait")
}

fn pid_of(file: &Path) -> Option<u32> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Waits until the process is dead; one that nobody has reaped yet is.
async fn gone(file: &Path) {
    let pid = pid_of(file).unwrap();
    eventually("the end of the grandchild", || match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'),
        Err(_) => true,
    })
    .await;
}
