//! SIGKILL at every point where something became durable: nothing recorded is done again, and everything is finished.

use std::collections::BTreeMap;

use e2e::{
    client::{Client, request},
    document::{Definition, Plan},
    guests,
    process::POLL,
    shell_tool::ShellTool,
    stack::Stack,
};
use proto::runner::v1::{JournalEntry, OnDangling, RunOptions, RunStatus, StartRunRequest};
use serde_json::{Value, json};

/// Nodes of the plan that is killed again and again.
const NODES: usize = 10;
/// Runs until its own folder is removed: a tool outlives a runner that was killed.
const WAIT: &str = "while [ -e \"$0\" ]; do sleep 0.05; done";
/// More commits than any run here makes: a bound for the sweep.
const COMMITS_MAX: u32 = 200;

struct Bench {
    stack: Stack,
    tool: ShellTool,
    plan: String,
}

/// Ten nodes in a row, all by one counting command.
async fn bench() -> Bench {
    let builder = Stack::builder().unwrap();
    let tool = ShellTool::doing(builder.directory()).unwrap();
    let command = tool.command();
    let stack = builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap();
    let client = stack.client();
    let mut steps = Vec::new();
    for number in 0..NODES {
        let name = format!("n{number}");
        let hash = client.put_definition(&Definition::tool(&name)).await.unwrap();
        steps.push((name, hash));
    }
    let plan = Plan::chain(steps.iter().map(|(name, hash)| (name.as_str(), hash.as_str())));
    let plan = client.put_plan(&plan).await.unwrap();
    Bench { stack, tool, plan }
}

/// Restarts the runner so that it kills itself after so many commits; false when it did so before it was up.
async fn armed(stack: &mut Stack, commits: u32) -> bool {
    disarm(stack);
    stack.runner.flags = stack.runner.flags.clone().crash_after_commits(commits);
    stack.runner.restart().await.is_ok()
}

fn disarm(stack: &mut Stack) {
    stack.runner.flags.no_crash();
}

/// Commits that a start makes by itself when there is nothing to recover. Leaves the runner as if it had just been started.
async fn commits_of_a_start(stack: &mut Stack) -> u32 {
    for commits in 1..COMMITS_MAX {
        if armed(stack, commits).await {
            return commits - 1;
        }
    }
    panic!("a start makes more than {COMMITS_MAX} commits");
}

impl Bench {
    fn client(&self) -> Client {
        self.stack.client()
    }

    /// After a crash: a result that was recorded had one dispatch and has no second; at most one effect was in flight.
    async fn nothing_was_repeated(&self, run_id: &str, before: &BTreeMap<String, u32>, commits: u32) {
        let entries = self.client().entries(run_id).await.unwrap();
        whole(&entries);
        let calls = self.calls();
        let mut repeated = 0;
        for entry in &entries {
            let called = calls.get(&entry.idempotency_key).copied().unwrap_or_default();
            let at_first = before.get(&entry.idempotency_key).copied().unwrap_or_default();
            assert!(at_first <= 1, "crash {commits}: called twice in one life");
            assert!(
                called == entry.dispatches || called + 1 == entry.dispatches && called > at_first,
                "crash {commits}: {called} calls, {at_first} of them before the crash, of {entry:?}"
            );
            repeated += usize::from(entry.dispatches > 1);
        }
        assert!(repeated <= 1, "crash {commits}: {repeated} effects were sent again");
        assert_eq!(calls.len(), NODES, "crash {commits}: every call has the key of an entry");
    }

    /// Calls per idempotency key.
    fn calls(&self) -> BTreeMap<String, u32> {
        let mut calls = BTreeMap::new();
        for call in self.tool.calls() {
            *calls.entry(call.key).or_default() += 1;
        }
        calls
    }
}

fn whole(entries: &[JournalEntry]) {
    assert_eq!(entries.len(), NODES);
    assert!(entries.iter().all(|entry| entry.status == "completed"), "{entries:?}");
}

