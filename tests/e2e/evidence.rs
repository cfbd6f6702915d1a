//! Evidence: a run as a file that holds by itself, and what changing it does.

use std::{fs, path::PathBuf};

use e2e::{
    document::{Definition, Plan},
    evidence::{runner_command, verify},
    guests,
    stack::{Stack, Who},
};
use proto::runner::v1::{Run, RunStatus};
use serde_json::{Value, json};

struct Bench {
    stack: Stack,
    run: Run,
}

/// A module, a person, the module again; approved, and over.
async fn finished() -> Bench {
    let module = guests::echo();
    let stack = Stack::builder().unwrap().pin(&module).sandbox().start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(&module).await.unwrap();
    let first = client.put_definition(&Definition::pure("first", &uri)).await.unwrap();
    let approve = client.put_definition(&Definition::client("approve")).await.unwrap();
    let last = client.put_definition(&Definition::pure("last", &uri)).await.unwrap();
    let plan = Plan::chain([("first", &*first), ("approve", &approve), ("last", &last)]);
    let plan = client.put_plan(&plan).await.unwrap();
    client.run("r1", &plan, &json!({"text": "é".repeat(200_000)})).await.unwrap();
    let ask = client.asks("r1").await.unwrap()[0].clone();
    client.respond(&ask, &json!({"approved": true})).await.expect_err("the starter cannot approve");
    stack.client_of(Who::Approver).respond(&ask, &json!({"approved": true})).await.unwrap();
    let run = client.wait("r1").await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    Bench { stack, run }
}

impl Bench {
    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let file = self.stack.directory().join(name);
        fs::write(&file, bytes).unwrap();
        file
    }
}

#[tokio::test]
async fn an_exported_run_holds_by_itself_and_fits_the_receipt_of_the_service() {
    let bench = finished().await;
    let client = bench.stack.client();
    let receipt = client.get("r1").await.unwrap().receipt.expect("a run that has ended has a receipt");
    assert_eq!(Some(&receipt), bench.run.receipt.as_ref(), "the same from every call");
    assert_eq!((receipt.outcome.as_str(), receipt.head_hash.as_str()), ("completed", bench.run.head_hash.as_str()));
    for (with_blobs, blobs) in [(false, 0), (true, 1)] {
        let file = bench.file("run.jsonl", &client.export("r1", with_blobs).await.unwrap());
        let (code, report) = verify(&file, &["--key", &receipt.public_key]).unwrap();
        assert_eq!((code, &report["clean"]), (0, &json!(true)), "{report}");
        assert_eq!(report["head_hash"], json!(receipt.head_hash));
        assert_eq!((&report["grains"], &report["blobs"]), (&json!(4), &json!(blobs)));
        assert_eq!(report["events"], json!(receipt.events));
        let first = fs::read_to_string(&file).unwrap();
        let first: Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
        assert_eq!((&first["format"], &first["with_blobs"]), (&json!(3), &json!(with_blobs)));
    }
    let file = bench.stack.directory().join("run.jsonl").display().to_string();
    let shown = runner_command(&["verify", &file]).unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("verdict   clean") && shown.contains(&receipt.public_key), "{shown}");
    let (code, report) = verify(file.as_ref(), &["--key", &"0".repeat(64)]).unwrap();
    assert_eq!((code, &report["finding"]["class"]), (1, &json!("receipt")), "{report}");
    let missing = runner_command(&["verify", "/nonexistent"]).unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8(missing.stderr).unwrap().contains("cannot open /nonexistent"));
}

