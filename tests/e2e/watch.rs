//! Watching: past events, then live ones, to the end.

use e2e::{
    document::Definition,
    refusal::Refusal,
    stack::{Stack, Who},
};
use proto::runner::v1::Event;
use serde_json::json;
use tonic::Code;

/// A run that waits for a person.
async fn parked() -> (Stack, String) {
    let stack = Stack::builder().unwrap().start().await.unwrap();
    let client = stack.client();
    let plan = client.put_work(&Definition::client("work")).await.unwrap();
    client.run("r1", &plan, &json!({})).await.unwrap();
    (stack, plan)
}

/// Every event names the one before it by its hash, and its own place.
fn chained(events: &[Event]) {
    assert_eq!(events[0].previous_hash, "0".repeat(64));
    for (place, event) in events.iter().enumerate() {
        assert_eq!(event.sequence, place as u64);
        assert_eq!(event.hash.len(), 64);
        serde_json::from_str::<serde_json::Value>(&event.body_json).expect("a body is JSON");
    }
    for pair in events.windows(2) {
        assert_eq!(pair[1].previous_hash, pair[0].hash);
    }
}

#[tokio::test]
async fn a_watcher_sees_past_events_then_live_ones_to_the_end() {
    let (stack, _) = parked().await;
    let client = stack.client();
    let mut watch = client.watch("r1", 0).await.unwrap();
    let mut seen = Vec::new();
    loop {
        let event = watch.next().await.unwrap().expect("the run waits");
        seen.push(event);
        if seen.last().unwrap().kind == "AskRaised" {
            break;
        }
    }
    let ask = client.asks("r1").await.unwrap()[0].clone();
    stack.client_of(Who::Approver).respond(&ask, &json!({"approved": true})).await.unwrap();
    seen.extend(watch.rest().await.unwrap());
    assert_eq!(seen[0].kind, "RunStarted");
    assert_eq!(seen.last().unwrap().kind, "RunFinished");
    chained(&seen);
    assert_eq!(seen, client.events("r1").await.unwrap(), "live and stored events are the same");
    assert_eq!(client.get("r1").await.unwrap().head_hash, seen.last().unwrap().hash);
}

#[tokio::test]
async fn a_watcher_may_begin_at_any_event_also_after_the_end() {
    let (stack, _) = parked().await;
    let client = stack.client();
    let ask = client.asks("r1").await.unwrap()[0].clone();
    stack.client_of(Who::Approver).respond(&ask, &json!({})).await.unwrap();
    client.wait("r1").await.unwrap();
    let all = client.events("r1").await.unwrap();
    for from in [0, 1, all.len() as u64 - 1] {
        let rest = client.watch("r1", from).await.unwrap().rest().await.unwrap();
        assert_eq!(rest, all[usize::try_from(from).unwrap()..]);
    }
    let beyond = client.watch("r1", all.len() as u64 + 10).await.unwrap().rest().await.unwrap();
    assert!(beyond.is_empty(), "an ended run has no more events");
}

#[tokio::test]
async fn watching_needs_a_run_and_a_caller() {
    let (stack, _) = parked().await;
    let unknown = stack.client().watch("no-such-run", 0).await;
    let refusal = match unknown {
        Err(status) => Refusal::of(&status),
        Ok(mut watch) => Refusal::expected(watch.next().await),
    };
    refusal.is(Code::NotFound, "RUN_NOT_FOUND");
    let refusal = match stack.stranger().watch("r1", 0).await {
        Err(status) => Refusal::of(&status),
        Ok(mut watch) => Refusal::expected(watch.next().await),
    };
    refusal.is(Code::Unauthenticated, "UNAUTHENTICATED");
}
