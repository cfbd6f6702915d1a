//! SIGKILL at every point where something became durable: nothing recorded is done again, and everything is finished.

use std::collections::BTreeMap;

use e2e::{
    client::{Client, request},
    document::{Definition, Plan},
    flags::CRASH_VARIABLE,
    guests,
    shell_tool::ShellTool,
    stack::{Builder, Stack},
};
use proto::runner::v1::{JournalEntry, OnDangling, RunOptions, RunStatus, StartRunRequest};
use serde_json::{Value, json};

/// Nodes of the plan that is killed again and again.
const NODES: usize = 10;
/// More commits than any run here makes: a bound for the sweep.
const COMMITS_MAX: u32 = 200;

struct Bench {
    stack: Stack,
    tool: ShellTool,
    plan: String,
}

/// Ten nodes in a row, every third one with a brother, all by one counting command.
async fn bench(builder: Builder, crash_after: Option<u32>) -> Bench {
    let tool = ShellTool::doing(builder.directory()).unwrap();
    let command = tool.command();
    let stack = builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap();
    let client = stack.client();
    let mut plan = Plan::new();
    for number in 0..NODES {
        let name = format!("n{number}");
        let hash = client.put_definition(&Definition::tool(&name)).await.unwrap();
        plan = plan.node(&name, &hash);
        if number > 0 {
            plan = plan.edge(&format!("n{}", number - 1), &name);
        }
    }
    let plan = client.put_plan(&plan).await.unwrap();
    let mut bench = Bench { stack, tool, plan };
    if let Some(commits) = crash_after {
        // Only now: what authoring commits is not counted.
        bench.stack.runner.flags = bench.stack.runner.flags.clone().crash_after_commits(commits);
        bench.stack.runner.restart().await.unwrap();
    }
    bench
}

impl Bench {
    fn client(&self) -> Client {
        self.stack.client()
    }

    async fn survive(&mut self) {
        self.stack.runner.ended().await.unwrap();
        self.stack.runner.flags.forget_variable(CRASH_VARIABLE);
        self.stack.runner.restart().await.unwrap();
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
    for commits in 1..COMMITS_MAX {
        let mut bench = bench(Stack::builder().unwrap(), Some(commits)).await;
        let client = bench.client();
        let start = request("r1", &bench.plan, &json!({"q": 1}));
        // The call may be answered or cut off; the run id makes it safe to send again.
        let answered = client.start_with(start.clone()).await.is_ok();
        let run = client.wait("r1").await;
        if run.is_ok_and(|run| run.status() == RunStatus::Completed) {
            assert!(answered && commits as usize > NODES, "only {commits} commits for {NODES} nodes");
            return;
        }
        bench.stack.runner.ended().await.unwrap();
        let before = bench.calls();
        bench.survive().await;
        let client = bench.client();
        if answered {
            client.get("r1").await.expect("an acknowledged run is there after the crash");
        }
        client.start_with(start).await.unwrap();
        let run = client.wait("r1").await.unwrap();
        assert_eq!(run.status(), RunStatus::Completed, "crash {commits}: {}", run.reason);

        let entries = client.entries("r1").await.unwrap();
        whole(&entries);
        let calls = bench.calls();
        assert!(calls.values().sum::<u32>() <= NODES as u32 + 1, "crash {commits}: one effect at most was in flight");
        for entry in &entries {
            let called = calls[&entry.idempotency_key];
            // A result that was recorded before the crash had one dispatch, and has no second after it.
            assert!(
                called == entry.dispatches || called + 1 == entry.dispatches,
                "crash {commits}: {entry:?}, {called} calls"
            );
            let was_called = before.get(&entry.idempotency_key).copied().unwrap_or_default();
            assert!(called == 1 || was_called == 1, "crash {commits}: called again without a first call");
        }
        let redelivered = entries.iter().filter(|entry| entry.dispatches > 1).count();
        assert!(redelivered <= 1, "crash {commits}: {entries:?}");
        let output: Value = serde_json::from_str(&run.output_json).unwrap();
        assert_eq!(output.as_object().unwrap().len(), NODES + 1);
        let verified = client.verify("r1").await.unwrap();
        assert!(verified.clean, "crash {commits}: {}", verified.divergence);
        assert!(bench.tool.calls().iter().all(|call| call.key.len() == 64));
    }
    panic!("the run still makes commits after {COMMITS_MAX} of them");
}

#[tokio::test]
async fn a_process_that_is_killed_after_every_single_commit_still_gets_there() {
    let mut bench = bench(Stack::builder().unwrap(), Some(1)).await;
    let start = request("r1", &bench.plan, &json!({}));
    let _cut_off = bench.client().start_with(start.clone()).await;
    for _ in 0..COMMITS_MAX {
        if bench.stack.runner.process().exit().is_none() {
            let run = match bench.client().get("r1").await {
                Ok(run) => run,
                // Killed in between, or before the run was durable.
                Err(_) => match bench.client().start_with(start.clone()).await {
                    Ok(run) => run,
                    Err(_) => {
                        bench.stack.runner.ended().await.unwrap();
                        continue;
                    }
                },
            };
            if run.status() == RunStatus::Completed {
                whole(&bench.client().entries("r1").await.unwrap());
                assert!(bench.client().verify("r1").await.unwrap().clean);
                return;
            }
            bench.stack.runner.ended().await.unwrap();
        }
        // The start itself commits nothing, so that it always succeeds.
        while bench.stack.runner.restart().await.is_err() {}
    }
    panic!("the run did not get to its end");
}

#[tokio::test]
async fn a_kill_while_a_tool_runs_sends_the_same_key_again() {
    let builder = Stack::builder().unwrap();
    let gate = builder.directory().join("gate");
    let body =
        format!("cat > /dev/null; while [ ! -e '{}' ]; do sleep 0.02; done; echo '{{\"ok\":true}}'", gate.display());
    let tool = ShellTool::write(builder.directory(), "tool.sh", &body).unwrap();
    let command = tool.command();
    let mut stack = builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap();
    let plan = stack.client().put_work(&Definition::tool("work")).await.unwrap();
    stack.client().start("r1", &plan, &json!({})).await.unwrap();
    while tool.calls().is_empty() {
        tokio::time::sleep(e2e::process::POLL).await;
    }
    stack.runner.process().kill().unwrap();
    stack.runner.restart().await.unwrap();
    while tool.calls().len() < 2 {
        tokio::time::sleep(e2e::process::POLL).await;
    }
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
    let tool = ShellTool::write(builder.directory(), "tool.sh", "exec sleep 1000").unwrap();
    let command = tool.command();
    let mut stack = builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap();
    let plan = stack.client().put_work(&Definition::tool("work")).await.unwrap();
    let options = RunOptions { on_dangling: OnDangling::Fail.into(), ..Default::default() };
    let start = StartRunRequest { options: Some(options), ..request("r1", &plan, &json!({})) };
    stack.client().start_with(start).await.unwrap();
    while tool.calls().is_empty() {
        tokio::time::sleep(e2e::process::POLL).await;
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
    stack.runner.flags = stack.runner.flags.clone().crash_after_commits(3);
    stack.runner.restart().await.unwrap();
    let _cut_off = stack.client().start("r1", &plan, &json!({})).await;
    stack.runner.ended().await.unwrap();
    stack.runner.flags.forget_variable(CRASH_VARIABLE);
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
