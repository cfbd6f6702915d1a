//! Case P8 and the doors themselves: one decision whichever way a call comes, and every refusal typed.

use broker_svc::api::RECORD;
use proto::{
    broker::v1::{
        CallRecord, DescribeRequest, FetchRequest, ListCallsRequest, MintTokenRequest, RevokeEffectRequest,
        RevokeRunRequest,
    },
    fault::{Reason, attached, reason_of},
};
use tonic::Code;

use crate::{
    doors::{Doors, minting},
    rig::{CANARY, Rig, open},
    upstream::{Upstream, echo, ok, reply},
};

#[tokio::test]
async fn p8_both_doors_refuse_the_same_call_for_the_same_reason() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let (url, rig) = (upstream.http(), Rig::new(&open(&upstream.http())));
    let mut doors = Doors::open(rig.broker.clone()).await;
    let cases = [
        ("https://evil.com/", "GET", None, "host_not_allowed", Code::PermissionDenied, 403),
        ("https://169.254.169.254/", "GET", None, "private_address", Code::PermissionDenied, 403),
        ("https://u:p@evil.com/", "GET", None, "userinfo_not_allowed", Code::InvalidArgument, 400),
        ("nonsense", "GET", None, "invalid_url", Code::InvalidArgument, 400),
        ("ftp://evil.com/", "GET", None, "scheme_not_allowed", Code::PermissionDenied, 403),
        (&url, "TRACE", None, "method_not_allowed", Code::PermissionDenied, 403),
        (&url, "GET", Some("zzz"), "credential_not_granted", Code::PermissionDenied, 403),
    ];
    for (target, method, credential, reason, code, status) in cases {
        let (grpc_token, http_token) = (rig.token(), rig.token());
        let fetch = FetchRequest {
            token: grpc_token,
            url: target.into(),
            method: method.into(),
            credential: credential.map(str::to_owned),
            ..FetchRequest::default()
        };
        let refused = doors.grpc.fetch(fetch).await.unwrap_err();
        let record: CallRecord = attached(&refused, RECORD).unwrap();
        assert_eq!((record.reason.as_str(), refused.code()), (reason, code), "{target}");
        assert_eq!((record.run_id.as_str(), record.door.as_str()), ("run-1", "grpc"));
        let call = serde_json::json!({"url": target, "method": method, "credential": credential});
        let (answered, body) = doors.post(&http_token, &call.to_string()).await;
        assert_eq!(answered, status, "{target}");
        assert_eq!(body["code"], "RUN-E022");
        let newest = doors.grpc.list_calls(ListCallsRequest { page_size: 1, ..Default::default() }).await.unwrap();
        assert_eq!(newest.into_inner().calls[0].reason, reason, "{target}");
        assert!(refused.message().ends_with(body["error"].as_str().unwrap()), "{} / {body}", refused.message());
    }
    assert_eq!(upstream.connections(), 0);
    doors.close().await;
}

#[test]
fn p8_every_method_of_the_service_is_known_and_the_ones_that_call_out_need_a_token() {
    let text = include_str!("../../../proto/areev/broker/v1/broker.proto");
    let service = text.split("service BrokerService {").nth(1).unwrap().split("\n}").next().unwrap();
    let methods: Vec<_> = service.split("  rpc ").skip(1).map(|rest| rest.split('(').next().unwrap()).collect();
    // Those that call out are the ones whose request carries a token; every other one looks at this process alone.
    let (calling, quiet): (Vec<_>, Vec<_>) = methods.into_iter().partition(|method| method.starts_with("Fetch"));
    assert_eq!(quiet, ["MintToken", "RevokeEffect", "RevokeRun", "WatchEffects", "ListCalls", "Describe"]);
    for method in calling {
        let request = text.split(&format!("message {method}Request {{")).nth(1).unwrap().split("\n}").next().unwrap();
        let carries = |request: &str| request.contains("string token = 1;");
        let start = request.contains(&format!("{method}Start start = 1;")).then(|| format!("message {method}Start {{"));
        let inner = start.and_then(|start| text.split(&start).nth(1)?.split("\n}").next());
        let by_call = inner.is_some_and(|inner| inner.contains("FetchRequest call = 1;"));
        assert!(carries(request) || by_call, "{method} calls out without a token");
    }
}

