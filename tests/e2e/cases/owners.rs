//! One owner: of two who resume one executes; an attempt that ran out of time is over before the next one begins, and what it
//! says then is evidence and nothing else.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use e2e::{
    document::{Definition, Plan},
    host_tool::HostTool,
    process::POLL,
    shell_tool::ShellTool,
    stack::Stack,
};
use proto::{
    runner::v1::RunStatus,
    tool::v1::{ExecuteToolResponse, execute_tool_response::Outcome},
};
use serde_json::json;

use super::{ended_once, policy, until};

#[tokio::test]
async fn of_two_resumes_at_once_one_opens_the_superstep_and_each_effect_is_sent_once() {
    let answer = ExecuteToolResponse { outcome: Some(Outcome::OutputJson("{}".to_owned())) };
    let tool = HostTool::start(move |_| Ok(answer.clone())).await.unwrap();
    tool.answer_at_most(0);
    let url = tool.url();
    let stack = Stack::builder().unwrap().runner(|flags| flags.tool_url(&url)).start().await.unwrap();
    let client = stack.client();
    let work = client.put_definition(&Definition::tool("work")).await.unwrap();
    let plan = client.put_plan(&Plan::chain([("a", &*work), ("b", &work)])).await.unwrap();
    client.start("r1", &plan, &json!({})).await.unwrap();
    client.pause("r1").await.unwrap();
    tool.answer_at_most(usize::MAX);
    until(&client, "r1", "is paused", |run| run.status() == RunStatus::Paused).await;
    let (one, other) = tokio::join!(client.resume("r1"), client.resume("r1"));
    assert!(one.is_ok() || other.is_ok());
    assert_eq!(client.wait("r1").await.unwrap().status(), RunStatus::Completed);
    assert_eq!(tool.calls().len(), 2, "a and b, once each");
    let resumed = client.events("r1").await.unwrap();
    assert_eq!(resumed.iter().filter(|event| event.kind == "Resumed").count(), 1);
    ended_once(&client, "r1").await;
}

#[tokio::test]
async fn an_attempt_that_ran_out_of_time_is_killed_before_the_next_one_starts_and_its_late_words_change_nothing() {
    let builder = Stack::builder().unwrap();
    let folder = builder.directory().join("attempts");
    std::fs::create_dir(&folder).unwrap();
    // The first attempt lasts, and says something else when it is told to stop; each notes whether another one is alive.
    let body = format!(
        "cat > /dev/null; cd '{}'; for other in *.pid; do [ -e \"$other\" ] || continue; \
         state=$(cut -d' ' -f3 \"/proc/$(cat \"$other\")/stat\" 2>/dev/null); \
         [ -n \"$state\" ] && [ \"$state\" != Z ] && touch overlapped; done; \
         echo $$ > $$.pid; if [ \"$(ls *.pid | wc -l)\" = 1 ]; then \
         trap 'echo \"{{\\\"late\\\": true}}\"; exit 0' TERM; sleep 1000 & wait; fi; echo '{{\"second\": true}}'",
        folder.display()
    );
    let tool = ShellTool::write(builder.directory(), "slow.sh", &body).unwrap();
    let command = tool.command();
    let stack = builder.runner(|flags| flags.tool_cmd(&command)).start().await.unwrap();
    let client = stack.client();
    let work = client.put_definition(&Definition::tool("work")).await.unwrap();
    let plan = client.put_plan(&Plan::work(&work).with("retries", json!({"work": 1}))).await.unwrap();
    let options = policy(|policy| policy.timeout = Some(prost_types::Duration { seconds: 1, nanos: 0 }));
    let run = client.run_with("r1", &plan, &json!({}), options).await.unwrap();
    assert_eq!(run.output_json, r#"{"second":true}"#, "{}", run.reason);
    assert!(!folder.join("overlapped").exists(), "the first attempt was still alive when the second began");
    let entries = client.entries("r1").await.unwrap();
    let ends: Vec<(u32, &str)> = entries.iter().map(|entry| (entry.attempt, entry.status.as_str())).collect();
    assert_eq!(ends, [(1, "failed"), (2, "completed")]);
    ended_once(&client, "r1").await;
}

#[tokio::test]
async fn a_tool_service_is_left_when_an_attempt_runs_out_of_time_and_what_it_answers_then_reaches_nobody() {
    let alive = Arc::new(AtomicUsize::new(0));
    let answer = ExecuteToolResponse { outcome: Some(Outcome::OutputJson("{\"from\":\"the tool\"}".to_owned())) };
    let seen = Arc::clone(&alive);
    let tool = HostTool::start(move |_| {
        seen.fetch_add(1, Ordering::SeqCst);
        Ok(answer.clone())
    })
    .await
    .unwrap();
    tool.answer_at_most(0);
    let url = tool.url();
    let stack = Stack::builder().unwrap().runner(|flags| flags.tool_url(&url)).start().await.unwrap();
    let client = stack.client();
    let work = client.put_definition(&Definition::tool("work")).await.unwrap();
    let plan = client.put_plan(&Plan::work(&work).with("retries", json!({"work": 1}))).await.unwrap();
    let options = policy(|policy| policy.timeout = Some(prost_types::Duration { seconds: 1, nanos: 0 }));
    let start = e2e::client::request("r1", &plan, &json!({}));
    client.start_with(proto::runner::v1::StartRunRequest { options: Some(options), ..start }).await.unwrap();
    while tool.calls().len() < 2 {
        tokio::time::sleep(POLL).await;
    }
    // Both calls are answered now; only the second is waited for.
    tool.answer_at_most(usize::MAX);
    let run = client.wait("r1").await.unwrap();
    assert_eq!((run.status(), alive.load(Ordering::SeqCst)), (RunStatus::Completed, 2), "{}", run.reason);
    let keys: Vec<String> = tool.calls().into_iter().map(|call| call.idempotency_key).collect();
    assert_ne!(keys[0], keys[1], "another attempt has another name");
    let results = client.events("r1").await.unwrap();
    assert_eq!(results.iter().filter(|event| event.kind == "ResultRecorded").count(), 2);
    ended_once(&client, "r1").await;
}