#[tokio::test]
async fn whatever_is_changed_in_an_exported_run_is_found_and_named() {
    let bench = finished().await;
    let text = String::from_utf8(bench.stack.client().export("r1", true).await.unwrap()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let events: Vec<usize> = (0..lines.len()).filter(|place| lines[*place].contains("\"line\":\"event\"")).collect();
    let find = |part: &str| lines.iter().position(|line| line.contains(part)).unwrap();
    let without = |place: usize| {
        let mut left = lines.clone();
        left.remove(place);
        left.join("\n") + "\n"
    };
    let replaced = |place: usize, from: &str, to: &str| {
        let changed = lines[place].replacen(from, to, 1);
        assert_ne!(changed, lines[place], "{from} is not in {}", &lines[place][..200.min(lines[place].len())]);
        let mut all = lines.clone();
        all[place] = &changed;
        all.join("\n") + "\n"
    };
    let (closed, answered) = (find("SuperstepClosed"), find("AskAnswered"));
    let swapped = {
        let mut all = lines.clone();
        all.swap(events[3], events[4]);
        all.join("\n") + "\n"
    };
    let doubled = {
        let mut all = lines.clone();
        all.insert(events[2], lines[events[2]]);
        all.join("\n") + "\n"
    };
    let last = *events.last().unwrap();
    let cases: Vec<(&str, String, &[&str])> = vec![
        ("a text", replaced(find("ééé"), "éé", "èé"), &["text"]),
        ("a piece of a text", without(find("\"piece\":2")), &["text"]),
        ("a time", replaced(events[1], "at_ms\\\":1", "at_ms\\\":2"), &["chain", "state", "decision"]),
        ("a number", replaced(events[2], "sequence\\\":2", "sequence\\\":7"), &["chain"]),
        ("a kind", replaced(closed, "SuperstepClosed", "SuperstepOpened"), &["record", "decision"]),
        ("a state digest", replaced(closed, "state\\\":\\\"", "state\\\":\\\"0"), &["record"]),
        ("who answered", replaced(answered, "user:approver", "user:runner"), &["decision"]),
        ("an order", swapped, &["chain"]),
        ("a doubled event", doubled, &["chain"]),
        ("a dropped event", without(events[4]), &["chain"]),
        ("the last event", without(last), &["end", "receipt"]),
        (
            "the outcome",
            replaced(last, "\\\"status\\\":\\\"completed", "\\\"status\\\":\\\"canceled"),
            &["record", "decision"],
        ),
        ("a grain", replaced(find("\"line\":\"grain\""), "base64\":\"", "base64\":\"AAAA"), &["grain"]),
        ("a blob", replaced(find("\"line\":\"blob\""), "base64\":\"", "base64\":\"AAAA"), &["blob"]),
        ("the run's name", replaced(0, "\"r1\"", "\"r2\""), &["chain"]),
        ("the receipt's outcome", replaced(lines.len() - 1, "completed", "failed"), &["receipt"]),
        ("the receipt's head", replaced(lines.len() - 1, &bench.run.head_hash, &"0".repeat(64)), &["receipt"]),
        ("no receipt", without(lines.len() - 1), &["receipt"]),
        ("half a line", text[..text.len() - 20].to_owned(), &["format"]),
    ];
    for (what, changed, classes) in cases {
        let (code, report) = verify(&bench.file("changed.jsonl", changed.as_bytes()), &[]).unwrap();
        let class = report["finding"]["class"].as_str().unwrap_or("none");
        assert!(code == 1 && classes.contains(&class), "{what}: {report}");
        assert!(report["finding"]["line"].as_u64().unwrap() > 0, "{what}: {report}");
    }
}

/// The first line of a file with one member changed, the rest as it is.
fn with_header(text: &str, change: impl FnOnce(&mut serde_json::Map<String, Value>)) -> String {
    let (first, rest) = text.split_once('\n').unwrap();
    let mut header: serde_json::Map<String, Value> = serde_json::from_str(first).unwrap();
    change(&mut header);
    format!("{}\n{rest}", Value::Object(header))
}

#[tokio::test]
async fn every_member_of_the_first_line_is_held_against_the_run_but_the_time_of_the_export() {
    let bench = finished().await;
    for with_blobs in [false, true] {
        let text = String::from_utf8(bench.stack.client().export("r1", with_blobs).await.unwrap()).unwrap();
        let header: serde_json::Map<String, Value> = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        for member in header.keys() {
            let (changed, class) = match member.as_str() {
                "line" => (json!("event"), Some("format")),
                "format" => (json!(2), Some("format")),
                "run_id" => (json!("r2"), Some("chain")),
                "namespace" => (json!("opt"), Some("format")),
                "with_blobs" => (json!(!with_blobs), Some("blob")),
                // When the file was written is no evidence: nothing else in it could say.
                "exported_at_ms" => (json!(1), None),
                other => panic!("{other} is a member that nothing here changes"),
            };
            let case = format!("{member}, with blobs {with_blobs}");
            let edited = with_header(&text, |header| drop(header.insert(member.clone(), changed)));
            let (code, report) = verify(&bench.file("changed.jsonl", edited.as_bytes()), &[]).unwrap();
            let found = (code, report["finding"]["class"].as_str());
            assert_eq!(found, (i32::from(class.is_some()), class), "{case}: {report}");
            let edited = with_header(&text, |header| drop(header.remove(member)));
            let (code, report) = verify(&bench.file("changed.jsonl", edited.as_bytes()), &[]).unwrap();
            assert_eq!((code, &report["finding"]["class"]), (1, &json!("format")), "{case} is left out: {report}");
        }
        let edited = with_header(&text, |header| drop(header.insert("parent".to_owned(), json!("r0"))));
        let (code, report) = verify(&bench.file("changed.jsonl", edited.as_bytes()), &[]).unwrap();
        assert_eq!((code, &report["finding"]["class"]), (1, &json!("format")), "a parent: {report}");
    }
}

#[tokio::test]
async fn whatever_is_taken_out_of_an_exported_run_is_missed_and_named() {
    let bench = finished().await;
    let text = String::from_utf8(bench.stack.client().export("r1", true).await.unwrap()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let kind_of = |line: &str| serde_json::from_str::<Value>(line).unwrap()["line"].as_str().unwrap().to_owned();
    let kinds: Vec<String> = lines.iter().map(|line| kind_of(line)).collect();
    let check = |what: &str, kind: &str, left: Vec<&str>| {
        let (code, report) = verify(&bench.file("less.jsonl", (left.join("\n") + "\n").as_bytes()), &[]).unwrap();
        let class = report["finding"]["class"].as_str().unwrap_or("none");
        let expected: &[&str] = match kind {
            "export" => &["format"],
            "text" => &["text", "record"],
            "event" => &["chain", "state", "receipt", "end"],
            "grain" => &["grain"],
            "blob" => &["blob"],
            "receipt" => &["receipt"],
            other => panic!("a line of kind {other} that nothing here takes out"),
        };
        assert!(code == 1 && expected.contains(&class), "{what}: {report}");
    };
    for kind in ["export", "text", "event", "grain", "blob", "receipt"] {
        let left: Vec<&str> = lines.iter().zip(&kinds).filter(|(_, of)| *of != kind).map(|(line, _)| *line).collect();
        assert!(left.len() < lines.len(), "the file has no line of kind {kind}");
        check(&format!("all lines of kind {kind}"), kind, left);
    }
    for (place, kind) in kinds.iter().enumerate() {
        let left = [&lines[..place], &lines[place + 1..]].concat();
        check(&format!("line {place}, a {kind}"), kind, left);
    }
}

#[tokio::test]
async fn a_cut_tail_that_ends_at_a_whole_step_is_caught_by_the_receipt_alone() {
    let bench = finished().await;
    let text = String::from_utf8(bench.stack.client().export("r1", false).await.unwrap()).unwrap();
    // Up to the question, where the run waited: the journal holds by itself there.
    let end = text.find("AskAnswered").unwrap();
    let end = text[..end].rfind("\"line\":\"event\"").unwrap();
    let mut cut: String = text[..end].rsplit_once('\n').unwrap().0.to_owned() + "\n";
    // Without the texts that the answer names.
    while cut.lines().last().is_some_and(|line| line.contains("\"line\":\"text\"")) {
        cut = cut.trim_end().rsplit_once('\n').unwrap().0.to_owned() + "\n";
    }
    while cut.lines().last().is_some_and(|line| line.contains("AskRejected")) {
        cut = cut.trim_end().rsplit_once('\n').unwrap().0.to_owned() + "\n";
    }
    let tail: String =
        text.lines().skip_while(|line| !line.contains("\"line\":\"grain\"")).map(|line| format!("{line}\n")).collect();
    let (code, report) = verify(&bench.file("cut.jsonl", (cut + &tail).as_bytes()), &[]).unwrap();
    assert_eq!((code, &report["finding"]["class"]), (1, &json!("receipt")), "{report}");
    assert!(report["finding"]["problem"].as_str().unwrap().contains("the receipt says events"), "{report}");
}

#[tokio::test]
async fn a_run_that_has_not_ended_is_exported_as_it_stands() {
    let stack = Stack::builder().unwrap().start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::client("work")).await.unwrap();
    client.run("r1", &plan, &json!({})).await.unwrap();
    assert_eq!(client.get("r1").await.unwrap().receipt, None);
    let file = stack.directory().join("run.jsonl");
    fs::write(&file, client.export("r1", true).await.unwrap()).unwrap();
    let (code, report) = verify(&file, &[]).unwrap();
    assert_eq!((code, &report["outcome"]), (0, &json!("unfinished")), "{report}");
}

#[tokio::test]
async fn the_oversight_report_says_who_could_intervene_who_did_and_how_fast_it_obeyed() {
    let bench = finished().await;
    let client = bench.stack.client();
    let report = client.oversight("r1").await.unwrap();
    assert_eq!(report["started_by"], json!("user:runner"));
    assert_eq!(report["could"], json!({"respond": ["user:approver"], "cancel": ["user:runner"]}), "{report}");
    let ask = &report["asks"][0];
    assert_eq!((&ask["status"], &ask["by"]), (&json!("answered"), &json!("user:approver")), "{report}");
    assert_eq!(ask["rejected"][0]["by"], json!("user:runner"));
    assert!(ask["open_ms"].is_u64() && report.get("cancel").is_none());

    let plan = client.put_work(&Definition::client("work")).await.unwrap();
    client.run("r2", &plan, &json!({})).await.unwrap();
    client.cancel("r2", "enough").await.unwrap();
    let report = client.oversight("r2").await.unwrap();
    let cancel = &report["cancel"];
    assert_eq!((&cancel["by"], &cancel["reason"]), (&json!("user:runner"), &json!("enough")), "{report}");
    assert!(cancel["drained_ms"].as_u64().unwrap() < 60_000, "{report}");
    assert_eq!((&report["outcome"], &report["asks"][0]["status"]), (&json!("canceled"), &json!("withdrawn")));
    let refused: Result<Value, _> = bench.stack.stranger().oversight("r2").await;
    assert_eq!(refused.unwrap_err().code(), tonic::Code::Unauthenticated);
}