#[tokio::test]
async fn a_token_minted_over_grpc_is_spent_through_either_door() {
    let upstream = Upstream::plain(echo);
    let rig = Rig::new(&open(&upstream.http()));
    let mut doors = Doors::open(rig.broker.clone()).await;
    let minted = doors.grpc.mint_token(minting("n")).await.unwrap().into_inner();
    assert_eq!(minted.egress_url, format!("http://{}", doors.egress));
    assert_eq!(minted.policy_digest, rig.broker.in_force().digest.to_hex());
    let fetch = FetchRequest {
        token: minted.token.clone(),
        url: upstream.http(),
        method: "POST".into(),
        credential: Some("a".into()),
        body: b"{}".to_vec(),
        ordinal: 7,
        ..FetchRequest::default()
    };
    let answer = doors.grpc.fetch(fetch).await.unwrap().into_inner();
    let record = answer.record.unwrap();
    assert_eq!((answer.status, record.ordinal, record.credential.as_str(), record.request_bytes), (200, 7, "a", 2));
    assert_eq!(record.definition_hash, "ab".repeat(32));
    assert!(!String::from_utf8(answer.body).unwrap().contains(CANARY));
    let call = format!(
        r#"{{"url":"{}","method":"POST","credential":"a","body":"{{}}","content_type":"text/plain"}}"#,
        upstream.http()
    );
    let (status, body) = doors.post(&minted.token, &call).await;
    assert_eq!((status, &body["status"]), (200, &200.into()));
    assert!(body["body"].as_str().unwrap().contains("Bearer [redacted]"), "{body}");
    assert!(upstream.requests()[1].contains("content-type: text/plain\r\n"));
    doors.close().await;
}

#[tokio::test]
async fn seed_6_a_tool_without_a_grant_gets_no_token_and_no_address() {
    let rig = Rig::new(&open("https://api.good.com"));
    let mut doors = Doors::open(rig.broker.clone()).await;
    let mut stranger = minting("n");
    stranger.tool_name = "stranger".into();
    let refused = doors.grpc.mint_token(stranger).await.unwrap_err();
    assert_eq!((refused.code(), reason_of(&refused)), (Code::PermissionDenied, Some(Reason::NoGrant)));
    assert!(!format!("{refused:?}").contains(&doors.egress));
    doors.close().await;
}

#[tokio::test]
async fn t6_a_grant_that_is_bound_to_a_definition_is_for_that_definition_alone() {
    let policy = open("https://api.good.com")
        .replace("[grants.t]", &format!("[grants.t]\ndefinitions = [\"{}\"]", "ab".repeat(32)));
    let rig = Rig::new(&policy);
    let mut doors = Doors::open(rig.broker.clone()).await;
    assert!(doors.grpc.mint_token(minting("n")).await.is_ok());
    let mut other = minting("n");
    other.definition_hash = "cd".repeat(32);
    let refused = doors.grpc.mint_token(other).await.unwrap_err();
    assert_eq!((refused.code(), reason_of(&refused)), (Code::PermissionDenied, Some(Reason::NoGrant)));
    // A token that was minted before the binding, or for another definition, is no way around it.
    assert_eq!(rig.why(crate::rig::get("https://api.good.com/")).await.code(), "tool_not_granted");
    doors.close().await;
}

