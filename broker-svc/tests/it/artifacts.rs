//! Bodies that go by their digest: bounded by declaration and grant, scrubbed, whole or not at all.

use broker_svc::api::RECORD;
use content_digest::Digest;
use proto::{
    broker::v1::{
        CallRecord, CallingEffect, FetchArtifactHead, FetchArtifactRequest, FetchArtifactStart, FetchRequest,
        MintTokenRequest, Spender, fetch_artifact_request::Message, fetch_artifact_response::Message as Answer,
    },
    fault::attached,
};
use tonic::{Code, Status};

use crate::{
    doors::{Doors, minting},
    rig::{CANARY, Rig, open},
    upstream::{Upstream, ok, reply},
};

/// Ceilings of these tests: answers a little over two of the wire's chunks.
const REQUEST_MAX: usize = 300_000;
const ANSWER_MAX: usize = 2_500_000;

fn policy(origin: &str) -> String {
    let ceilings = format!("artifacts = {{ max_request_bytes = {REQUEST_MAX}, max_response_bytes = {ANSWER_MAX} }}");
    open(origin) + &ceilings
}

fn declared(origin: &str) -> String {
    format!(
        r#"[{{"http":{{"hosts":["{origin}"],"methods":["GET","PUT","POST"],"credentials":["a"],"headers":["content-type"],
        "artifacts":{{"max_request_bytes":33554432,"max_response_bytes":33554432}}}}}}]"#
    )
}

