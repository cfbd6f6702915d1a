//! A parent with two child runs at the same time, one of which asks a person, killed before and after every journal write of
//! any of the three: no child is started twice, nothing recorded is done again, and the end is the one of a run without a crash.

use std::{collections::BTreeMap, io::Write as _};

use e2e::{
    client::{Client, NAMESPACE, request},
    document::{Definition, Plan},
    flags::Flags,
    process::POLL,
    shell_tool::ShellTool,
    stack::{Stack, Who},
};
use proto::runner::v1::{ListRunsRequest, Run, RunStatus};
use serde_json::json;

/// More commits than any run here makes: a bound for the sweeps.
const COMMITS_MAX: u32 = 200;
/// Tool effects of the parent and its children.
const TOOL_EFFECTS: usize = 6;

struct Family {
    stack: Stack,
    tool: ShellTool,
    plan: String,
}

/// `fork`, then `left` (a tool, a person, a tool) beside `right` (two tools), then `join`.
async fn family() -> Family {
    let builder = Stack::builder().unwrap();
    let tool = ShellTool::doing(builder.directory()).unwrap();
    let command = tool.command();
    let stack = builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap();
    let client = stack.client();
    let mut hashes = BTreeMap::new();
    for name in ["fork", "l1", "l2", "r1", "r2", "join"] {
        hashes.insert(name, client.put_definition(&Definition::tool(name)).await.unwrap());
    }
    let ask = client.put_definition(&Definition::client("approve")).await.unwrap();
    let left = Plan::chain([("l1", &*hashes["l1"]), ("approve", &ask), ("l2", &hashes["l2"])]);
    let left = client.put_plan(&left).await.unwrap();
    let right = client.put_plan(&Plan::chain([("r1", &*hashes["r1"]), ("r2", &hashes["r2"])])).await.unwrap();
    let plan = Plan::new().node("fork", &hashes["fork"]).node("left", &left).node("right", &right);
    let plan = plan.node("join", &hashes["join"]).edge("fork", "left").edge("fork", "right");
    let plan = client.put_plan(&plan.edge("left", "join").edge("right", "join")).await.unwrap();
    Family { stack, tool, plan }
}

impl Family {
    fn client(&self) -> Client {
        self.stack.client()
    }

    async fn arm(&mut self, change: impl FnOnce(Flags) -> Flags) -> anyhow::Result<()> {
        let mut flags = self.stack.runner.flags.clone();
        flags.no_crash();
        self.stack.runner.flags = change(flags);
        self.stack.runner.restart().await
    }

    /// Drives the run until it or the runner ends; true when the run has.
    async fn live(&mut self, run_id: &str) -> bool {
        while self.stack.runner.process().exit().is_none() {
            // A call may be cut off; all of them may be made again.
            if self.push(run_id).await.unwrap_or_default() {
                return true;
            }
            tokio::time::sleep(POLL).await;
        }
        false
    }

    async fn push(&self, run_id: &str) -> Result<bool, tonic::Status> {
        let client = self.client();
        client.start_with(request(run_id, &self.plan, &json!({"n": 1}))).await?;
        let run = client.wait_ask(run_id).await?;
        for ask in client.asks(run_id).await? {
            self.stack.client_of(Who::Approver).respond(&ask, &json!({"approved": true})).await?;
        }
        assert!(!matches!(run.status(), RunStatus::Failed | RunStatus::Canceled), "{run_id}: {}", run.reason);
        Ok(run.status() == RunStatus::Completed)
    }

    /// Calls per idempotency key.
    fn calls(&self) -> BTreeMap<String, u32> {
        let mut calls = BTreeMap::new();
        for call in self.tool.calls() {
            *calls.entry(call.key).or_default() += 1;
        }
        calls
    }

    /// The run and its child runs.
    async fn of(&self, run_id: &str) -> Vec<Run> {
        let all = ListRunsRequest {
            namespace: NAMESPACE.to_owned(),
            include_children: true,
            page_size: 1000,
            ..Default::default()
        };
        let runs = self.client().runner().list_runs(all).await.unwrap().into_inner().runs;
        runs.into_iter().filter(|run| run.run_id == run_id || run.parent_run_id == run_id).collect()
    }