#[tokio::test]
async fn a_kill_after_each_commit_in_turn_repeats_no_recorded_result_and_loses_none() {
    let mut bench = bench().await;
    let of_a_start = commits_of_a_start(&mut bench.stack).await;
    for commits in 1..COMMITS_MAX {
        assert!(armed(&mut bench.stack, of_a_start + commits).await, "the runner did not start");
        let run_id = format!("r{commits}");
        let start = request(&run_id, &bench.plan, &json!({"q": 1}));
        bench.tool.forget().unwrap();
        // The call may be answered or cut off; the run id makes it safe to send again.
        let answered = bench.client().start_with(start.clone()).await.is_ok();
        if bench.client().wait(&run_id).await.is_ok_and(|run| run.status() == RunStatus::Completed) {
            assert!(answered && commits as usize > NODES, "only {commits} commits for {NODES} nodes");
            return;
        }
        bench.stack.runner.ended().await.unwrap();
        let before = bench.calls();
        disarm(&mut bench.stack);
        bench.stack.runner.restart().await.unwrap();
        if answered {
            bench.client().get(&run_id).await.expect("an acknowledged run is there after the crash");
        }
        bench.client().start_with(start).await.unwrap();
        let run = bench.client().wait(&run_id).await.unwrap();
        assert_eq!(run.status(), RunStatus::Completed, "crash {commits}: {}", run.reason);
        let output: Value = serde_json::from_str(&run.output_json).unwrap();
        assert_eq!(output.as_object().unwrap().len(), NODES + 1);
        bench.nothing_was_repeated(&run_id, &before, commits).await;
        let verified = bench.client().verify(&run_id).await.unwrap();
        assert!(verified.clean, "crash {commits}: {}", verified.divergence);
    }
    panic!("the run still makes commits after {COMMITS_MAX} of them");
}

#[tokio::test]
async fn a_process_that_is_killed_again_and_again_still_gets_there() {
    let mut bench = bench().await;
    // Each life takes its run over in one commit, and makes one more.
    let commits = commits_of_a_start(&mut bench.stack).await + 2;
    let start = request("r1", &bench.plan, &json!({}));
    for life in 1..COMMITS_MAX {
        let mut up = armed(&mut bench.stack, commits).await;
        while up {
            // The same start again: it finds the run, or makes it if it was cut off before.
            match bench.client().start_with(start.clone()).await {
                Ok(run) if run.status() == RunStatus::Completed => {
                    assert!(life as usize > NODES / 2, "only {life} lives: it was not killed");
                    whole(&bench.client().entries("r1").await.unwrap());
                    assert!(bench.client().verify("r1").await.unwrap().clean);
                    return;
                }
                _ => up = bench.stack.runner.process().exit().is_none(),
            }
            tokio::time::sleep(POLL).await;
        }
    }
    panic!("the run did not get to its end");
}

/// Whether a process runs; one that nobody has reaped does not.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, fields)| !fields.trim_start().starts_with('Z'))
}

#[tokio::test]
async fn a_kill_while_a_tool_runs_sends_the_same_key_again() {
    let builder = Stack::builder().unwrap();
    let (gate, pids) = (builder.directory().join("gate"), builder.directory().join("pids"));
    let running = || {
        let pids = std::fs::read_to_string(&pids).unwrap_or_default();
        pids.lines().map(runs).collect::<Vec<_>>()
    };
    let body = format!(
        "cat > /dev/null; echo $$ >> '{}'; while [ -e \"$0\" ] && [ ! -e '{}' ]; do sleep 0.02; done; echo '{{\"ok\":true}}'",
        pids.display(),
        gate.display()
    );
    let tool = ShellTool::write(builder.directory(), "tool.sh", &body).unwrap();
    let command = tool.command();
    let mut stack = builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap();
    let plan = stack.client().put_work(&Definition::tool("work")).await.unwrap();
    stack.client().start("r1", &plan, &json!({})).await.unwrap();
    while tool.calls().is_empty() {
        tokio::time::sleep(POLL).await;
    }
    stack.runner.process().kill().unwrap();
    stack.runner.restart().await.unwrap();
    while tool.calls().len() < 2 {
        tokio::time::sleep(POLL).await;
    }
    while running().len() < 2 {
        tokio::time::sleep(POLL).await;
    }
    assert_eq!(running(), [false, true], "the former one was ended before it was sent again");
    std::fs::write(gate, "").unwrap();
    let run = stack.client().wait("r1").await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    let calls = tool.calls();
    assert_eq!((calls.len(), &calls[0]), (2, &calls[1]), "the same key over every redelivery");
    let entries = stack.client().entries("r1").await.unwrap();
    assert_eq!((entries.len(), entries[0].dispatches, entries[0].attempt), (1, 2, 1), "a redelivery is no attempt");
    assert!(stack.client().events("r1").await.unwrap().iter().any(|event| event.kind == "Redelivered"));
    assert!(stack.client().verify("r1").await.unwrap().clean);
}

