//! Evidence of a run with child runs: verified, exported and reported with all that is below it.

use std::{fs, path::Path};

use e2e::{
    document::{Definition, Plan},
    evidence::{runner_command, verify},
    search,
    shell_tool::ShellTool,
    stack::{Stack, Who},
};
use proto::runner::v1::{Run, RunStatus};
use serde_json::{Value, json};

/// A result that lies in a file of its own.
const SENDING: &str = "cat > /dev/null; printf '{\"sent\":\"'; head -c 100000 /dev/zero | tr '\\0' x; printf '\"}'";

struct Bench {
    stack: Stack,
    run: Run,
    /// The tool, which has to be there as long as the stack.
    _tool: ShellTool,
}

/// A plan in a plan in a plan: the innermost asks a person, and a tool after it.
async fn finished() -> Bench {
    let builder = Stack::builder().unwrap();
    let tool = ShellTool::write(builder.directory(), "tool.sh", SENDING).unwrap();
    let command = tool.command();
    let stack = builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap();
    let client = stack.client();
    let approve = client.put_definition(&Definition::client("approve")).await.unwrap();
    let send = client.put_definition(&Definition::tool("send")).await.unwrap();
    let inner = client.put_plan(&Plan::chain([("approve", &*approve), ("send", &send)])).await.unwrap();
    let middle = client.put_plan(&Plan::new().node("inner", &inner)).await.unwrap();
    let outer = client.put_plan(&Plan::new().node("middle", &middle)).await.unwrap();
    client.run("r1", &outer, &json!({"n": 1})).await.unwrap();
    let ask = client.asks("r1").await.unwrap()[0].clone();
    client.respond(&ask, &json!({"approved": true})).await.expect_err("the starter cannot approve");
    stack.client_of(Who::Approver).respond(&ask, &json!({"approved": true})).await.unwrap();
    let run = client.wait("r1").await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    Bench { stack, run, _tool: tool }
}

#[tokio::test]
async fn a_verification_goes_down_to_every_child_run() {
    let bench = finished().await;
    let verdict = bench.stack.client().verify("r1").await.unwrap();
    assert!(verdict.clean && verdict.bad_run_id.is_empty(), "{}", verdict.divergence);
    let ids: Vec<&str> = verdict.children.iter().map(|child| child.run_id.as_str()).collect();
    assert_eq!(ids.len(), 2, "{ids:?}");
    assert!(ids[0].starts_with("r1~") && ids[1].starts_with(&format!("{}~", ids[0])), "{ids:?}");
    assert!(verdict.children.iter().all(|child| child.clean && child.events > 4 && child.decisions > 0));
    assert_eq!(verdict.children_left_out, 0);
}

#[tokio::test]
async fn a_child_run_that_was_changed_is_named_by_the_verification_of_its_parent() {
    let bench = finished().await;
    let client = bench.stack.client();
    let before = client.verify("r1").await.unwrap();
    let inner = before.children[1].run_id.clone();
    let events = client.events(&inner).await.unwrap();
    let sent = events.iter().rev().find(|event| event.kind == "ResultRecorded").unwrap().sequence;
    let is_result = |path: &Path| fs::read_to_string(path).is_ok_and(|text| text.starts_with("{\"sent\":\"x"));
    let files = search::files(&bench.stack.data().join("blobs")).unwrap();
    let result = files.iter().find(|path| is_result(path)).expect("the result of the innermost run is a file");
    fs::remove_file(result).unwrap();
    let verdict = bench.stack.client().verify("r1").await.unwrap();
    assert!(!verdict.clean);
    assert_eq!((verdict.bad_run_id, verdict.first_bad_sequence), (inner.clone(), Some(sent)));
    assert!(verdict.divergence.starts_with("RUN-E009"), "{}", verdict.divergence);
    let clean: Vec<bool> = verdict.children.iter().map(|child| child.clean).collect();
    assert_eq!(clean, [true, false], "its parents are as they were");
}

#[tokio::test]
async fn an_export_holds_the_child_runs_and_none_of_them_can_be_changed_or_taken_out() {
    let bench = finished().await;
    let client = bench.stack.client();
    let text = String::from_utf8(client.export("r1", false).await.unwrap()).unwrap();
    let file = bench.stack.directory().join("run.jsonl");
    let check = |text: &str| {
        fs::write(&file, text).unwrap();
        verify(&file, &["--key", &bench.run.receipt.as_ref().unwrap().public_key]).unwrap()
    };
    let (code, report) = check(&text);
    assert_eq!((code, &report["clean"]), (0, &json!(true)), "{report}");
    let children = report["children"].as_array().unwrap();
    assert_eq!(children.iter().map(|child| &child["outcome"]).collect::<Vec<_>>(), ["completed", "completed"]);
    let shown = String::from_utf8(runner_command(&["verify", &file.display().to_string()]).unwrap().stdout).unwrap();
    assert!(shown.contains("children  2") && shown.contains(children[1]["run_id"].as_str().unwrap()), "{shown}");

    let lines: Vec<&str> = text.lines().collect();
    let begins: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].starts_with("{\"line\":\"export\"")).collect();
    assert_eq!(begins.len(), 3);
    let joined = |lines: &[&str]| lines.join("\n") + "\n";
    let refused = |what: &str, text: &str, class: &str| {
        let (code, report): (i32, Value) = check(text);
        assert_eq!((code, &report["finding"]["class"]), (1, &json!(class)), "{what}: {report}");
        report["finding"]["run_id"].as_str().unwrap().to_owned()
    };
    let inner = children[1]["run_id"].as_str().unwrap();
    assert_eq!(refused("the last child is missing", &joined(&lines[..begins[2]]), "child"), inner);
    let mut doubled = lines.clone();
    doubled.extend(&lines[begins[2]..]);
    assert_eq!(refused("a child twice", &joined(&doubled), "child"), inner);
    let mut renamed = lines.clone();
    let stranger = lines[begins[1]].replace("\"parent\":\"r1\"", "\"parent\":\"r0\"");
    assert_ne!(stranger, lines[begins[1]]);
    renamed[begins[1]] = &stranger;
    assert_eq!(refused("another parent", &joined(&renamed), "child"), children[0]["run_id"].as_str().unwrap());
    let moved = lines[begins[1]].replace("\"ops\"", "\"opt\"");
    renamed[begins[1]] = &moved;
    refused("another namespace of a child", &joined(&renamed), "format");
    let answered = lines.iter().position(|line| line.contains("AskAnswered")).unwrap();
    assert!(answered > begins[2], "the person was asked by the innermost run");
    let changed = lines[answered].replace("user:approver", "user:runner");
    let mut all = lines.clone();
    all[answered] = &changed;
    assert_eq!(refused("who answered in a child", &joined(&all), "decision"), inner);
}

#[tokio::test]
async fn an_oversight_report_counts_what_people_did_in_child_runs() {
    let bench = finished().await;
    let report = bench.stack.client().oversight("r1").await.unwrap();
    assert_eq!(report["asks"], json!([]), "the run itself asked nobody");
    let children = report["children"].as_array().unwrap();
    assert_eq!(children.len(), 2);
    assert_eq!(children[1]["asks"][0]["by"], json!("user:approver"));
    let totals = &report["totals"];
    let counted = ["runs", "asks", "answered", "rejected", "cancels"].map(|name| totals[name].as_u64().unwrap());
    assert_eq!(counted, [3, 1, 1, 1, 0], "{totals}");
}
