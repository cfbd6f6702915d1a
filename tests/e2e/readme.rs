//! The README says what is so: its lines are run, its tables are compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

use e2e::{
    binaries::{self, workspace},
    document::{Definition, Plan},
    guests,
    host_tool::HostTool,
    stack::Stack,
};
use proto::{
    broker::v1::DescribeRequest,
    runner::v1::RunStatus,
    tool::v1::{ExecuteToolRequest, ExecuteToolResponse, execute_tool_response::Outcome},
};
use serde_json::{Map, Value};

const PROGRAMS: [&str; 3] = ["runner-svc", "sandbox-svc", "broker-svc"];
const WALK_BEGINS: &str = "<!-- walk-through -->";
const WALK_ENDS: &str = "<!-- end of the walk-through -->";

fn readme() -> String {
    fs::read_to_string(workspace().join("README.md")).unwrap()
}

/// Long flags that a program's help lists.
fn flags_of(program: &str) -> BTreeSet<String> {
    let output = Command::new(binaries::directory().unwrap().join(program)).arg("--help").output().unwrap();
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    let listed = |line: &str| {
        let line = line.trim_start();
        let from = if line.starts_with("--") {
            0
        } else {
            line.starts_with('-').then(|| line.find(", --").map(|at| at + 2))??
        };
        line[from..].split([' ', '=', '[']).next().map(str::to_owned)
    };
    help.lines().filter_map(listed).filter(|flag| flag != "--help" && flag != "--version").collect()
}

/// Flags of the first column of the tables below a heading.
fn flags_told(readme: &str, heading: &str) -> BTreeSet<String> {
    let part = readme.split(&format!("### {heading}\n")).nth(1).unwrap_or_else(|| panic!("no heading {heading}"));
    let part = part.split("\n### ").next().unwrap_or_default();
    let flags = part.lines().filter_map(|line| line.strip_prefix("| `--")?.split(['`', ' ']).next());
    flags.map(|flag| format!("--{flag}")).collect()
}

#[test]
fn the_tables_of_flags_are_those_of_the_programs() {
    let readme = readme();
    let shared = flags_told(&readme, "Every service");
    for program in PROGRAMS {
        let told: BTreeSet<_> = flags_told(&readme, program).union(&shared).cloned().collect();
        assert_eq!(told, flags_of(program), "left: the README, right: {program} --help");
    }
}

#[tokio::test]
async fn the_settings_that_it_shows_are_taken() {
    let readme = readme();
    let blocks: Vec<_> = readme.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let with = |word: &str| blocks.iter().find(|block| block.contains(word)).unwrap().to_string();
    // Two people, and a hash for each.
    let mut tokens = with("token_sha256");
    for digit in ["a", "b"] {
        tokens = tokens.replacen("token_sha256 = \"…\"", &format!("token_sha256 = \"{}\"", digit.repeat(64)), 1);
    }
    let builder = Stack::builder().unwrap().without_tokens();
    let file = builder.directory().join("told.toml");
    fs::write(&file, tokens).unwrap();
    let builder = builder.broker(&with("[policy]"), &[("BANK_TOKEN", "areev-canary-Zq7-of-the-bank")]).unwrap();
    let stack = builder.runner(|flags| flags.tokens_file(&file)).start().await.unwrap();
    let told = stack.broker_client().describe(DescribeRequest {}).await.unwrap().into_inner();
    assert_eq!((told.credentials[0].name.as_str(), told.grants[0].tool.as_str()), ("bank", "pay"));
}

/// One block of commands and what the README shows of their output.
struct Step {
    commands: String,
    shown: Vec<String>,
}

fn walk_through(readme: &str) -> Vec<Step> {
    let part = readme.split(WALK_BEGINS).nth(1).and_then(|rest| rest.split(WALK_ENDS).next()).unwrap();
    let mut steps: Vec<Step> = Vec::new();
    for block in part.split("```").skip(1).step_by(2) {
        let (kind, text) = block.split_once('\n').unwrap();
        match kind {
            "sh" => steps.push(Step { commands: text.to_owned(), shown: Vec::new() }),
            _ => steps.last_mut().unwrap().shown = text.lines().map(|line| line.trim().to_owned()).collect(),
        }
    }
    steps
}

fn on_path(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success() || !output.stderr.is_empty())
}

