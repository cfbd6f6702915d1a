//! Calls whose body or answer is a blob: the runner makes them, and its word is the guest's answer.

use content_digest::Digest;
use proto::sandbox::v1::{
    ArtifactCall, ArtifactReply, Egress, Exchange, ExecuteRequest, OutcomeKind, Runtime, Start,
    execute_request::Message, execute_response,
};
use tonic::Code;

use crate::{
    broker::FakeBroker,
    caller::Call,
    guests,
    rig::{Rig, assert_failed, assert_output, start},
};

const DOWN: &str = "{\"url\":\"https://api.example.com/1\",\"response_mode\":\"artifact\"}";
const REPLY: &str = "{\"status\":200,\"body_ref\":\"cas://sha256:00\",\"size_bytes\":7}";

/// A guest that makes the calls, in a sandbox whose broker is asked for none of them.
async fn calling(requests: &[&str]) -> (FakeBroker, Rig, Start) {
    let (broker, url) = FakeBroker::echoing().await;
    let rig = Rig::with(|config| config.broker_urls = vec![url]).await;
    let uri = rig.put(&wat::parse_str(guests::fetches(requests)).unwrap()).await;
    let egress = Some(Egress { token: "token".to_owned(), ..Egress::default() });
    (broker, rig, Start { egress, ..start(&uri, Runtime::Wasm32AreevIo, "null") })
}

async fn called(call: &mut Call) -> ArtifactCall {
    match call.next().await.unwrap() {
        execute_response::Message::Artifact(call) => call,
        other => panic!("no call: {other:?}"),
    }
}

async fn answer(call: &Call, ordinal: u32) {
    let reply = ArtifactReply { ordinal, reply_json: REPLY.as_bytes().to_vec() };
    call.requests.send(ExecuteRequest { message: Some(Message::Artifact(reply)) }).await.unwrap();
}

#[tokio::test]
async fn the_caller_makes_the_call_in_the_guests_words_and_its_answer_is_the_guests() {
    let up = format!(
        "{{\"url\":\"https://api.example.com/2\",\"method\":\"PUT\",\"body_ref\":\"{}\"}}",
        Digest::of("").to_uri()
    );
    let (broker, rig, message) = calling(&[DOWN, &up]).await;
    let mut call = rig.begin(message).await.unwrap();
    let first = called(&mut call).await;
    assert_eq!((first.ordinal, first.request_digest), (0, Digest::of(DOWN).to_hex()));
    assert_eq!((first.body_ref.as_str(), first.artifact_answer), ("", true));
    let asked = first.call.unwrap();
    assert_eq!(
        (asked.url.as_str(), asked.token.as_str()),
        ("https://api.example.com/1", ""),
        "the token is not repeated"
    );
    assert_eq!(asked.max_response_bytes, None, "the broker's ceilings hold");
    answer(&call, 0).await;
    let second = called(&mut call).await;
    assert_eq!((second.ordinal, second.body_ref, second.artifact_answer), (1, Digest::of("").to_uri(), false));
    assert_eq!(second.call.unwrap().max_response_bytes, Some(1024 * 1024));
    answer(&call, 1).await;
    let outcome = call.outcome().await;
    assert_output(&outcome, REPLY);
    assert_eq!((outcome.calls, broker.asked.lock().len()), (2, 0), "they count, and this sandbox's broker saw none");
}

#[tokio::test]
async fn a_recorded_call_is_answered_from_the_record_and_not_made() {
    let (_broker, rig, message) = calling(&[DOWN]).await;
    let request_digest = Digest::of(DOWN).to_hex();
    let recorded = Exchange { request_digest, reply_json: REPLY.into(), ..Exchange::default() };
    let mut call = rig.begin(Start { recorded: vec![recorded], ..message }).await.unwrap();
    assert_output(&call.outcome().await, REPLY);
}

#[tokio::test]
async fn without_a_token_it_is_refused_and_recorded_like_any_other() {
    let (_broker, rig, message) = calling(&[DOWN]).await;
    let mut call = rig.begin(Start { egress: None, ..message }).await.unwrap();
    let exchange = call.exchange().await;
    assert!(String::from_utf8_lossy(&exchange.reply_json).contains("no credential broker"), "{exchange:?}");
    call.ack(0).await;
    call.outcome().await;
}

#[tokio::test]
async fn an_answer_that_was_not_awaited_breaks_the_protocol_and_a_caller_that_leaves_ends_the_effect() {
    let (_broker, rig, message) = calling(&[DOWN]).await;
    let mut call = rig.begin(message.clone()).await.unwrap();
    called(&mut call).await;
    answer(&call, 1).await;
    assert_eq!(call.next().await.unwrap_err().code(), Code::InvalidArgument);

    let mut call = rig.begin(message).await.unwrap();
    called(&mut call).await;
    let (requests, _) = tokio::sync::mpsc::channel(1);
    drop(std::mem::replace(&mut call.requests, requests));
    assert_failed(&call.outcome().await, OutcomeKind::Canceled, "call with artifacts");
}