#[tokio::test]
async fn a_dangling_effect_fails_the_run_where_it_was_told_to() {
    let builder = Stack::builder().unwrap();
    let tool = ShellTool::write(builder.directory(), "tool.sh", WAIT).unwrap();
    let command = tool.command();
    let mut stack = builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap();
    let plan = stack.client().put_work(&Definition::tool("work")).await.unwrap();
    let options = RunOptions { on_dangling: OnDangling::Fail.into(), ..Default::default() };
    let start = StartRunRequest { options: Some(options), ..request("r1", &plan, &json!({})) };
    stack.client().start_with(start).await.unwrap();
    while tool.calls().is_empty() {
        tokio::time::sleep(POLL).await;
    }
    stack.runner.process().kill().unwrap();
    stack.runner.restart().await.unwrap();
    let run = stack.client().wait("r1").await.unwrap();
    assert_eq!(run.status(), RunStatus::Failed);
    assert!(run.reason.contains("RUN-E008"), "{}", run.reason);
    assert_eq!(tool.calls().len(), 1);
    assert!(stack.client().verify("r1").await.unwrap().clean);
}

#[tokio::test]
async fn retries_are_counted_over_crashes() {
    let builder = Stack::builder().unwrap();
    let tool = ShellTool::write(builder.directory(), "tool.sh", "exit 1").unwrap();
    let command = tool.command();
    let mut stack = builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap();
    let hash = stack.client().put_definition(&Definition::tool("work")).await.unwrap();
    let plan = Plan::work(&hash).with("retries", json!({"work": 2}));
    let plan = stack.client().put_plan(&plan).await.unwrap();
    let commits = commits_of_a_start(&mut stack).await + 2;
    assert!(armed(&mut stack, commits).await);
    let _cut_off = stack.client().start("r1", &plan, &json!({})).await;
    stack.runner.ended().await.unwrap();
    disarm(&mut stack);
    stack.runner.restart().await.unwrap();
    let run = stack.client().wait("r1").await.unwrap();
    assert_eq!(run.status(), RunStatus::Failed);
    let entries = stack.client().entries("r1").await.unwrap();
    assert_eq!(entries.iter().map(|entry| entry.attempt).collect::<Vec<_>>(), [1, 2, 3]);
    let mut keys: Vec<_> = tool.calls().into_iter().map(|call| call.key).collect();
    keys.dedup();
    assert_eq!(keys.len(), 3, "three attempts, whatever was delivered again");
}

#[tokio::test]
async fn a_pure_module_is_run_again_silently() {
    let module = guests::spin();
    let mut stack = Stack::builder().unwrap().pin(&module).sandbox().start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(&module).await.unwrap();
    let limits = json!({"fuel": 2_000_000_000_u64});
    let plan = client.put_work(&Definition::pure("work", &uri).with("runtime_limits", limits)).await.unwrap();
    client.start("r1", &plan, &json!({})).await.unwrap();
    stack.running_guests(1).await.unwrap();
    stack.runner.process().kill().unwrap();
    stack.runner.restart().await.unwrap();
    let run = stack.client().wait("r1").await.unwrap();
    assert_eq!(run.status(), RunStatus::Failed, "the guest runs out of fuel, after the crash as before");
    assert!(stack.client().verify("r1").await.unwrap().clean);
}
