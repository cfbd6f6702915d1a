//! Brokered calls: made durable before the guest sees them, replayed, bounded, refused.

use content_digest::Digest;
use proto::{
    broker::v1::{CallRecord, FetchResponse},
    fault::{Domain, Fault, Reason, attach},
    sandbox::v1::{Egress, Exchange, Limits, OutcomeKind, Runtime, Start, execute_response::Message},
};

use crate::{
    broker::FakeBroker,
    guests,
    rig::{Rig, assert_failed, assert_output, start, until, within_ms},
};

const IO: Runtime = Runtime::Wasm32AreevIo;
const ONE: &str = "{\"url\":\"https://api.example.com/1\"}";
const TWO: &str = "{\"url\":\"https://api.example.com/2\",\"method\":\"POST\",\"credential\":\"gmail\",\"headers\":{\"x-a\":\"b\"},\"body\":\"hi\"}";
const TOKEN: &str = "token-that-nobody-may-log";

async fn rig(url: &str) -> Rig {
    Rig::with(|config| config.broker_urls = vec![url.to_owned()]).await
}

async fn granted(rig: &Rig, wat: &str) -> Start {
    let uri = rig.put(&wat::parse_str(wat).unwrap()).await;
    // Compiled now, so that no deadline has to wait for it.
    let digest = Digest::from_uri(&uri).unwrap();
    rig.sandbox.modules.code(digest, rig.sandbox.modules.bytes(&digest), "").await.unwrap();
    Start { egress: Some(Egress { token: TOKEN.to_owned(), ..Egress::default() }), ..start(&uri, IO, "null") }
}

