//! Slots, queue, cancel: a slot is never lost.

use std::collections::VecDeque;

use proto::{
    fault::{Reason, reason_of, retry_after_of},
    sandbox::v1::{Cancel, ExecuteRequest, OutcomeKind, Runtime, Start, execute_request::Message},
};

use sandbox_svc::{
    blob,
    effect::{Effect, EffectKey},
    exchange::Confirm,
    guest::Gauge,
    limits::AskedLimits,
    relay::Relay,
    sandbox::Caller,
};

use crate::{
    guests,
    process::Process,
    rig::{Rig, assert_failed, assert_output, fuel, start, until, within_ms},
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
    assert_output(&crate::caller::Call { requests, replies }.outcome().await, "[1]");
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

#[tokio::test(flavor = "multi_thread")]
async fn o02_a_tenant_that_floods_leaves_another_one_room_to_run_at_once() {
    let rig = Rig::with(|config| (config.capacity.slots, config.capacity.queue) = (4, 8)).await;
    let flood = Start { tenant: "a".to_owned(), ..endless(&rig).await };
    let mut calls = Vec::new();
    let refused = loop {
        match rig.begin(flood.clone()).await {
            Ok(call) => calls.push(call),
            Err(status) => break status,
        }
    };
    assert_eq!((refused.code(), reason_of(&refused)), (tonic::Code::ResourceExhausted, Some(Reason::Busy)));
    assert!(refused.message().contains("the tenant's part") && retry_after_of(&refused).is_some(), "{refused:?}");
    until("it has its part", || (rig.sandbox.admission.running(), rig.sandbox.admission.queued()) == (3, 6)).await;
    // Nobody else waits behind it, however often.
    let echo = rig.put(&wat::parse_str(guests::echo()).unwrap()).await;
    for _ in 0..50 {
        let message = Start { tenant: "b".to_owned(), ..start(&echo, PURE, "1") };
        assert_output(&rig.execute(message).await.unwrap().0, "1");
    }
    assert_eq!(rig.sandbox.admission.running(), 3, "the flood still runs");
}

#[tokio::test(flavor = "multi_thread")]
async fn o04_calls_in_flight_are_finished_when_the_service_is_told_to_stop() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), &["--max-concurrent", "50", "--drain", "2m"]).await;
    let uri = process.caller.put(&wat::parse_str(guests::slow_echo()).unwrap()).await;
    assert_output(&process.caller.execute(start(&uri, PURE, "0")).await.unwrap().0, "0");
    let mut calls = Vec::new();
    for number in 0..50 {
        calls.push(process.caller.begin(start(&uri, PURE, &number.to_string())).await.unwrap());
    }
    process.terminate();
    let mut client = process.caller.client.clone();
    let end = std::time::Instant::now() + crate::rig::PATIENCE;
    while client.describe(proto::sandbox::v1::DescribeRequest {}).await.is_ok() {
        assert!(std::time::Instant::now() < end, "it takes new calls while it drains");
    }
    for (number, call) in calls.iter_mut().enumerate() {
        assert_output(&call.outcome().await, &number.to_string());
    }
    assert!(process.ended().await, "it ends well");
}

