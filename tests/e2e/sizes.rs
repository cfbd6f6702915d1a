//! What runs take of disk and memory: a long chain, and large results. Prints what it measured.

use std::{fs, io::Write as _, os::unix::fs::MetadataExt as _, path::Path};

use e2e::{
    document::{Definition, Plan},
    host_tool::HostTool,
    stack::Stack,
};
use proto::{
    runner::v1::RunStatus,
    tool::v1::{ExecuteToolRequest, ExecuteToolResponse, execute_tool_response::Outcome},
};
use serde_json::json;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
/// Nodes of the chain.
const CHAIN: usize = 1000;
/// Nodes with a large result, and what each gives.
const LARGE: usize = 100;
const LARGE_BYTES: usize = 100_000;

async fn stack(answer: impl Fn(&ExecuteToolRequest) -> String + Send + Sync + 'static) -> (Stack, HostTool) {
    let outcome = move |request: &ExecuteToolRequest| Some(Outcome::OutputJson(answer(request)));
    let tool = HostTool::start(move |request| Ok(ExecuteToolResponse { outcome: outcome(request) })).await.unwrap();
    let url = tool.url();
    (Stack::builder().unwrap().runner(|flags| flags.tool_url(&url)).start().await.unwrap(), tool)
}

/// Bytes that a folder's files take on the disk.
fn taken(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries.map(|entry| if entry.path().is_dir() { taken(&entry.path()) } else { bytes(&entry.path()) }).sum()
}

fn bytes(file: &Path) -> u64 {
    // A file that goes away meanwhile takes nothing.
    fs::metadata(file).map_or(0, |file| file.blocks() * 512)
}

/// The most memory that a process has held since this was last called.
fn peak_of(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * KIB
}

fn say(text: &str) {
    // Past the capture of a passing test's output.
    std::io::stdout().write_all(format!("{text}\n").as_bytes()).unwrap();
}

#[tokio::test]
async fn a_chain_of_1000_nodes_takes_less_than_2_mb_and_is_verified_in_less_than_100_mb() {
    let (mut stack, _tool) = stack(|_| "{\"done\":true}".to_owned()).await;
    let client = stack.client();
    let work = client.put_definition(&Definition::tool("work")).await.unwrap();
    let names: Vec<String> = (0..CHAIN).map(|number| format!("n{number}")).collect();
    let plan = client.put_plan(&Plan::chain(names.iter().map(|name| (name.as_str(), work.as_str())))).await.unwrap();
    let journal = stack.data().join("journal");
    let before = taken(&journal);
    let run = client.run("chain", &plan, &json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    let (logical, on_disk) = (run.spent.unwrap().storage_bytes, taken(&journal).saturating_sub(before));
    let pid = stack.runner.process().pid();
    peak_of(pid);
    assert!(client.verify("chain").await.unwrap().clean);
    let peak = peak_of(pid);
    let a_node = logical / CHAIN as u64;
    say(&format!("a chain of {CHAIN} nodes: {logical} bytes of journal, {a_node} a node; {on_disk} more on the disk"));
    say(&format!("its verification: the process held at most {} MiB", peak / MIB));
    assert!(logical < 2 * MIB && peak < 100 * MIB, "{logical} bytes, {peak} of memory");
}

#[tokio::test]
async fn large_results_take_less_than_three_times_themselves_on_the_disk() {
    let large = "x".repeat(LARGE_BYTES);
    let (stack, _tool) = stack(move |request| json!({&request.tool_name: large}).to_string()).await;
    let client = stack.client();
    let mut steps = Vec::new();
    for number in 0..LARGE {
        let name = format!("n{number}");
        let hash = client.put_definition(&Definition::tool(&name)).await.unwrap();
        steps.push((name, hash));
    }
    let plan = Plan::chain(steps.iter().map(|(name, hash)| (name.as_str(), hash.as_str())));
    let plan = client.put_plan(&plan).await.unwrap();
    let before = taken(&stack.data());
    let run = client.run("large", &plan, &json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    let (data, disk) = ((LARGE * LARGE_BYTES) as u64, taken(&stack.data()) - before);
    let ratio = disk as f64 / data as f64;
    say(&format!("{LARGE} results of {LARGE_BYTES} bytes: {disk} bytes on the disk, {ratio:.2} × the data"));
    assert!(disk < 3 * data, "{disk} bytes for {data}");
}