// The lines are walked while the harness only waits, but its connections go on.
#[tokio::test(flavor = "multi_thread")]
async fn the_walk_through_works_line_by_line() {
    let steps = walk_through(&readme());
    assert!(steps.len() > 8, "only {} steps", steps.len());
    for program in ["grpcurl", "buf"] {
        if !on_path(program) {
            println!("not checked: there is no {program} here");
            return;
        }
    }
    let builder = Stack::builder().unwrap().without_tokens().sandbox();
    let stack = builder.runner(|flags| flags.tool_cmd("sed 's/name/greeted/'")).start().await.unwrap();
    let address = stack.runner.address().to_owned();
    let directory = stack.directory().to_owned();
    let walked = tokio::task::spawn_blocking(move || {
        for step in steps {
            let script = format!("set -e\n{}", step.commands.replace("127.0.0.1:7410", &address));
            // An empty folder as home: buf writes a cache.
            let output = Command::new("sh").args(["-c", &script]).env("HOME", &directory).output().unwrap();
            let said =
                [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
            let fails = step.shown.first().is_some_and(|line| line.starts_with("ERROR"));
            assert_eq!(output.status.success(), !fails, "{}\n{said}", step.commands);
            let lines: Vec<_> = said.lines().map(str::trim).collect();
            for shown in step.shown {
                assert!(lines.contains(&&*shown), "{shown:?} is not in the output of\n{}\n{said}", step.commands);
            }
        }
    });
    walked.await.unwrap();
}

#[test]
fn the_call_without_a_service_works_as_it_stands() {
    let readme = readme();
    let line = readme.lines().find(|line| line.contains("sandbox-svc exec --module ")).unwrap();
    let program = binaries::directory().unwrap().join("sandbox-svc");
    let line = line.replace("target/release/sandbox-svc", &program.display().to_string());
    let output = Command::new("sh").args(["-c", &line]).current_dir(binaries::workspace()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.trim(), r#"{"total_cents":1250,"lines":1}"#, "{}", String::from_utf8_lossy(&output.stderr));
}

/// Rows of the table whose first column has a heading: the word of the first column and the text of the second.
fn rows(readme: &str, heading: &str) -> BTreeMap<String, String> {
    let table = readme.split(&format!("| `{heading}` | members |\n|---|---|\n")).nth(1).expect("the table");
    let rows = table.lines().map_while(|row| row.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | "));
    rows.map(|(word, text)| (word.to_owned(), text.to_owned())).collect()
}

#[tokio::test]
async fn the_table_of_an_exports_lines_names_every_member_of_a_real_one() {
    let module = guests::echo();
    let stack = Stack::builder().unwrap().pin(&module).sandbox().start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(&module).await.unwrap();
    let inner = client.put_work(&Definition::pure("work", &uri)).await.unwrap();
    let outer = client.put_plan(&Plan::new().node("sub", &inner)).await.unwrap();
    let run = client.run("r1", &outer, &serde_json::json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    let file = String::from_utf8(client.export("r1", true).await.unwrap()).unwrap();
    let lines: Vec<Map<String, Value>> = file.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kind = |line: &Map<String, Value>| line["line"].as_str().unwrap().to_owned();
    let rows = rows(&readme(), "line");
    assert_eq!(rows.keys().cloned().collect::<BTreeSet<_>>(), lines.iter().map(kind).collect());
    for line in &lines {
        let row = match &rows[&kind(line)] {
            row if row.contains("the same members") => format!("{row} {}", rows["grain"]),
            row => row.clone(),
        };
        let of_receipt = line.get("receipt").and_then(Value::as_object).into_iter().flat_map(Map::keys);
        for member in line.keys().chain(of_receipt).filter(|member| *member != "line") {
            assert!(row.contains(&format!("`{member}`")), "{member} is not in the row {row:?}");
        }
    }
    let formats: BTreeSet<String> = lines.iter().filter_map(|line| Some(line.get("format")?.to_string())).collect();
    assert!(rows["export"].contains(&format!("`format` ({})", Vec::from_iter(formats).join(", "))), "{rows:?}");
    let headers: Vec<_> = lines.iter().filter(|line| kind(line) == "export").collect();
    assert!(headers.len() == 2 && headers[1]["parent"] == "r1", "a child run behind its parent: {headers:?}");
    let told: BTreeSet<&str> = rows["export"].split('`').skip(1).step_by(2).collect();
    let members: BTreeSet<&str> = headers.iter().flat_map(|header| header.keys().map(String::as_str)).collect();
    assert_eq!(told, &members - &BTreeSet::from(["line"]));
}

#[tokio::test]
async fn the_plan_that_it_shows_is_taken_goes_round_its_cycle_and_ends() {
    let answer = |request: &ExecuteToolRequest| match request.tool_name.as_str() {
        "draft" => r#"{"notes":"one more"}"#,
        "check" if request.input_json.matches("one more").count() > 1 => r#"{"verdict":"good"}"#,
        "check" => r#"{"verdict":"again"}"#,
        _ => r#"{"sent":true}"#,
    };
    let answered = move |request: &ExecuteToolRequest| Some(Outcome::OutputJson(answer(request).to_owned()));
    let tool = HostTool::start(move |request| Ok(ExecuteToolResponse { outcome: answered(request) })).await.unwrap();
    let stack = Stack::builder().unwrap().runner(|flags| flags.tool_url(&tool.url())).start().await.unwrap();
    let client = stack.client();
    let readme = readme();
    let shown = readme.split("```json\n").find(|block| block.starts_with("{\"nodes\"")).expect("a plan");
    let mut plan: Value = serde_json::from_str(shown.split("```").next().unwrap()).unwrap();
    for (node, hash) in plan["bindings"].as_object_mut().unwrap() {
        *hash = client.put_definition(&Definition::tool(node)).await.unwrap().into();
    }
    let plan = client.put_plan_json(&plan.to_string()).await.unwrap();
    let run = client.run("r1", &plan, &serde_json::json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    assert_eq!(run.output_json, r#"{"notes":["one more","one more"],"sent":true,"verdict":"good"}"#);
}
