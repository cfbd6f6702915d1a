//! A disk that is full, read-only or failing: nothing is dispatched that is not durable, everybody is told, runs can still be
//! ended, and it goes on by itself when the disk works again.

use e2e::{
    client::Client,
    document::{Definition, Plan},
    flags::Flags,
    host_tool::HostTool,
    process::POLL,
    refusal::Refusal,
    service,
    small_disk::SmallDisk,
    stack::Stack,
};
use proto::{
    runner::v1::{CancelResult, RunStatus},
    tool::v1::{ExecuteToolResponse, execute_tool_response::Outcome},
};
use serde_json::json;
use tonic::Code;

const MIB: u64 = 1024 * 1024;
/// The disk: the store, its reserve of 8 MiB, and room for more than the 16 MiB from which it takes work again.
const DISK_BYTES: u64 = 64 * MIB;

/// A runner whose data lie on a small disk, and a host tool whose calls wait for the test.
struct Trouble {
    // Dropped in this order: the runner ends before its disk does.
    stack: Stack,
    tool: HostTool,
    disk: SmallDisk,
    /// Two nodes of the tool, one after the other.
    two: String,
    /// A node that waits for a person.
    ask: String,
}

impl Trouble {
    async fn begin(change: impl FnOnce(Flags) -> Flags) -> Self {
        let answer = ExecuteToolResponse { outcome: Some(Outcome::OutputJson("{\"done\":true}".to_owned())) };
        let tool = HostTool::start(move |_| Ok(answer.clone())).await.unwrap();
        tool.answer_at_most(0);
        let url = tool.url();
        let builder = Stack::builder().unwrap();
        let disk = SmallDisk::mount(&builder.directory().join("data"), DISK_BYTES).unwrap();
        let builder = builder.runner_under(disk.wrapper()).runner(|flags| change(flags.tool_url(&url)));
        let stack = builder.start().await.unwrap();
        let client = stack.client();
        let work = client.put_definition(&Definition::tool("work")).await.unwrap();
        let two = client.put_plan(&Plan::chain([("first", work.as_str()), ("second", &work)])).await.unwrap();
        let ask = client.put_work(&Definition::client("ask")).await.unwrap();
        Self { stack, tool, disk, two, ask }
    }

    fn client(&self) -> Client {
        self.stack.client()
    }

    /// One run in its first tool, one that waits for a person.
    async fn two_runs(&self) {
        self.client().start("working", &self.two, &json!({})).await.unwrap();
        self.client().run("asking", &self.ask, &json!({})).await.unwrap();
        while self.tool.calls().is_empty() {
            tokio::time::sleep(POLL).await;
        }
    }

    /// While nothing can be written: starts are refused, and a result that comes leads to no other call.
    async fn nothing_begins(&self, name: &str) {
        let refusal = Refusal::expected(self.client().start(name, &self.two, &json!({})).await);
        refusal.is(Code::Unavailable, "STORAGE_UNAVAILABLE");
        assert_eq!(refusal.domain, "areev.runner");
        Refusal::expected(self.client().get(name).await).is(Code::NotFound, "RUN_NOT_FOUND");
        self.stack.runner.until_serving(false).await.unwrap();
        self.tool.answer_at_most(1);
        self.logged("the run waits for the store").await;
        assert_eq!(
            self.tool.calls().len(),
            1,
            "the second node was sent although the first one's result is not durable"
        );
    }

    /// A run can be ended on a full disk.
    async fn cancels(&self, name: &str) {
        let receipt = self.client().cancel(name, "enough").await.unwrap();
        assert_eq!(receipt.result(), CancelResult::Canceled, "{receipt:?}");
    }

