//! A service that effects need is away for a while: no attempt is spent, the run says what it waits for, and goes on.

use std::time::{Duration, Instant, SystemTime};

use e2e::{
    client::Client,
    document::Definition,
    guests,
    process::{PATIENCE, POLL},
    stack::Stack,
    upstream::{Answer, Upstream},
};
use proto::runner::v1::{RunStatus, Waiting};
use serde_json::{Value, json};

/// Longer than a service may be away without anybody noticing.
const AWAY: Duration = Duration::from_secs(11);

/// Polls until the run has waited that long for a service whose name is in the text.
async fn waited(client: &Client, run_id: &str, service: &str) -> Waiting {
    let deadline = Instant::now() + PATIENCE + AWAY;
    loop {
        let run = client.get(run_id).await.unwrap();
        assert_eq!(run.status(), RunStatus::Running, "{}", run.reason);
        let waiting = run.waiting.into_iter().find(|waiting| waiting.what.contains(service));
        if let Some(waiting) = waiting {
            let since = SystemTime::try_from(waiting.since.unwrap()).unwrap();
            if since.elapsed().is_ok_and(|elapsed| elapsed > AWAY) {
                return waiting;
            }
        }
        assert!(Instant::now() < deadline, "{run_id} does not say that it waits for the {service}");
        tokio::time::sleep(POLL).await;
    }
}

#[tokio::test]
async fn a_run_outlasts_its_sandbox_being_away_and_says_what_it_waits_for() {
    let module = guests::echo();
    let mut stack = Stack::builder().unwrap().pin(&module).sandbox().start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(&module).await.unwrap();
    let plan = client.put_work(&Definition::pure("work", &uri)).await.unwrap();
    let url = stack.sandbox.as_ref().unwrap().url();
    stack.sandbox.as_mut().unwrap().process().kill().unwrap();
    client.start("r1", &plan, &json!({"x": 1})).await.unwrap();
    let waiting = waited(&client, "r1", "sandbox").await;
    let silent = said(&mut stack, "a service does not answer: effects wait for it");
    assert_eq!(silent, [("WARN".to_owned(), "sandbox".to_owned(), url.clone())], "once, however long it is away");
    assert_eq!(waiting.what.matches(&url).count(), 2, "where, and what happened there: {}", waiting.what);
    assert!(waiting.unblocked_by.contains("the service answering"), "{}", waiting.unblocked_by);
    stack.sandbox.as_mut().unwrap().restart().await.unwrap();
    let run = client.wait("r1").await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    let entries = client.entries("r1").await.unwrap();
    assert_eq!((entries.len(), entries[0].attempt, entries[0].dispatches), (1, 1, 1), "no attempt was spent");
    let back = said(&mut stack, "a service answers again");
    assert_eq!(back, [("INFO".to_owned(), "sandbox".to_owned(), url)]);
}

/// The lines of the runner's log with a message: level, service, where.
fn said(stack: &mut Stack, message: &str) -> Vec<(String, String, String)> {
    let log = stack.runner.process().log_text();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let lines = lines.filter(|line| line["message"] == message);
    let text = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
    lines.map(|line| (text(&line, "level"), text(&line, "service"), text(&line, "url"))).collect()
}

#[tokio::test]
async fn a_run_outlasts_its_broker_being_away() {
    let upstream = Upstream::start(|_| Some(Answer::json(200, &json!({"ok": true})))).await.unwrap();
    let origin = upstream.origin();
    let settings = format!(
        "[policy]\nallow_hosts = [{origin:?}]\nallow_private = [\"127.0.0.0/8\"]\n\
         [grants.work]\nmethods = [\"GET\"]\nhosts = [{origin:?}]\n"
    );
    let module = guests::fetch(&json!({"url": format!("{origin}/a")}));
    let builder = Stack::builder().unwrap().pin(&module).sandbox();
    let mut stack = builder.broker(&settings, &[]).unwrap().start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(&module).await.unwrap();
    let http = json!([{"http": {"hosts": [origin], "methods": ["GET"]}}]);
    let plan = client.put_work(&Definition::io("work", &uri, http)).await.unwrap();
    client.run("r0", &plan, &json!({})).await.unwrap();
    stack.broker.as_mut().unwrap().process().kill().unwrap();
    // A start asks the broker for its policy; a run that was started before needs it for its token.
    let refused = client.start("r1", &plan, &json!({})).await;
    if refused.is_ok() {
        waited(&client, "r1", "credential broker").await;
    }
    stack.broker.as_mut().unwrap().restart().await.unwrap();
    let run = client.run("r1", &plan, &json!({})).await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    assert_eq!(client.entries("r1").await.unwrap()[0].attempt, 1, "no attempt was spent");
}

#[tokio::test]
async fn o3_a_broker_that_is_lost_in_the_middle_of_a_post_is_an_answer_to_the_guest_and_nothing_is_sent_twice() {
    // The upstream takes the request and does not answer.
    let upstream = Upstream::start(|request| {
        let slow = request.head.contains("/slow");
        (!slow).then(|| Answer::json(200, &json!({"ok": true})))
    });
    let upstream = upstream.await.unwrap();
    let origin = upstream.origin();
    let settings = format!(
        "[policy]\nallow_hosts = [{origin:?}]\nallow_private = [\"127.0.0.0/8\"]\n\
         [grants.work]\nmethods = [\"POST\"]\nhosts = [{origin:?}]\n"
    );
    let module = guests::fetch(&json!({"url": format!("{origin}/slow"), "method": "POST", "body": "once"}));
    let builder = Stack::builder().unwrap().pin(&module).sandbox();
    let mut stack = builder.broker(&settings, &[]).unwrap().start().await.unwrap();
    let client = stack.client();
    let uri = client.put_blob(&module).await.unwrap();
    let http = json!([{"http": {"hosts": [origin], "methods": ["POST"]}}]);
    let plan = client.put_work(&Definition::io("work", &uri, http)).await.unwrap();
    client.start("r1", &plan, &json!({})).await.unwrap();
    let deadline = Instant::now() + PATIENCE;
    while upstream.received().is_empty() {
        assert!(Instant::now() < deadline, "the call never went out");
        tokio::time::sleep(POLL).await;
    }
    stack.broker.as_mut().unwrap().process().kill().unwrap();
    let run = client.wait("r1").await.unwrap();
    assert_eq!(run.status(), RunStatus::Completed, "{}", run.reason);
    let seen: Value = serde_json::from_str(&run.output_json).unwrap();
    assert!(
        seen["error"].as_str().unwrap().contains("was not answered"),
        "the guest is told that nobody knows: {seen}"
    );
    stack.broker.as_mut().unwrap().restart().await.unwrap();
    let entries = client.entries("r1").await.unwrap();
    assert_eq!(
        (entries.len(), entries[0].attempt, entries[0].exchanges),
        (1, 1, 1),
        "what it was told is in the journal"
    );
    assert_eq!(upstream.received().len(), 1, "a write of which nobody knows whether it happened is not sent again");
    assert!(client.verify("r1").await.unwrap().clean);
}
