//! Slots, queue, cancel: a slot is never lost.

use proto::{
    fault::{Reason, reason_of, retry_after_of},
    sandbox::v1::{Cancel, ExecuteRequest, OutcomeKind, Runtime, Start, execute_request::Message},
};

use crate::{
    guests,
    rig::{Rig, assert_failed, assert_output, fuel, start, until},
};

const PURE: Runtime = Runtime::Wasm32Areev;

async fn small() -> Rig {
    Rig::with(|config| (config.capacity.slots, config.capacity.queue) = (2, 1)).await
}

async fn endless(rig: &Rig) -> Start {
    let uri = rig.put(&wat::parse_str(guests::endless()).unwrap()).await;
    Start { limits: fuel(u64::MAX), ..start(&uri, PURE, "null") }
}

#[tokio::test]
async fn w17_past_slots_and_queue_a_caller_is_told_when_to_try_again() {
    let rig = small().await;
    let message = endless(&rig).await;
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(rig.begin(message.clone()).await.unwrap());
    }
    until("two run and one waits", || (rig.sandbox.admission.running(), rig.sandbox.admission.queued()) == (2, 1))
        .await;
    let status = rig.begin(message).await.err().unwrap();
    assert_eq!((status.code(), reason_of(&status)), (tonic::Code::ResourceExhausted, Some(Reason::Busy)));
    assert!(retry_after_of(&status).is_some());
    calls.pop();
    until("the place in the queue is free", || rig.sandbox.admission.queued() == 0).await;
    drop(calls);
    until("both slots are free", || rig.sandbox.admission.running() == 0).await;
    assert_output(&rig.run(&guests::echo(), PURE, "1").await, "1");
}

#[tokio::test]
async fn cancel_stops_an_endless_guest_and_says_so() {
    let rig = small().await;
    let mut call = rig.begin(endless(&rig).await).await.unwrap();
    until("it runs", || rig.sandbox.admission.running() == 1).await;
    call.requests.send(ExecuteRequest { message: Some(Message::Cancel(Cancel {})) }).await.unwrap();
    assert_failed(&call.outcome().await, OutcomeKind::Canceled, "the caller canceled");
    until("its slot is free", || rig.sandbox.admission.running() == 0).await;
}

#[tokio::test]
async fn half_closing_the_request_stream_stops_nothing() {
    let rig = small().await;
    let uri = rig.put(&wat::parse_str(guests::slow_echo()).unwrap()).await;
    let first = [ExecuteRequest { message: Some(Message::Start(start(&uri, PURE, "[1]"))) }];
    let replies = rig.client.clone().execute(tokio_stream::iter(first)).await.unwrap().into_inner();
    let (requests, _) = tokio::sync::mpsc::channel(1);
    assert_output(&crate::rig::Call { requests, replies }.outcome().await, "[1]");
}

#[tokio::test]
async fn dropping_the_call_stops_the_guest_also_after_a_half_close() {
    let rig = small().await;
    let message = endless(&rig).await;
    let first = [ExecuteRequest { message: Some(Message::Start(message.clone())) }];
    let replies = rig.client.clone().execute(tokio_stream::iter(first)).await.unwrap();
    until("it runs", || rig.sandbox.admission.running() == 1).await;
    drop(replies);
    until("its slot is free", || rig.sandbox.admission.running() == 0).await;
    let stat = rig.stat(&message.module_digest).await;
    assert_eq!(stat.last_execution.unwrap().kind(), OutcomeKind::Canceled);
}

#[tokio::test]
async fn w17_no_slot_is_lost_over_hundreds_of_abandoned_calls() {
    let rig = small().await;
    let message = endless(&rig).await;
    for _ in 0..500 {
        match rig.begin(message.clone()).await {
            Ok(call) => drop(call),
            Err(status) => assert_eq!(reason_of(&status), Some(Reason::Busy)),
        }
    }
    until("everything is free", || (rig.sandbox.admission.running(), rig.sandbox.admission.queued()) == (0, 0)).await;
    let echo = guests::echo();
    let both = futures::future::join(rig.run(&echo, PURE, "1"), rig.run(&echo, PURE, "2")).await;
    assert_output(&both.0, "1");
    assert_output(&both.1, "2");
}

#[tokio::test]
async fn guests_that_never_yield_by_themselves_let_others_through() {
    // One thread serves everything here; the endless guests would keep it.
    let rig = Rig::with(|config| (config.capacity.slots, config.capacity.queue) = (3, 0)).await;
    let message = endless(&rig).await;
    let (_one, _two) = (rig.begin(message.clone()).await.unwrap(), rig.begin(message).await.unwrap());
    until("both run", || rig.sandbox.admission.running() == 2).await;
    assert_output(&rig.run(&guests::echo(), PURE, "1").await, "1");
}

#[tokio::test]
async fn messages_out_of_order_are_refused() {
    let rig = small().await;
    let message = endless(&rig).await;
    let call = rig.begin(message.clone()).await.unwrap();
    until("it runs", || rig.sandbox.admission.running() == 1).await;
    let mut call = call;
    call.requests.send(ExecuteRequest { message: Some(Message::Start(message)) }).await.unwrap();
    let status = call.next().await.unwrap_err();
    assert!(status.message().contains("second time"), "{status:?}");
    until("the slot is free", || rig.sandbox.admission.running() == 0).await;
    let first = [ExecuteRequest { message: Some(Message::Cancel(Cancel {})) }];
    let status = rig.client.clone().execute(tokio_stream::iter(first)).await.unwrap_err();
    assert!(status.message().contains("`start`"), "{status:?}");
}
