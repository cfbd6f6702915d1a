//! A journal that somebody changed behind the runner's back, checksums mended: the verification names the first bad event and
//! what is wrong with it, and what ran beside it is clean.

use std::{fs, io::Write as _, path::Path};

use content_digest::Digest;
use e2e::{
    document::{Definition, Plan},
    evidence::{runner_command, verify},
    shell_tool::ShellTool,
    stack::{Stack, Who},
    stored::{Stored, StoredRun},
};
use proto::runner::v1::{Receipt, RunStatus};
use serde_json::{Value, json};

/// The input of every run, as it is merged, and what it is changed into.
const INPUT: (&str, &str) = (r#"{"amount":7}"#, r#"{"amount":9}"#);
/// The result of the first node, and what it is changed into.
const RESULT: (&str, &str) = (r#"{"did_first": true}"#, r#"{"did_first": null}"#);

/// Something that is done to a stored run.
struct Case {
    what: &'static str,
    change: fn(&StoredRun<'_>) -> anyhow::Result<()>,
    /// Where the first bad event is: in a run of so many events, whose first result has this number.
    at: fn(u64, u64) -> u64,
    class: &'static str,
}

const fn case(
    what: &'static str,
    class: &'static str,
    at: fn(u64, u64) -> u64,
    change: fn(&StoredRun<'_>) -> anyhow::Result<()>,
) -> Case {
    Case { what, change, at, class }
}

fn first_result(run: &StoredRun<'_>) -> anyhow::Result<u64> {
    run.find("\"type\":\"ResultRecorded\"")
}

/// Moves everything from a record on by one place, back or forth.
fn shifted(run: &StoredRun<'_>, from: u64, twice: bool) -> anyhow::Result<()> {
    let records = (0..run.len()?).map(|sequence| run.record(sequence)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut after = records.clone();
    let from = usize::try_from(from)?;
    if twice {
        after.insert(from, records[from].clone())
    } else {
        drop(after.remove(from))
    }
    for (sequence, _) in (0..).zip(&records) {
        run.put_record(sequence, after.get(usize::try_from(sequence)?).map(Vec::as_slice))?;
    }
    Ok(())
}

const CASES: [Case; 17] = [
    case("the header's principal", "index", |_, _| 0, |run| run.change_header("user:runner", "user:nobody")),
    case(
        "the header's time of the start",
        "index",
        |_, _| 0,
        |run| run.change_header("\"started_at_ms\":1", "\"started_at_ms\":2"),
    ),
    case(
        "the status beside the events",
        "index",
        |events, _| events - 1,
        |run| run.change_status("\"events\":1", "\"events\":2"),
    ),
    case(
        "an event's number",
        "chain",
        |_, result| result,
        |run| {
            let at = first_result(run)?;
            run.change_record(at, &format!("\"sequence\":{at}"), &format!("\"sequence\":{}", at + 1))
        },
    ),
    case("an event's time", "chain", |_, _| 2, |run| run.change_record(1, "\"at_ms\":1", "\"at_ms\":2")),
    case(
        "an event's kind",
        "decision",
        |_, result| result + 1,
        |run| run.change_record(first_result(run)? + 1, "SuperstepClosed", "SuperstepOpened"),
    ),
    case(
        "an event's link to the one before",
        "chain",
        |_, result| result,
        |run| {
            let (at, hash) = (first_result(run)?, Digest::ZERO.to_hex());
            let record = String::from_utf8_lossy(&run.record(at)?).into_owned();
            let start = record.find("\"previous\":\"").unwrap() + 12;
            run.change_record(at, &record[start..start + 64], &hash)
        },
    ),
    case(
        "an input's digest in an intent",
        "decision",
        |_, _| 2,
        |run| run.change_record(2, &Digest::of(INPUT.0).to_hex(), &Digest::of(INPUT.1).to_hex()),
    ),
    case(
        "the manifest",
        "record",
        |_, _| 0,
        |run| run.change_record(0, "\"max_supersteps\":1024", "\"max_supersteps\":9024"),
    ),
    case("the input", "record", |_, _| 0, |run| run.change_record(0, INPUT.0, INPUT.1)),
    case("the input and its digest", "state", |_, _| 0, |run| run.change_text(0, INPUT.0, INPUT.1)),
    case("a result", "record", |_, result| result, |run| run.change_record(first_result(run)?, RESULT.0, RESULT.1)),
    case(
        "a result and its digest",
        "chain",
        |_, result| result + 1,
        |run| run.change_text(first_result(run)?, RESULT.0, RESULT.1),
    ),
    case(
        "the order of two events",
        "chain",
        |_, result| result,
        |run| {
            let at = first_result(run)?;
            let (one, other) = (run.record(at)?, run.record(at + 1)?);
            run.put_record(at, Some(&other))?;
            run.put_record(at + 1, Some(&one))
        },
    ),
    case("an event dropped", "chain", |_, result| result, |run| shifted(run, first_result(run)?, false)),
    case("an event doubled", "chain", |_, result| result + 1, |run| shifted(run, first_result(run)?, true)),
    case("the last event cut off", "record", |events, _| events - 1, |run| run.put_record(run.len()? - 1, None)),
];

/// Runs of the same plan, one a case and one that nobody touches.
async fn runs(stack: &Stack) {
    let client = stack.client();
    let first = client.put_definition(&Definition::tool("first")).await.unwrap();
    let approve = client.put_definition(&Definition::client("approve")).await.unwrap();
    let last = client.put_definition(&Definition::tool("last")).await.unwrap();
    let plan = Plan::chain([("first", &*first), ("approve", &approve), ("last", &last)]);
    let plan = client.put_plan(&plan).await.unwrap();
    let input: Value = serde_json::from_str(INPUT.0).unwrap();
    for number in 0..=CASES.len() {
        let run_id = name(number);
        client.run(&run_id, &plan, &input).await.unwrap();
        let ask = client.asks(&run_id).await.unwrap().remove(0);
        stack.client_of(Who::Approver).respond(&ask, &json!({"ok": true})).await.unwrap();
        let run = client.wait(&run_id).await.unwrap();
        assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    }
}

fn name(number: usize) -> String {
    format!("run-{number}")
}

async fn stack() -> Stack {
    let builder = Stack::builder().unwrap();
    let tool = ShellTool::doing(builder.directory()).unwrap();
    let command = tool.command();
    builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap()
}

#[tokio::test]
async fn whatever_is_changed_in_the_store_is_found_at_the_first_bad_event_by_its_class() {
    let mut stack = stack().await;
    runs(&stack).await;
    let client = stack.client();
    let events = client.events("run-0").await.unwrap();
    let result = events.iter().find(|event| event.kind == "ResultRecorded").unwrap().sequence;
    let untouched = name(CASES.len());
    stack.runner.process().kill().unwrap();
    let store = Stored::open(&stack.data()).unwrap();
    for (number, case) in CASES.iter().enumerate() {
        let changed = (case.change)(&store.run(&name(number)).unwrap());
        changed.unwrap_or_else(|cause| panic!("{}: {cause:#}", case.what));
    }
    store.close().unwrap();
    stack.runner.restart().await.unwrap();

    let client = stack.client();
    let mut table = String::new();
    for (number, case) in CASES.iter().enumerate() {
        let verdict = client.verify(&name(number)).await.unwrap();
        let found = (verdict.clean, verdict.first_bad_sequence, verdict.divergence_class.as_str());
        let expected = (false, Some((case.at)(events.len() as u64, result)), case.class);
        assert_eq!(found, expected, "{}: {}", case.what, verdict.divergence);
        let starts = format!("RUN-E009: event {}: ", expected.1.unwrap());
        assert!(verdict.divergence.starts_with(&starts), "{}: {}", case.what, verdict.divergence);
        table += &format!("  {:<36} event {:>2}, {}\n", case.what, expected.1.unwrap(), case.class);
    }
    assert!(client.verify(&untouched).await.unwrap().clean);
    // Past the capture of a passing test's output.
    std::io::stdout().write_all(format!("changed in the store, and found:\n{table}").as_bytes()).unwrap();
}

#[tokio::test]
async fn a_text_in_a_file_that_is_changed_is_found_at_the_event_that_names_it() {
    let stack = stack().await;
    let client = stack.client();
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    let input = json!({"text": "x".repeat(200_000)});
    client.run("r1", &plan, &input).await.unwrap();
    assert!(client.verify("r1").await.unwrap().clean);
    let digest = Digest::of(input.to_string()).to_hex();
    let file = stack.data().join("blobs").join(&digest[..2]).join(&digest[2..]);
    let mut bytes = fs::read(&file).unwrap();
    bytes[100_000] = b'y';
    let mut permissions = fs::metadata(&file).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o600);
    fs::set_permissions(&file, permissions).unwrap();
    fs::write(&file, bytes).unwrap();
    let verdict = client.verify("r1").await.unwrap();
    let found = (verdict.clean, verdict.first_bad_sequence, verdict.divergence_class.as_str());
    assert_eq!(found, (false, Some(0), "record"), "{}", verdict.divergence);
    assert!(verdict.divergence.contains(&digest), "{}", verdict.divergence);
}

#[tokio::test]
async fn a_tail_that_was_cut_off_with_all_that_the_store_says_of_it_is_caught_by_the_receipt() {
    let mut stack = stack().await;
    let client = stack.client();
    let plan = client.put_work(&Definition::tool("work")).await.unwrap();
    let whole = client.run("r1", &plan, &json!({})).await.unwrap();
    let receipt: Receipt = whole.receipt.expect("a run that has ended has a receipt");
    stack.runner.process().kill().unwrap();
    let store = Stored::open(&stack.data()).unwrap();
    let run = store.run("r1").unwrap();
    let events = run.len().unwrap();
    let at = run.find("\"type\":\"ResultRecorded\"").unwrap();
    for sequence in at..events {
        run.put_record(sequence, None).unwrap();
    }
    run.set_end(at).unwrap();
    store.close().unwrap();
    stack.runner.restart().await.unwrap();
    let client = stack.client();
    let verdict = client.verify("r1").await.unwrap();
    assert_eq!((verdict.clean, verdict.divergence_class.as_str()), (false, "index"), "{}", verdict.divergence);
    let now = client.get("r1").await.unwrap();
    assert_ne!((now.head_hash, verdict.events), (receipt.head_hash, receipt.events), "the receipt says what there was");
}

/// Copies a folder, sockets left out.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (entry, target) = entry.map(|entry| (entry.path(), to.join(entry.file_name()))).unwrap();
        let kind = fs::symlink_metadata(&entry).unwrap().file_type();
        if kind.is_dir() {
            copy(&entry, &target);
        } else if kind.is_file() {
            fs::copy(&entry, &target).unwrap();
        }
    }
}

#[tokio::test]
async fn a_store_that_was_put_back_to_an_earlier_time_holds_by_itself_and_is_caught_by_a_receipt_that_was_kept() {
    let mut stack = stack().await;
    let client = stack.client();
    let approve = client.put_definition(&Definition::client("approve")).await.unwrap();
    let last = client.put_definition(&Definition::tool("last")).await.unwrap();
    let plan = client.put_plan(&Plan::chain([("approve", &*approve), ("last", &last)])).await.unwrap();
    client.run("r1", &plan, &json!({})).await.unwrap();
    stack.runner.process().kill().unwrap();
    let earlier = stack.directory().join("earlier");
    copy(&stack.data(), &earlier);
    stack.runner.restart().await.unwrap();

    // It ends, and somebody keeps the receipt.
    let client = stack.client();
    let approver = stack.client_of(Who::Approver);
    approver.respond(&client.asks("r1").await.unwrap()[0], &json!({"ok": true})).await.unwrap();
    let receipt = client.wait("r1").await.unwrap().receipt.unwrap();
    let kept = json!({
        "outcome": receipt.outcome, "events": receipt.events.to_string(), "headHash": receipt.head_hash,
        "manifestDigest": receipt.manifest_digest, "publicKey": receipt.public_key, "signature": receipt.signature,
    });
    let (kept_at, file) = (stack.directory().join("receipt.json"), stack.directory().join("run.jsonl"));
    fs::write(&kept_at, kept.to_string()).unwrap();
    let kept_at = kept_at.display().to_string();
    let with_receipt = ["--receipt", kept_at.as_str(), "--key", receipt.public_key.as_str()];
    let check = async |client: &e2e::client::Client, what: &str, kept_fits: bool| {
        fs::write(&file, client.export("r1", false).await.unwrap()).unwrap();
        let (code, report) = verify(&file, &["--key", &receipt.public_key]).unwrap();
        assert_eq!((code, &report["clean"]), (0, &json!(true)), "{what}, by itself: {report}");
        let (code, report) = verify(&file, &with_receipt).unwrap();
        let class = if kept_fits { Value::Null } else { json!("receipt") };
        assert_eq!((code, &report["finding"]["class"]), (i32::from(!kept_fits), &class), "{what}: {report}");
        report["finding"]["problem"].as_str().unwrap_or_default().to_owned()
    };
    check(&client, "as it was", true).await;

    // The whole store is put back: what it says now it signs, too.
    stack.runner.process().kill().unwrap();
    fs::remove_dir_all(stack.data()).unwrap();
    fs::rename(&earlier, stack.data()).unwrap();
    stack.runner.restart().await.unwrap();
    let client = stack.client();
    let problem = check(&client, "put back", false).await;
    assert!(problem.contains("its end was cut off") && problem.contains(&receipt.head_hash), "{problem}");
    stack.client_of(Who::Approver).reject(&client.asks("r1").await.unwrap()[0], &json!("no")).await.unwrap();
    client.wait("r1").await.unwrap();
    let problem = check(&client, "put back, and ended otherwise", false).await;
    assert!(problem.contains("the receipt that was kept says") && problem.contains("failed"), "{problem}");

    // A receipt of another run, or a text that is none.
    client.run("r2", &plan, &json!({})).await.unwrap();
    fs::write(&file, client.export("r2", false).await.unwrap()).unwrap();
    let (code, report) = verify(&file, &with_receipt).unwrap();
    assert!(code == 1 && report["finding"]["problem"].as_str().unwrap().contains("is none of run"), "{report}");
    let output = runner_command(&["verify", &file.display().to_string(), "--receipt", "/dev/null"]).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(2) && said.contains("no receipt as GetRun answers it"), "{said}");
}