#[tokio::test]
async fn w17_a_hundred_thousand_calls_canceled_in_the_middle_leave_nothing_behind() {
    // Each has an instance, and a guest that waits in a host call for an acknowledgement that never comes.
    let rig = Rig::with(|config| (config.capacity.slots, config.capacity.queue) = (4, 4)).await;
    let uri = rig.put(&wat::parse_str(guests::fetches(&["{\"url\":\"https://x\"}"])).unwrap()).await;
    let digest = content_digest::Digest::from_uri(&uri).unwrap();
    rig.sandbox.modules.code(digest, rig.sandbox.modules.bytes(&digest), "").await.unwrap();
    for number in 0..100_000 {
        let effect = Effect {
            digest,
            runtime: sandbox_svc::runtime::Runtime::Io,
            tenant: format!("tenant {}", number % 7),
            input: "null".to_owned(),
            limits: AskedLimits::default(),
            tool_name: String::new(),
            definition_hash: String::new(),
            idempotency_key: String::new(),
            key: EffectKey::default(),
            deadline: None,
            egress: None,
            blob_read: false,
            recorded: VecDeque::new(),
        };
        let accepted = rig.sandbox.accept(effect).await.unwrap();
        let (exchanges, mut asked) = tokio::sync::mpsc::channel(1);
        let (_acknowledgements, acknowledged) = tokio::sync::mpsc::channel(1);
        let (reads, _) = tokio::sync::mpsc::channel(1);
        let (_parts, parts) = tokio::sync::mpsc::channel(1);
        let (calls, _calls) = tokio::sync::mpsc::channel(1);
        let (_replies, replies) = tokio::sync::mpsc::channel(1);
        let (confirm, artifacts) = (Confirm { exchanges, acknowledged }, Relay { calls, replies });
        let caller = Caller { confirm, blobs: blob::Runner { reads, parts }, artifacts };
        let gauge = std::sync::Arc::new(Gauge::default());
        let mut running = Box::pin(rig.sandbox.execute(accepted, caller, gauge));
        tokio::select! {
            ended = &mut running => panic!("it ended by itself: {ended:?}"),
            exchange = asked.recv() => assert_eq!(exchange.unwrap().ordinal, 0),
        }
        assert_eq!(rig.sandbox.admission.running(), 1);
        drop(running);
        until("nothing is held", || (rig.sandbox.admission.running(), rig.sandbox.admission.queued()) == (0, 0)).await;
    }
    // All slots of the pool are there.
    let echo = guests::echo();
    let four = futures::future::join_all((0..4).map(|_| rig.run(&echo, PURE, "1"))).await;
    four.iter().for_each(|outcome| assert_output(outcome, "1"));
}

#[tokio::test]
async fn a_caller_whose_clock_is_off_gets_the_time_that_it_asked_for() {
    const OFF_MS: i64 = 300_000;
    let rig = small().await;
    let at = |ms: i64| {
        let now = std::time::SystemTime::now();
        let off = std::time::Duration::from_millis(ms.unsigned_abs());
        Some(prost_types::Timestamp::from(if ms < 0 { now - off } else { now + off }))
    };
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    let uri = rig.put(&wat::parse_str(guests::echo()).unwrap()).await;
    let behind = Start { deadline: at(-OFF_MS), timeout: seconds(60), ..start(&uri, PURE, "7") };
    assert_output(&rig.execute(behind).await.unwrap().0, "7");
    let ahead = Start { deadline: at(OFF_MS), timeout: seconds(1), ..endless(&rig).await };
    assert_failed(&rig.execute(ahead).await.unwrap().0, OutcomeKind::Timeout, "deadline");
    let negative = Start { timeout: seconds(-1), ..start(&uri, PURE, "7") };
    let status = rig.begin(negative).await.err().unwrap();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    assert!(status.message().contains("timeout"), "{}", status.message());
}

#[tokio::test]
async fn a_call_ends_at_the_longest_wall_clock_whatever_its_deadline() {
    let longest = std::time::Duration::from_secs(1);
    let rig = Rig::with(|config| config.bounds.wall_clock_max = longest).await;
    let message = endless(&rig).await;
    // Compiled first, so that all of the time is the guest's.
    rig.execute(Start { limits: fuel(1), ..message.clone() }).await.unwrap();
    for deadline in [None, within_ms(600_000)] {
        let outcome = rig.execute(Start { deadline, ..message.clone() }).await.unwrap().0;
        assert_failed(&outcome, OutcomeKind::Timeout, "guest ran into its deadline after");
        let took = std::time::Duration::try_from(outcome.duration.unwrap()).unwrap();
        assert!(took >= longest, "{took:?}");
    }
}