/// Bytes that are no text and never the same twice in a row.
fn binary(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// What came back: the head, and the bytes of all chunks.
type Got = Result<(FetchArtifactHead, Vec<u8>), Status>;

async fn fetch(doors: &mut Doors, start: FetchArtifactStart, chunks: &[&[u8]]) -> Got {
    let chunks = chunks.iter().map(|chunk| Message::Chunk(chunk.to_vec().into()));
    let messages: Vec<_> = std::iter::once(Message::Start(start))
        .chain(chunks)
        .map(|message| FetchArtifactRequest { message: Some(message) })
        .collect();
    let mut answer = doors.grpc.fetch_artifact(futures::stream::iter(messages)).await?.into_inner();
    let mut bytes = Vec::new();
    let Some(Answer::Head(head)) = answer.message().await?.and_then(|first| first.message) else { panic!("no head") };
    while let Some(message) = answer.message().await? {
        let Some(Answer::Chunk(chunk)) = message.message else { panic!("no chunk") };
        assert!(chunk.len() <= 1024 * 1024);
        bytes.extend_from_slice(&chunk);
    }
    assert_eq!((head.body_bytes, head.body_ref.as_str()), (bytes.len() as u64, &*Digest::of(&bytes).to_uri()));
    Ok((head, bytes))
}

fn get(token: String, url: &str) -> FetchArtifactStart {
    let call = FetchRequest { token, url: url.to_owned(), credential: Some("a".to_owned()), ..Default::default() };
    FetchArtifactStart { call: Some(call), artifact_answer: true, ..Default::default() }
}

fn put(token: String, url: &str, body: &[u8]) -> FetchArtifactStart {
    let call = FetchRequest { token, url: url.to_owned(), method: "PUT".to_owned(), ..Default::default() };
    let (body_ref, body_bytes) = (Digest::of(body).to_uri(), body.len() as u64);
    FetchArtifactStart { call: Some(call), body_ref, body_bytes, artifact_answer: false }
}

fn reason(refused: &Status) -> String {
    attached::<CallRecord>(refused, RECORD).map(|record| record.reason).unwrap_or_default()
}

#[tokio::test]
async fn an_answer_comes_in_chunks_up_to_its_ceiling_and_not_a_byte_over() {
    for (bytes, announced) in [(ANSWER_MAX, true), (ANSWER_MAX + 1, true), (ANSWER_MAX + 1, false)] {
        let body = binary(bytes);
        let sent = body.clone();
        let upstream = Upstream::plain(move |_, out| {
            if announced {
                return reply(out, "200 OK", &[], &sent);
            }
            // Without a length the end of the connection is the end of the body.
            let sent =
                out.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").and_then(|()| out.write_all(&sent));
            sent.is_err() && announced
        });
        let rig = Rig::new(&policy(&upstream.http()));
        let mut doors = Doors::open(rig.broker.clone()).await;
        let token = rig.declared(&declared(&upstream.http()));
        let got = fetch(&mut doors, get(token, &upstream.http()), &[]).await;
        if bytes > ANSWER_MAX {
            let refused = got.unwrap_err();
            assert_eq!((reason(&refused).as_str(), refused.code()), ("response_too_large", Code::ResourceExhausted));
            assert!(refused.message().contains(&ANSWER_MAX.to_string()), "{}", refused.message());
        } else {
            let (head, got) = got.unwrap();
            assert!(got == body, "other bytes");
            let record = head.record.unwrap();
            assert_eq!((head.status, record.response_bytes), (200, bytes as u64));
            assert_eq!(record.response_digest, Digest::of(&body).to_hex());
        }
        doors.close().await;
    }
}

#[tokio::test]
async fn an_echo_that_lies_across_two_chunks_is_replaced() {
    // The secret begins a few bytes before the first chunk of the wire would end, and lies across the upstream's own pieces too.
    let mut body = vec![b'x'; 1024 * 1024 - 5];
    body.extend_from_slice(CANARY.as_bytes());
    body.extend_from_slice(&[b'y'; 1000]);
    let expected = [&body[..1024 * 1024 - 5], b"[redacted]", &[b'y'; 1000]].concat();
    let upstream = Upstream::plain(move |_, out| reply(out, "200 OK", &[], &body));
    let rig = Rig::new(&policy(&upstream.http()));
    let mut doors = Doors::open(rig.broker.clone()).await;
    let token = rig.declared(&declared(&upstream.http()));
    let (head, got) = fetch(&mut doors, get(token, &upstream.http()), &[]).await.unwrap();
    assert!(got == expected, "{} bytes came", got.len());
    assert_eq!(head.record.unwrap().response_digest, Digest::of(&expected).to_hex());
    doors.close().await;
}

#[tokio::test]
async fn an_encoded_answer_is_refused_as_an_artifact_too() {
    let upstream = Upstream::plain(|_, out| reply(out, "200 OK", &[("Content-Encoding", "gzip")], b"\x1f\x8b"));
    let rig = Rig::new(&policy(&upstream.http()));
    let mut doors = Doors::open(rig.broker.clone()).await;
    let token = rig.declared(&declared(&upstream.http()));
    let refused = fetch(&mut doors, get(token, &upstream.http()), &[]).await.unwrap_err();
    assert_eq!(reason(&refused), "encoded_body");
    doors.close().await;
}

#[tokio::test]
async fn a_request_body_goes_out_whole_with_its_length_and_type_or_not_at_all() {
    let upstream = Upstream::plain(|request, out| ok(out, &request.len().to_string()));
    let rig = Rig::new(&policy(&upstream.http()));
    let mut doors = Doors::open(rig.broker.clone()).await;
    let token = || rig.declared(&declared(&upstream.http()));
    let body: Vec<u8> = std::iter::repeat_n(b"0123456789", REQUEST_MAX / 10).flatten().copied().collect();
    let (head, _) = fetch(&mut doors, put(token(), &upstream.http(), &body), &[&body[..7], &body[7..]]).await.unwrap();
    let sent = upstream.requests().remove(0);
    let (lines, sent_body) = sent.split_once("\r\n\r\n").unwrap();
    assert!(sent_body.as_bytes() == body, "the upstream received other bytes");
    for line in [format!("content-length: {REQUEST_MAX}"), "content-type: application/octet-stream".to_owned()] {
        assert!(lines.to_ascii_lowercase().contains(&line), "{lines}");
    }
    let record = head.record.unwrap();
    assert_eq!((record.request_bytes, record.request_digest), (body.len() as u64, Digest::of(&body).to_hex()));

    let longer = vec![b'z'; REQUEST_MAX + 1];
    let other = [b'z'; 10];
    for (start, chunks, why) in [
        (put(token(), &upstream.http(), &longer), vec![&longer[..]], "request_too_large"),
        (put(token(), &upstream.http(), &body), vec![&body[..100]], "malformed_request"),
        (put(token(), &upstream.http(), &body[..10]), vec![&other[..]], "malformed_request"),
        (put(token(), &upstream.http(), &body[..10]), vec![&body[..11]], "malformed_request"),
    ] {
        let refused = fetch(&mut doors, start, &chunks).await.unwrap_err();
        assert_eq!(reason(&refused), why, "{}", refused.message());
    }
    assert_eq!(upstream.requests().len(), 1, "nothing of a body that is not whole went out");
    doors.close().await;
}

#[tokio::test]
async fn without_a_ceiling_in_both_declaration_and_grant_there_are_no_artifacts() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let origin = upstream.http();
    let silent =
        declared(&origin).replace("artifacts", "credentials_").split("\"credentials_").next().unwrap().to_owned();
    let silent = silent.trim_end().trim_end_matches(',').to_owned() + "}}]";
    for (policy, declaration, words) in
        [(open(&origin), declared(&origin), "not granted to tool \"t\""), (policy(&origin), silent, "not declared")]
    {
        let rig = Rig::new(&policy);
        let mut doors = Doors::open(rig.broker.clone()).await;
        for start in [get(rig.declared(&declaration), &origin), put(rig.declared(&declaration), &origin, b"x")] {
            let refused = fetch(&mut doors, start, &[]).await.unwrap_err();
            assert_eq!((reason(&refused).as_str(), refused.code()), ("artifact_not_allowed", Code::PermissionDenied));
            assert!(refused.message().contains(words), "{}", refused.message());
        }
        // A token of code without a declaration, such as a child process has, is good for none either.
        let refused = fetch(&mut doors, get(rig.token(), &origin), &[]).await.unwrap_err();
        assert_eq!(reason(&refused), "artifact_not_allowed");
        let call = serde_json::json!({"url": origin, "response_mode": "artifact"});
        let (status, body) = doors.post(&rig.token(), &call.to_string()).await;
        assert_eq!((status, &body["code"]), (403, &"RUN-E022".into()));
        assert!(body["error"].as_str().unwrap().contains("modules"), "{body}");
        doors.close().await;
    }
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn t1_a_call_with_an_artifact_is_made_for_the_effect_of_its_token_and_for_no_other() {
    let upstream = Upstream::plain(|_, out| ok(out, "whole"));
    let origin = upstream.http();
    let rig = Rig::new(&policy(&origin));
    let mut doors = Doors::open(rig.broker.clone()).await;
    let own = CallingEffect {
        run_id: "run-1".into(),
        node: "n".into(),
        attempt: 1,
        tool_name: "t".into(),
        definition_hash: "ab".repeat(32),
        ..CallingEffect::default()
    };
    let other = |spoil: fn(&mut CallingEffect)| {
        let mut effect = own.clone();
        spoil(&mut effect);
        Some(effect)
    };
    for (spender, effect, refused) in [
        (Spender::Sandbox, Some(own.clone()), false),
        (Spender::Sandbox, None, true),
        (Spender::Sandbox, other(|effect| effect.run_id = "run-2".into()), true),
        (Spender::Sandbox, other(|effect| effect.node = "m".into()), true),
        (Spender::Sandbox, other(|effect| effect.attempt = 2), true),
        (Spender::Sandbox, other(|effect| effect.tool_name = "u".into()), true),
        (Spender::Sandbox, other(|effect| effect.definition_hash = "cd".repeat(32)), true),
        (Spender::Sandbox, other(|effect| effect.tenant = "x".into()), true),
        // Tokens that were minted for a model or a child process are good for no artifact.
        (Spender::Runner, Some(own.clone()), true),
        (Spender::Child, Some(own.clone()), true),
    ] {
        let mint =
            MintTokenRequest { capabilities_json: Some(declared(&origin)), spender: spender.into(), ..minting("n") };
        let token = doors.grpc.mint_token(mint).await.unwrap().into_inner().token;
        let mut start = get(token, &origin);
        start.call.as_mut().unwrap().effect = effect.clone();
        match fetch(&mut doors, start, &[]).await {
            Ok((_, body)) => assert!(!refused && body == b"whole", "{spender:?} {effect:?}"),
            Err(status) => {
                let told = (reason(&status), status.code(), refused);
                assert_eq!(told, ("token_binding_mismatch".to_owned(), Code::PermissionDenied, true), "{effect:?}");
            }
        }
    }
    assert_eq!(upstream.requests().len(), 1);
    doors.close().await;
}

#[tokio::test]
async fn calls_with_artifacts_share_the_budget_of_bytes_and_give_back_what_they_took() {
    let upstream = Upstream::plain(|_, out| ok(out, "small"));
    let bounds =
        broker_svc::broker::CallBounds { body_bytes_in_flight: ANSWER_MAX as u64 + 2048, ..Default::default() };
    let rig = Rig::bounded(&policy(&upstream.http()), bounds);
    let mut doors = Doors::open(rig.broker.clone()).await;
    let token = || rig.declared(&declared(&upstream.http()));
    // Room for one answer, but not for its request body beside it.
    let mut both = put(token(), &upstream.http(), b"0123456789");
    both.artifact_answer = true;
    both.body_bytes = 4096;
    let refused = fetch(&mut doors, both, &[b"0123456789"]).await.unwrap_err();
    assert_eq!((reason(&refused).as_str(), refused.code()), ("busy", Code::ResourceExhausted));
    for _ in 0..3 {
        let start = get(token(), &upstream.http());
        let room = fetch(&mut doors, start, &[]).await;
        assert_eq!(room.unwrap().1, b"small");
    }
    doors.close().await;
}