#[tokio::test]
async fn each_exchange_is_acknowledged_before_the_guest_sees_its_answer() {
    let (broker, url) = FakeBroker::echoing().await;
    let rig = rig(&url).await;
    let mut call = rig.begin(granted(&rig, &guests::fetches(&[ONE, TWO])).await).await.unwrap();
    let first = call.exchange().await;
    assert_eq!((first.ordinal, first.request_digest), (0, Digest::of(ONE).to_hex()));
    assert_eq!(first.reply_json, r#"{"status":200,"body":" https://api.example.com/1"}"#);
    // The guest waits for the acknowledgement: it has not asked a second time, and there is no outcome.
    assert_eq!(broker.asked.lock().len(), 1);
    assert_eq!(rig.sandbox.admission.running(), 1);
    call.ack(0).await;
    let second = call.exchange().await;
    assert_eq!((second.ordinal, broker.asked.lock().len()), (1, 2));
    call.ack(1).await;
    let outcome = call.outcome().await;
    assert_output(&outcome, r#"{"status":200,"body":"POST https://api.example.com/2"}"#);
    assert_eq!(outcome.calls, 2);

    let asked = broker.asked.lock().clone();
    let sent = &asked[1];
    assert_eq!((sent.token.as_str(), sent.ordinal, sent.max_response_bytes), (TOKEN, 1, Some(1024 * 1024)));
    assert_eq!((sent.credential.as_deref(), &sent.body[..]), (Some("gmail"), &b"hi"[..]));
    assert_eq!((sent.headers[0].name.as_str(), sent.headers[0].value.as_str()), ("x-a", "b"));
    let stat = rig.stat(&Digest::of(wat::parse_str(guests::fetches(&[ONE, TWO])).unwrap()).to_uri()).await;
    assert!(stat.last_execution.unwrap().fetch_linked);
}

#[tokio::test]
async fn recorded_exchanges_are_answered_first_and_are_not_asked_or_sent_again() {
    let (broker, url) = FakeBroker::echoing().await;
    let rig = rig(&url).await;
    let mut message = granted(&rig, &guests::fetches(&[ONE, TWO])).await;
    message.recorded = vec![Exchange {
        ordinal: 0,
        request_digest: Digest::of(ONE).to_hex(),
        reply_json: b"{\"status\":200,\"body\":\"recorded\"}".to_vec().into(),
        record: None,
    }];
    let (outcome, exchanges) = rig.execute(message.clone()).await.unwrap();
    assert_output(&outcome, r#"{"status":200,"body":"POST https://api.example.com/2"}"#);
    assert_eq!((exchanges.len(), exchanges[0].ordinal, outcome.calls), (1, 1, 2));
    assert_eq!(broker.asked.lock().len(), 1);

    message.recorded[0].request_digest = Digest::of(TWO).to_hex();
    let (outcome, exchanges) = rig.execute(message.clone()).await.unwrap();
    assert_failed(&outcome, OutcomeKind::Abi, "replay diverged: brokered call 0");
    assert!(exchanges.is_empty());

    message.recorded[0].ordinal = 1;
    let status = rig.execute(message).await.unwrap_err();
    assert!(status.message().contains("recorded"), "{status:?}");
}

#[tokio::test]
async fn a_refusal_reaches_the_guest_with_its_code_and_the_runner_with_its_record() {
    let (_, url) = FakeBroker::serve(|request| {
        let record =
            CallRecord { host: "api.example.com".to_owned(), ordinal: request.ordinal, ..CallRecord::default() };
        let status =
            Fault::new(Reason::EgressRefused, "api.example.com is not in allow_hosts").into_status(Domain::Broker);
        Some(Err(attach(status, "areev.broker.v1.CallRecord", &record)))
    })
    .await;
    let rig = rig(&url).await;
    let (outcome, exchanges) = rig.execute(granted(&rig, &guests::fetches(&[ONE])).await).await.unwrap();
    assert_output(&outcome, r#"{"error":"api.example.com is not in allow_hosts","code":"RUN-E022"}"#);
    assert_eq!(exchanges[0].record.as_ref().unwrap().host, "api.example.com");
}

#[tokio::test]
async fn without_a_token_or_a_broker_the_guest_is_told_why() {
    let rig = Rig::new().await;
    let outcome = rig.run(&guests::fetches(&[ONE]), IO, "null").await;
    assert!(outcome.output_json.contains("no credential broker"), "{outcome:?}");
    assert!(outcome.output_json.contains("\"code\":\"RUN-E022\""), "{outcome:?}");
    let (outcome, exchanges) = rig.execute(granted(&rig, &guests::fetches(&[ONE])).await).await.unwrap();
    assert!(outcome.output_json.contains("--broker-url"), "{outcome:?}");
    assert_eq!(exchanges.len(), 1, "an answer that depends on the surroundings is journaled");
}

#[tokio::test]
async fn o03_a_broker_that_is_down_is_a_typed_error_for_the_guest() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let rig = rig(&format!("http://127.0.0.1:{port}")).await;
    let (outcome, _) = rig.execute(granted(&rig, &guests::fetches(&[ONE])).await).await.unwrap();
    assert!(outcome.output_json.contains("broker cannot be reached"), "{outcome:?}");
    assert!(!outcome.output_json.contains(&port.to_string()) && !outcome.output_json.contains(TOKEN), "{outcome:?}");
}

#[tokio::test]
async fn o03_a_broker_that_goes_away_in_the_middle_of_a_call_is_a_typed_error_and_is_not_asked_again() {
    let (broker, url) = FakeBroker::serve(|_| None).await;
    let behind = url.trim_start_matches("http://").to_owned();
    let before = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rig = rig(&format!("http://{}", before.local_addr().unwrap())).await;
    // What stands before the broker cuts every connection once a call went through.
    let asked = std::sync::Arc::clone(&broker.asked);
    tokio::spawn(async move {
        loop {
            let mut caller = before.accept().await.unwrap().0;
            let mut broker = tokio::net::TcpStream::connect(&behind).await.unwrap();
            let called = until("it was asked", || !asked.lock().is_empty());
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut caller, &mut broker) => {}
                () = called => {}
            }
        }
    });
    let (outcome, exchanges) = rig.execute(granted(&rig, &guests::fetches(&[TWO])).await).await.unwrap();
    assert!(outcome.output_json.contains("\"error\":\"") && !outcome.output_json.contains(TOKEN), "{outcome:?}");
    assert_eq!((exchanges.len(), broker.asked.lock().len()), (1, 1));
}

#[tokio::test]
async fn answers_and_requests_over_their_bounds_are_typed_errors_and_never_cut() {
    let (broker, url) = FakeBroker::serve(|request| {
        let bytes = if request.url.ends_with('1') { 4097 } else { 4096 };
        let body = vec![b'x'; bytes];
        Some(Ok(FetchResponse { status: 200, body, ..FetchResponse::default() }))
    })
    .await;
    let rig = rig(&url).await;
    let limits = |response, request| {
        Some(Limits { max_response_bytes: Some(response), max_request_bytes: Some(request), ..Limits::default() })
    };
    let message = granted(&rig, &guests::fetches(&[ONE])).await;
    let (outcome, _) = rig.execute(Start { limits: limits(4096, 0), ..message }).await.unwrap();
    assert!(outcome.output_json.contains("4097 bytes, over the 4096"), "{outcome:?}");
    let message = granted(&rig, &guests::fetches(&[TWO])).await;
    let (outcome, _) = rig.execute(Start { limits: limits(4096, 2), ..message.clone() }).await.unwrap();
    assert!(outcome.output_json.starts_with("{\"status\":200,\"body\":\"xxxx"), "{outcome:?}");
    let asked = broker.asked.lock().len();
    let (outcome, _) = rig.execute(Start { limits: limits(4096, 1), ..message }).await.unwrap();
    assert!(outcome.output_json.contains("2 bytes, over the 1"), "{outcome:?}");
    assert_eq!(broker.asked.lock().len(), asked, "the broker was not asked");
}

#[tokio::test]
async fn a_request_and_a_reply_that_are_over_the_cap_of_an_output_as_json_are_typed_errors() {
    const CAP: usize = 2048;
    // Each of them is six bytes long in JSON.
    const CONTROLS: usize = 400;
    let (broker, url) = FakeBroker::serve(|request| {
        let body = if request.url.ends_with('1') { vec![1; CONTROLS] } else { b"short".to_vec() };
        Some(Ok(FetchResponse { status: 200, body, ..FetchResponse::default() }))
    })
    .await;
    let rig = Rig::with(|config| {
        config.broker_urls = vec![url.clone()];
        config.bounds.output_bytes_max = CAP;
    })
    .await;
    let padded = |bytes: usize| format!("{TWO}{}", " ".repeat(bytes - TWO.len()));
    let (outcome, exchanges) = rig.execute(granted(&rig, &guests::fetches(&[&padded(CAP + 1)])).await).await.unwrap();
    assert!(outcome.output_json.contains("the fetch request has 2049 bytes, over the 2048"), "{outcome:?}");
    assert!(exchanges.is_empty() && broker.asked.lock().is_empty(), "nobody was asked");
    let (outcome, _) = rig.execute(granted(&rig, &guests::fetches(&[&padded(CAP)])).await).await.unwrap();
    assert_output(&outcome, r#"{"status":200,"body":"short"}"#);

    let (outcome, exchanges) = rig.execute(granted(&rig, &guests::fetches(&[ONE])).await).await.unwrap();
    let text = format!("bytes as JSON, over the {CAP} that it may have");
    assert!(outcome.output_json.contains(&text), "{outcome:?}");
    assert_eq!(exchanges[0].reply_json, outcome.output_json.as_bytes(), "what the guest is told is recorded");
}

#[tokio::test]
async fn w04_calls_past_the_budget_are_typed_errors() {
    let (broker, url) = FakeBroker::echoing().await;
    let rig = rig(&url).await;
    let mut message = granted(&rig, &guests::fetches(&[ONE, ONE, ONE])).await;
    message.limits = Some(Limits { max_calls: Some(2), ..Limits::default() });
    let (outcome, exchanges) = rig.execute(message).await.unwrap();
    assert!(outcome.output_json.contains("the 2 outbound calls of this effect are spent"), "{outcome:?}");
    assert_eq!((exchanges.len(), outcome.calls, broker.asked.lock().len()), (2, 2, 2));
}

#[tokio::test]
async fn w04_a_guest_blocked_in_a_fetch_ends_at_its_deadline_and_the_call_is_aborted() {
    let (broker, url) = FakeBroker::serve(|_| None).await;
    let rig = rig(&url).await;
    let mut message = granted(&rig, &guests::fetches(&[ONE])).await;
    message.deadline = within_ms(1_000);
    let (outcome, _) = rig.execute(message).await.unwrap();
    // The broker's answer "too late" and the deadline itself race; either way the effect has ended.
    if outcome.kind() != OutcomeKind::Completed {
        assert_failed(&outcome, OutcomeKind::Timeout, "deadline");
    } else {
        assert!(outcome.output_json.contains("deadline"), "{outcome:?}");
    }
    until("the call is aborted", || *broker.abandoned.lock() == 1).await;
    assert_eq!(rig.sandbox.admission.running(), 0);
}

#[tokio::test]
async fn a_guest_whose_exchange_is_never_acknowledged_ends_at_its_deadline() {
    let (_, url) = FakeBroker::echoing().await;
    let rig = rig(&url).await;
    let mut message = granted(&rig, &guests::fetches(&[ONE])).await;
    message.deadline = within_ms(1_000);
    let mut call = rig.begin(message).await.unwrap();
    call.exchange().await;
    assert_failed(&call.outcome().await, OutcomeKind::Timeout, "deadline");
}

#[tokio::test]
async fn an_acknowledgement_that_was_not_awaited_breaks_the_call() {
    let (_, url) = FakeBroker::echoing().await;
    let rig = rig(&url).await;
    let mut call = rig.begin(granted(&rig, &guests::fetches(&[ONE])).await).await.unwrap();
    call.exchange().await;
    call.ack(7).await;
    assert_failed(&call.outcome().await, OutcomeKind::Canceled, "exchange 7");
}

#[tokio::test]
async fn w17_canceling_a_guest_in_a_fetch_aborts_the_call_and_frees_the_slot() {
    let (broker, url) = FakeBroker::serve(|_| None).await;
    let rig = rig(&url).await;
    let call = rig.begin(granted(&rig, &guests::fetches(&[ONE])).await).await.unwrap();
    until("the broker was asked", || broker.asked.lock().len() == 1).await;
    drop(call);
    until("the call is aborted", || *broker.abandoned.lock() == 1).await;
    until("the slot is free", || rig.sandbox.admission.running() == 0).await;
}

#[tokio::test]
async fn bytes_that_are_not_text_reach_the_guest_whole() {
    let (_, url) =
        FakeBroker::serve(|_| Some(Ok(FetchResponse { status: 204, body: vec![0xff, 0], ..FetchResponse::default() })))
            .await;
    let rig = rig(&url).await;
    let mut call = rig.begin(granted(&rig, &guests::fetches(&[ONE])).await).await.unwrap();
    let Message::Exchange(exchange) = call.next().await.unwrap() else { panic!("an exchange comes first") };
    call.ack(exchange.ordinal).await;
    assert_output(&call.outcome().await, r#"{"status":204,"body_base64":"/wA="}"#);
}

#[tokio::test]
async fn an_exchange_that_can_no_longer_be_acknowledged_ends_the_effect() {
    let (_broker, url) = FakeBroker::echoing().await;
    let rig = rig(&url).await;
    let message = granted(&rig, &guests::fetches(&[ONE])).await;
    let mut call = rig.begin(message).await.unwrap();
    let crate::rig::Call { requests, replies } = call;
    drop(requests);
    let (requests, _) = tokio::sync::mpsc::channel(1);
    call = crate::rig::Call { requests, replies };
    // What the broker did is told all the same.
    assert_eq!(call.exchange().await.ordinal, 0);
    let outcome = call.outcome().await;
    assert_failed(&outcome, OutcomeKind::Canceled, "ended its stream before exchange 0 was acknowledged");
    until("its slot is free", || rig.sandbox.admission.running() == 0).await;
}

#[tokio::test]
async fn w04_a_guest_that_loops_after_its_fetch_ends_at_its_deadline_all_the_same() {
    let (_broker, url) = FakeBroker::echoing().await;
    let rig = rig(&url).await;
    let data = format!("(data (i32.const 1024) \"{}\")", ONE.escape_default());
    let body = format!("(drop (call $fetch (i32.const 1024) (i32.const {}))) (loop $again (br $again))", ONE.len());
    let mut message = granted(&rig, &guests::io(&data, &body)).await;
    message.limits = Some(Limits { fuel: Some(u64::MAX), ..Limits::default() });
    message.deadline = within_ms(1_000);
    let (outcome, _) = rig.execute(message).await.unwrap();
    assert_failed(&outcome, OutcomeKind::Timeout, "deadline");
    assert_eq!(rig.sandbox.admission.running(), 0);
}