#[tokio::test]
async fn t6_a_mint_that_is_malformed_is_refused_by_its_field() {
    let rig = Rig::new(&open("https://api.good.com"));
    let mut doors = Doors::open(rig.broker.clone()).await;
    type Spoil = fn(&mut MintTokenRequest);
    let cases: [(&str, Spoil); 8] = [
        ("run_id", |request| request.run_id.clear()),
        ("run_id", |request| request.run_id = "x".repeat(129)),
        ("node", |request| request.node = "a\nb".into()),
        ("tool_name", |request| request.tool_name.clear()),
        ("definition_hash", |request| request.definition_hash = "AB".repeat(32)),
        ("idempotency_key", |request| request.idempotency_key = "x".into()),
        ("deadline", |request| request.deadline = None),
        ("capabilities_json", |request| {
            request.capabilities_json = Some(r#"[{"http":{"hosts":["https://*"]}}]"#.into())
        }),
    ];
    for (field, spoil) in cases {
        let mut request = minting("n");
        spoil(&mut request);
        let refused = doors.grpc.mint_token(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains(field), "{field}: {}", refused.message());
    }
    let mut late = minting("n");
    late.deadline = Some((std::time::SystemTime::now() - std::time::Duration::from_secs(1)).into());
    assert_eq!(doors.grpc.mint_token(late).await.unwrap_err().code(), Code::DeadlineExceeded);
    assert_eq!(rig.broker.tokens.live(), 0);
    doors.close().await;
}

#[tokio::test]
async fn t3_revoked_tokens_are_unauthenticated_and_an_ended_run_gets_no_more() {
    let rig = Rig::new(&open("https://api.good.com"));
    let mut doors = Doors::open(rig.broker.clone()).await;
    let first = doors.grpc.mint_token(minting("a")).await.unwrap().into_inner().token;
    let second = doors.grpc.mint_token(minting("b")).await.unwrap().into_inner().token;
    let effect = RevokeEffectRequest { run_id: "run-1".into(), node: "a".into(), attempt: 1, ..Default::default() };
    assert_eq!(doors.grpc.revoke_effect(effect.clone()).await.unwrap().into_inner().revoked, 1);
    assert_eq!(doors.grpc.revoke_effect(effect).await.unwrap().into_inner().revoked, 0);
    let run = RevokeRunRequest { run_id: "run-1".into() };
    assert_eq!(doors.grpc.revoke_run(run).await.unwrap().into_inner().revoked, 1);
    for token in [first, second] {
        let fetch = FetchRequest { token: token.clone(), url: "https://api.good.com".into(), ..Default::default() };
        let refused = doors.grpc.fetch(fetch).await.unwrap_err();
        assert_eq!((refused.code(), reason_of(&refused)), (Code::Unauthenticated, Some(Reason::TokenRefused)));
        assert_eq!(doors.post(&token, r#"{"url":"https://api.good.com"}"#).await.0, 401);
    }
    assert_eq!(doors.grpc.mint_token(minting("c")).await.unwrap_err().code(), Code::PermissionDenied);
    doors.close().await;
}

#[tokio::test]
async fn the_http_door_takes_one_shape_of_request_alone() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let rig = Rig::new(&open(&upstream.http()));
    let doors = Doors::open(rig.broker.clone()).await;
    let token = rig.token();
    let call = format!(r#"{{"url":"{}"}}"#, upstream.http());
    let line = format!("X-Areev-Egress-Token: {token}\r\n");
    let length = format!("Content-Length: {}\r\n", call.len());
    for (request, status) in [
        (format!("GET / HTTP/1.1\r\nHost: b\r\n{line}\r\n"), 400),
        (format!("POST /x HTTP/1.1\r\nHost: b\r\n{line}{length}\r\n{call}"), 400),
        (format!("POST /?token={token} HTTP/1.1\r\nHost: b\r\n{length}\r\n{call}"), 400),
        (format!("POST http://evil.com/ HTTP/1.1\r\nHost: b\r\n{line}{length}\r\n{call}"), 400),
        (format!("CONNECT evil.com:443 HTTP/1.1\r\nHost: b\r\n{line}\r\n"), 400),
        (format!("POST / HTTP/1.1\r\nHost: b\r\n{length}\r\n{call}"), 401),
        (format!("POST / HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer {token}\r\n{length}\r\n{call}"), 401),
        (format!("POST / HTTP/1.1\r\nHost: b\r\n{line}{line}{length}\r\n{call}"), 401),
        (format!("POST / HTTP/1.1\r\nHost: b\r\n{line}Content-Length: 99999999999\r\n\r\n"), 413),
        (format!("POST / HTTP/1.1\r\nHost: b\r\n{line}Content-Length: 4\r\n\r\nnope"), 400),
        (format!("POST / HTTP/1.1\r\nHost: b\r\n{line}{length}\r\n{call}"), 200),
    ] {
        let (answered, body) = doors.raw(&request).await;
        assert_eq!(answered, status, "{request:.120} -> {body}");
        assert!(status == 200 || body["code"] == "RUN-E022", "{body}");
    }
    // A head of a megabyte is not read to its end.
    let huge = format!("POST / HTTP/1.1\r\nHost: b\r\nX-Areev-Egress-Token: {}\r\n\r\n", "x".repeat(1 << 20));
    assert_ne!(doors.raw(&huge).await.0, 200);
    assert_eq!(upstream.requests().len(), 1);
    doors.close().await;
}

#[tokio::test]
async fn r10_the_http_door_hands_on_bytes_that_are_no_text_as_base64() {
    let upstream = Upstream::plain(|_, out| reply(out, "200 OK", &[("ETag", "\"1\"")], &[0, 255]));
    let rig = Rig::new(&open(&upstream.http()));
    let doors = Doors::open(rig.broker.clone()).await;
    let call =
        format!(r#"{{"url":"{}","method":"PUT","body_base64":"AP8=","response_headers":["etag"]}}"#, upstream.http());
    let (_, body) = doors.post(&rig.token(), &call).await;
    assert_eq!(body, serde_json::json!({"status": 200, "body_base64": "AP8=", "headers": {"etag": "\"1\""}}));
    doors.close().await;
}

#[tokio::test]
async fn s5_describe_names_places_and_calls_are_listed_page_by_page() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let rig = Rig::new(&open(&upstream.http()));
    let mut doors = Doors::open(rig.broker.clone()).await;
    let described = doors.grpc.describe(DescribeRequest {}).await.unwrap().into_inner();
    assert!(described.credentials[0].source.starts_with("file:"));
    assert_eq!(described.grants[0].tool, "t");
    assert!(!format!("{described:?}").contains(CANARY));
    let token = rig.token();
    for _ in 0..5 {
        assert_eq!(doors.post(&token, &format!(r#"{{"url":"{}"}}"#, upstream.http())).await.0, 200);
    }
    let (mut seen, mut page) = (Vec::new(), String::new());
    loop {
        let request = ListCallsRequest { run_id: "run-1".into(), page_size: 2, page_token: page };
        let listed = doors.grpc.list_calls(request).await.unwrap().into_inner();
        seen.extend(listed.calls.iter().map(|call| (call.sequence, call.ordinal)));
        page = listed.next_page_token;
        if page.is_empty() {
            break;
        }
    }
    assert_eq!(seen, [(5, 4), (4, 3), (3, 2), (2, 1), (1, 0)]);
    for bad in ["x", "3", "3.0000000000000000"] {
        let request = ListCallsRequest { page_token: bad.into(), ..Default::default() };
        assert_eq!(reason_of(&doors.grpc.list_calls(request).await.unwrap_err()), Some(Reason::BadPageToken));
    }
    doors.close().await;
}

#[tokio::test]
async fn o4_draining_lets_a_call_in_flight_end_and_takes_no_more() {
    let (arrived, mut arrival) = tokio::sync::mpsc::unbounded_channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = parking_lot::Mutex::new(released);
    let upstream = Upstream::plain(move |_, out| {
        arrived.send(()).unwrap();
        let _until_told = released.lock().recv();
        ok(out, "whole")
    });
    let rig = Rig::new(&open(&upstream.http()));
    let doors = Doors::open(rig.broker.clone()).await;
    let (token, egress) = (rig.token(), doors.egress.clone());
    let call = format!(r#"{{"url":"{}"}}"#, upstream.http());
    let request = format!(
        "POST / HTTP/1.1\r\nHost: b\r\nX-Areev-Egress-Token: {token}\r\nContent-Length: {}\r\n\r\n{call}",
        call.len()
    );
    let in_flight = tokio::spawn(async move { crate::doors::exchange(&egress, &request).await });
    arrival.recv().await.unwrap();
    let closing = tokio::spawn(doors.close());
    drop(release);
    assert!(in_flight.await.unwrap().contains("whole"));
    closing.await.unwrap();
}