    /// Once the disk works: all goes on by itself, each effect once.
    async fn all_goes_on(&self, name: &str) {
        self.stack.runner.until_serving(true).await.unwrap();
        self.tool.answer_at_most(usize::MAX);
        let run = self.client().wait("working").await.unwrap();
        assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
        assert_eq!(self.tool.calls().len(), 2);
        let run = self.client().run(name, &self.two, &json!({})).await.unwrap();
        assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
        for run in ["working", "asking", name] {
            let verified = self.client().verify(run).await.unwrap();
            assert!(verified.clean, "{run}: {}", verified.divergence);
        }
    }

    async fn logged(&self, text: &str) {
        while !std::fs::read_to_string(self.stack.runner.log()).unwrap().contains(text) {
            tokio::time::sleep(POLL).await;
        }
    }
}

fn as_they_are(flags: Flags) -> Flags {
    flags
}

#[tokio::test]
async fn a_nearly_full_disk_stops_work_but_not_the_end_of_runs_and_is_recovered_from() {
    let trouble = Trouble::begin(as_they_are).await;
    trouble.two_runs().await;
    trouble.disk.fill(MIB).unwrap();
    trouble.nothing_begins("refused").await;
    trouble.cancels("asking").await;
    assert_eq!(trouble.client().get("asking").await.unwrap().status(), RunStatus::Canceled);
    trouble.disk.free().unwrap();
    trouble.all_goes_on("refused").await;
}

#[tokio::test]
async fn a_disk_without_a_byte_left_ends_runs_from_its_reserve_and_survives_a_restart() {
    let mut trouble = Trouble::begin(as_they_are).await;
    trouble.two_runs().await;
    trouble.disk.fill(0).unwrap();
    trouble.nothing_begins("refused").await;
    trouble.cancels("asking").await;
    trouble.stack.runner.process().kill().unwrap();
    trouble.disk.free().unwrap();
    trouble.stack.runner.restart().await.unwrap();
    assert_eq!(trouble.client().get("asking").await.unwrap().status(), RunStatus::Canceled, "what was told is kept");
    while trouble.tool.calls().len() < 2 {
        tokio::time::sleep(POLL).await;
    }
    let keys: Vec<_> = trouble.tool.calls().into_iter().map(|call| call.idempotency_key).collect();
    assert_eq!(keys[0], keys[1], "the result that could not be written was asked for again, by the same name");
    trouble.tool.answer_at_most(usize::MAX);
    let run = trouble.client().wait("working").await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    assert!(trouble.client().verify("working").await.unwrap().clean);
}

#[tokio::test]
async fn a_read_only_disk_is_refused_at_start_by_name_and_loses_nothing() {
    let mut trouble = Trouble::begin(as_they_are).await;
    trouble.two_runs().await;
    trouble.stack.runner.process().kill().unwrap();
    trouble.disk.read_only(true).unwrap();
    let refused = trouble.stack.runner.restart().await.unwrap_err().to_string();
    assert!(refused.contains("ended at its start") && refused.contains("Read-only file system"), "{refused}");
    trouble.disk.read_only(false).unwrap();
    trouble.stack.runner.restart().await.unwrap();
    trouble.tool.answer_at_most(usize::MAX);
    let run = trouble.client().wait("working").await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    assert_eq!(trouble.client().get("asking").await.unwrap().status(), RunStatus::Waiting);
}

#[tokio::test]
async fn a_sync_that_fails_acknowledges_nothing_stops_dispatch_and_is_recovered_from() {
    let folder = tempfile::tempdir().unwrap();
    let failing = folder.path().join("failing");
    let trouble = Trouble::begin(|flags| flags.fail_sync_while(&failing)).await;
    trouble.two_runs().await;
    std::fs::write(&failing, "").unwrap();
    trouble.nothing_begins("refused").await;
    std::fs::remove_file(&failing).unwrap();
    trouble.all_goes_on("refused").await;
}

#[test]
fn a_data_directory_that_cannot_be_made_is_refused_by_name() {
    let refused = service::refused_start(&Flags::runner("/proc/areev/data".as_ref())).unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("/proc/areev/data"), "{said}");
}