    /// Everything that must hold after a crash; what was sent again.
    async fn judged(&self, run_id: &str, before: &BTreeMap<String, u32>) -> Vec<String> {
        let runs = self.of(run_id).await;
        assert_eq!(runs.len(), 3, "{run_id}: a parent and its two children, each once");
        let (calls, mut seen, mut again) = (self.calls(), 0, Vec::new());
        for run in &runs {
            assert_eq!(run.status(), RunStatus::Completed, "{}: {}", run.run_id, run.reason);
            let verified = self.client().verify(&run.run_id).await.unwrap();
            assert!(verified.clean, "{}: {}", run.run_id, verified.divergence);
            for entry in self.client().entries(&run.run_id).await.unwrap() {
                assert_eq!((entry.status.as_str(), entry.attempt), ("completed", 1), "{entry:?}");
                if entry.kind != "tool" {
                    assert_eq!(entry.dispatches, 1, "{run_id}: a child run or an ask was delivered again: {entry:?}");
                    continue;
                }
                seen += 1;
                let called = calls.get(&entry.idempotency_key).copied().unwrap_or_default();
                let at_first = before.get(&entry.idempotency_key).copied().unwrap_or_default();
                assert!(at_first <= 1, "{run_id}: called twice in one life: {entry:?}");
                assert!(
                    called == entry.dispatches || called + 1 == entry.dispatches && called > at_first,
                    "{run_id}: {called} calls, {at_first} of them before the crash, of {entry:?}"
                );
                if entry.dispatches > 1 {
                    again.push(entry.node);
                }
            }
        }
        assert_eq!((seen, calls.len()), (TOOL_EFFECTS, TOOL_EFFECTS), "{run_id}: every call has the key of an entry");
        again
    }
}

#[tokio::test]
async fn a_kill_before_every_journal_write_of_a_family_repeats_nothing_recorded_and_starts_no_child_twice() {
    sweep("before", |flags, commit| flags.crash_before_commit(commit)).await;
}

#[tokio::test]
async fn a_kill_after_every_journal_write_of_a_family_repeats_nothing_recorded_and_starts_no_child_twice() {
    sweep("after", |flags, commit| flags.crash_after_commits(commit)).await;
}

async fn sweep(point: &str, crash: fn(Flags, u32) -> Flags) {
    let mut family = family().await;
    assert!(family.live("whole").await);
    let whole = family.client().get("whole").await.unwrap().output_json;
    let of_a_start = commits_of_a_start(&mut family, crash).await;
    let mut table = Vec::new();
    for commit in 1..COMMITS_MAX {
        family.arm(|flags| crash(flags, of_a_start + commit)).await.expect("the runner starts");
        family.tool.forget().unwrap();
        let run_id = format!("{point}-{commit}");
        if family.live(&run_id).await {
            // Past the capture of a passing test's output.
            let head =
                format!("a parent with two child runs: {} points were killed, each {point} a commit", table.len());
            std::io::stdout().write_all(format!("{head}\n{}\n", table.join("\n")).as_bytes()).unwrap();
            // Steps of runs beside each other may share a commit.
            assert!(table.len() >= 8, "a parent with two children makes more commits");
            return;
        }
        let before = family.calls();
        family.arm(|flags| flags).await.expect("the runner starts again");
        assert!(family.live(&run_id).await, "{run_id} does not get to its end");
        assert_eq!(family.client().get(&run_id).await.unwrap().output_json, whole, "{run_id} ends in another state");
        let again = family.judged(&run_id, &before).await;
        // The parent's child runs and their own effects may all be in flight at once.
        assert!(again.len() <= 2, "{run_id}: {again:?} were sent again");
        table.push(format!("  commit {commit:>3}   {} calls before   sent again: {}", before.len(), again.join(", ")));
    }
    panic!("the run still makes commits after {COMMITS_MAX} of them");
}

/// Commits that a start makes by itself when there is nothing to recover.
async fn commits_of_a_start(family: &mut Family, crash: fn(Flags, u32) -> Flags) -> u32 {
    for commit in 1..COMMITS_MAX {
        if family.arm(|flags| crash(flags, commit)).await.is_ok() {
            return commit - 1;
        }
    }
    panic!("a start makes more than {COMMITS_MAX} commits");
}
