//! A restart with more in flight than memory may hold at once: bounded by bytes, no process killed for it, and everything goes
//! on.

use std::{fs, io::Write as _, path::PathBuf};

use e2e::{
    document::{Definition, Plan},
    host_tool::HostTool,
    stack::Stack,
};
use futures::{StreamExt as _, stream};
use proto::{
    runner::v1::RunStatus,
    tool::v1::{ExecuteToolResponse, execute_tool_response::Outcome},
};
use serde_json::json;

/// Runs in flight, and what each one's first result has.
const RUNS: usize = 500;
const RESULT_BYTES: usize = 2_000_000;
/// What the restarted process may hold.
const MEMORY_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// Runs that are started, and answers that are given, at the same time.
const AT_ONCE: usize = 8;

/// A memory cgroup of the test's own, where the machine has them.
struct Cgroup(PathBuf);

impl Cgroup {
    fn make() -> Option<Self> {
        let folder = PathBuf::from(format!("/sys/fs/cgroup/memory/areev-test-{}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        let made = Self(folder);
        fs::write(made.0.join("memory.limit_in_bytes"), MEMORY_BYTES_MAX.to_string()).ok()?;
        Some(made)
    }

    /// Starts a program in it.
    fn wrapper(&self) -> Vec<String> {
        let script = format!("echo $$ > '{}' && exec \"$@\"", self.0.join("cgroup.procs").display());
        ["/bin/sh", "-c", &script, "sh"].map(str::to_owned).to_vec()
    }

    /// How often a process in it was killed for want of memory.
    fn kills(&self) -> u64 {
        let control = fs::read_to_string(self.0.join("memory.oom_control")).unwrap_or_default();
        let kills = control.lines().find_map(|line| line.strip_prefix("oom_kill "));
        kills.and_then(|kills| kills.parse().ok()).unwrap_or(0)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _still_used = fs::remove_dir(&self.0);
    }
}

/// The most memory that a process has held, in bytes.
fn held(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn a_restart_with_500_runs_of_2_mb_in_flight_stays_within_512_mib_and_all_of_them_go_on() {
    // All results are one text, so that the disk holds it once: each run that is loaded has a copy of its own all the same.
    let output = format!("{{\"text\":\"{}\"}}", "x".repeat(RESULT_BYTES));
    let tool = HostTool::start(move |_| Ok(ExecuteToolResponse { outcome: Some(Outcome::OutputJson(output.clone())) }))
        .await
        .unwrap();
    let url = tool.url();
    // The cgroup outlives the processes in it.
    let cgroup = Cgroup::make();
    let builder = Stack::builder().unwrap();
    let flags = |flags: e2e::flags::Flags| {
        flags.tool_url(&url).value("--max-concurrent-runs", "1000").value("--durability", "process-crash")
    };
    let mut stack = builder.runner(flags).start().await.unwrap();
    let client = stack.client();
    let large = client.put_definition(&Definition::tool("large")).await.unwrap();
    let approve = client.put_definition(&Definition::client("approve")).await.unwrap();
    let plan = client.put_plan(&Plan::chain([("large", &*large), ("approve", &approve)])).await.unwrap();
    let starts = (0..RUNS).map(|number| {
        let (client, plan) = (client.clone(), plan.clone());
        async move { client.run(&format!("r{number}"), &plan, &json!({})).await.map(|run| run.status()) }
    });
    let mut starts = stream::iter(starts).buffer_unordered(AT_ONCE);
    while let Some(started) = starts.next().await {
        assert_eq!(started.unwrap(), RunStatus::Waiting);
    }
    drop(starts);
    stack.runner.process().kill().unwrap();
    if let Some(cgroup) = &cgroup {
        stack.runner.run_under(cgroup.wrapper());
    }
    stack.runner.restart().await.unwrap();
    let (client, approver) = (stack.client(), stack.client_of(e2e::stack::Who::Approver));
    let goes_on = (0..RUNS).map(|number| {
        let (client, approver) = (client.clone(), approver.clone());
        async move {
            let run_id = format!("r{number}");
            let run = client.wait_ask(&run_id).await.unwrap();
            approver.respond(&run.asks[0], &json!({"text": null, "ok": true})).await.unwrap();
            let run = client.wait(&run_id).await.unwrap();
            assert_eq!(run.status(), RunStatus::Completed, "{run_id}: {}", run.reason);
        }
    });
    stream::iter(goes_on).buffer_unordered(AT_ONCE).for_each(|()| std::future::ready(())).await;
    let held = held(stack.runner.process().pid());
    let limit = if cgroup.is_some() { "in a cgroup of 512 MiB" } else { "no cgroup can be had here" };
    let line = format!(
        "restarted with {RUNS} runs of {RESULT_BYTES} bytes in flight, {limit}: it held at most {} MiB\n",
        held >> 20
    );
    // Past the capture of a passing test's output.
    std::io::stdout().write_all(line.as_bytes()).unwrap();
    assert!(held < MEMORY_BYTES_MAX, "{held} bytes");
    assert_eq!(cgroup.as_ref().map_or(0, Cgroup::kills), 0, "the process was killed for want of memory");
    assert!(stack.runner.process().exit().is_none());
    drop(stack);
}
