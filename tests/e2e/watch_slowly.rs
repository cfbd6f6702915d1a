//! Watchers that do not read: the run goes to its end without them, the runner keeps no more than a page for each, and when they
//! read again they get every event from where they were, and are told by how many they lag.

use std::{fs, io::Write as _};

use e2e::{
    channel::Channel,
    client::Client,
    document::{Definition, Plan},
    host_tool::HostTool,
    journal::Watch,
    refusal::Refusal,
    stack::{Stack, Who},
};
use proto::{
    runner::v1::RunStatus,
    tool::v1::{ExecuteToolResponse, execute_tool_response::Outcome},
};
use serde_json::{Value, json};
use tonic::{Code, transport::Endpoint};

const WATCHERS: u64 = 64;
/// Tasks of the run: two events each, whose keys are as long as may be.
const TASKS: usize = 1000;
/// Bytes that a watcher's stream takes before somebody reads: the least that HTTP/2 has.
const WINDOW_BYTES: u32 = 65_535;

/// A plan that splits, does the tasks, and asks a person at last.
async fn put_plan(client: &Client) -> String {
    let (split, part) = ("s".repeat(250), "p".repeat(250));
    let splits = client.put_definition(&Definition::tool("split")).await.unwrap();
    let parts = client.put_definition(&Definition::tool("part")).await.unwrap();
    let asks = client.put_definition(&Definition::client("approve")).await.unwrap();
    let plan = Plan::new().node(&split, &splits).node(&part, &parts).node("approve", &asks);
    client.put_plan(&plan.edge(&split, &part).edge(&part, "approve")).await.unwrap()
}

async fn stack() -> (Stack, HostTool) {
    let tool = HostTool::start(|request| {
        let sends: Vec<Value> = (0..TASKS).map(|n| json!({"node": "p".repeat(250), "input": {"n": n}})).collect();
        let output = match &*request.tool_name {
            "split" => json!({"$send": sends}).to_string(),
            _ => "null".to_owned(),
        };
        Ok(ExecuteToolResponse { outcome: Some(Outcome::OutputJson(output)) })
    });
    let tool = tool.await.unwrap();
    let url = tool.url();
    (Stack::builder().unwrap().runner(|flags| flags.tool_url(&url)).start().await.unwrap(), tool)
}

/// A watcher on a connection of its own, which has read one event and reads no more.
async fn watcher(stack: &Stack, from: u64) -> Watch {
    let endpoint = Endpoint::from_shared(stack.runner.url()).unwrap();
    let channel = endpoint
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .connect()
        .await
        .unwrap();
    let client = Client::new(Channel::new(channel), Some(Who::Reader.token()));
    client.watch("r1", from).await.unwrap()
}

/// What a process holds in memory now, in bytes.
fn held(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

async fn finish(stack: &Stack, run_id: &str) {
    let ask = stack.client().asks(run_id).await.unwrap().remove(0);
    stack.client_of(Who::Approver).respond(&ask, &json!({})).await.unwrap();
    let run = stack.client().wait(run_id).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
}

#[tokio::test]
async fn watchers_that_do_not_read_slow_no_run_cost_a_page_each_and_get_everything_when_they_read_again() {
    let (mut stack, _tool) = stack().await;
    let client = stack.client();
    let plan = put_plan(&client).await;
    // What such a run costs by itself is held already.
    client.run("r0", &plan, &json!({})).await.unwrap();
    finish(&stack, "r0").await;
    let pid = stack.runner.process().pid();
    let before = held(pid);

    client.start("r1", &plan, &json!({})).await.unwrap();
    let mut watchers = Vec::new();
    for number in 0..WATCHERS {
        watchers.push((number, watcher(&stack, number).await));
    }
    assert_eq!(client.wait_ask("r1").await.unwrap().status(), RunStatus::Waiting);
    finish(&stack, "r1").await;
    let all = client.events("r1").await.unwrap();
    let sizes: usize = all.iter().map(|event| event.body_json.len()).sum();
    let (unread, grown) = (sizes as u64 * WATCHERS, held(pid).saturating_sub(before));
    let line = format!(
        "{WATCHERS} watchers did not read {} events of {sizes} bytes each: the runner holds {} MiB more, of {} MiB\n",
        all.len(),
        grown >> 20,
        unread >> 20
    );
    // Past the capture of a passing test's output.
    std::io::stdout().write_all(line.as_bytes()).unwrap();
    assert!(grown < unread / 2, "{line}");

    for (from, mut watch) in watchers {
        let (first, lag) = watch.next_with_lag().await.unwrap().expect("the run has more events");
        let mut seen = vec![first];
        let mut lags = vec![lag];
        while let Some((event, lag)) = watch.next_with_lag().await.unwrap() {
            seen.push(event);
            lags.push(lag);
        }
        assert_eq!(seen, all[usize::try_from(from).unwrap()..], "from {from} on, whole and in order");
        assert_eq!(*lags.last().unwrap(), 0, "caught up with the run's end");
        assert!(lags.iter().any(|lag| *lag > 100), "it was told how far behind it is: {:?}", lags.iter().max());
    }
}

#[tokio::test]
async fn a_watcher_that_has_read_all_is_cut_off_by_a_drain_with_a_word_that_says_so() {
    let mut stack = Stack::builder().unwrap().start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::client("approve")).await.unwrap();
    client.run("r1", &plan, &json!({})).await.unwrap();
    let mut watch = client.watch("r1", 0).await.unwrap();
    let mut lag = u64::MAX;
    while lag > 0 {
        lag = watch.next_with_lag().await.unwrap().expect("the run waits").1;
    }
    stack.runner.process().ask_to_end().unwrap();
    let refusal = Refusal::expected(watch.next().await);
    refusal.is(Code::Unavailable, "DRAINING");
    assert!(refusal.retry, "it says when to watch again, from the next sequence number on: {refusal:?}");
}
