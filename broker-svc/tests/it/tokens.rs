//! Case group T, beyond what the tokens' own tests show: revocation in flight, floods, other brokers' tokens.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use broker_svc::{api::RECORD, broker::Request, refusal::Why, token::Ceilings};
use parking_lot::Mutex;
use proto::{
    broker::v1::{CallRecord, CallingEffect, FetchRequest, ListCallsRequest, Spender},
    fault::attached,
};
use tonic::Code;

use crate::{
    doors::{Doors, minting},
    rig::{Rig, get, open, why},
    upstream::{Upstream, ok, reply},
};

#[tokio::test]
async fn t3_revoking_ends_the_call_that_is_in_flight() {
    let (arrived, arrival) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (arrived, released) = (Mutex::new(arrived), Mutex::new(released));
    let upstream = Upstream::plain(move |_, out| {
        arrived.lock().send(()).unwrap();
        let _until_the_test_ends = released.lock().recv();
        ok(out, "late")
    });
    let rig = Arc::new(Rig::new(&open(&upstream.http())));
    let token = rig.token();
    let call = tokio::spawn({
        let (rig, token, url) = (Arc::clone(&rig), token.clone(), upstream.http());
        async move { why(rig.call_with(&token, get(url)).await) }
    });
    tokio::task::spawn_blocking(move || arrival.recv_timeout(Duration::from_secs(30)).unwrap()).await.unwrap();
    assert_eq!(rig.broker.tokens.revoke_run("run-1"), 1);
    assert_eq!(call.await.unwrap(), Why::CallCut);
    assert_eq!(why(rig.call_with(&token, get(upstream.http())).await), Why::TokenRevoked);
    drop(release);
}

#[tokio::test]
async fn t3_writing_calls_that_went_out_and_were_cut_have_a_record_each_that_says_so() {
    let upstream = Upstream::plain(|_, _| true);
    let rig = Arc::new(Rig::new(&open(&upstream.http())));
    let token = rig.token();
    let calls: Vec<_> = (0..2)
        .map(|_| {
            let (rig, token, url) = (Arc::clone(&rig), token.clone(), upstream.http());
            let request = Request { method: "POST".into(), body: "{}".into(), ..get(url) };
            tokio::spawn(async move { why(rig.call_with(&token, request).await) })
        })
        .collect();
    while upstream.requests().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(rig.broker.tokens.revoke_run("run-1"), 1);
    for call in calls {
        assert_eq!(call.await.unwrap(), Why::CallCut);
    }
    let records = rig.broker.audit.list("run-1", u64::MAX, 10);
    let said: Vec<_> = records.iter().map(|record| (record.why, record.went_out, record.refused())).collect();
    assert_eq!(said, [(Some(Why::CallCut), true, None); 2]);
    // What never left is a refusal still, and one record tells of all.
    for _ in 0..3 {
        assert_eq!(why(rig.call_with(&token, get(upstream.http())).await), Why::TokenRevoked);
    }
}

#[tokio::test]
async fn a_call_without_a_connection_did_not_go_out() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let rig = Rig::new(&open(&format!("http://{gone}")));
    let denied = rig.call(get(format!("http://{gone}"))).await.err().unwrap();
    assert_eq!((denied.refusal.why, denied.record.went_out), (Why::ConnectFailed, false));
}

#[tokio::test]
async fn calls_that_went_out_and_were_refused_on_the_way_have_a_record_each() {
    let upstream = Upstream::plain(|_, out| reply(out, "302 Found", &[("Location", "https://elsewhere.com/")], b""));
    let rig = Rig::new(&open(&upstream.http()));
    let token = rig.token();
    for _ in 0..2 {
        assert_eq!(why(rig.call_with(&token, get(upstream.http())).await), Why::HostNotAllowed);
    }
    assert_eq!(rig.broker.audit.list("run-1", u64::MAX, 10).len(), 2);
}

#[tokio::test]
async fn t3_t4_another_brokers_token_is_no_token() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let (one, other) = (Rig::new(&open(&upstream.http())), Rig::new(&open(&upstream.http())));
    assert_eq!(why(one.call_with(&other.token(), get(upstream.http())).await), Why::TokenInvalid);
    for bad in ["", "x", "eyJhbGciOiJub25lIn0.e30.", &"x".repeat(1 << 20)] {
        assert_eq!(why(one.call_with(bad, get(upstream.http())).await), Why::TokenInvalid);
    }
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn t5_a_flood_of_wrong_tokens_is_limited_leaves_few_records_and_good_callers_alone() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let rig = Rig::new(&open(&upstream.http()));
    let token = rig.token();
    let (mut invalid, mut limited) = (0, 0);
    for n in 0..10_000 {
        match why(rig.call_with(&format!("{token}{n}"), get(upstream.http())).await) {
            Why::TokenInvalid => invalid += 1,
            Why::AuthLimited => limited += 1,
            other => panic!("{other:?}"),
        }
        if n % 1000 == 0 {
            assert!(rig.call_with(&token, get(upstream.http())).await.is_ok());
        }
    }
    assert!(invalid > 0 && limited > invalid, "{invalid} in full, {limited} shortly");
    let refused = rig.broker.audit.list("", u64::MAX, 1000).iter().filter(|record| record.why.is_some()).count();
    assert_eq!(refused, 2, "one record for the wrong tokens, one for their flood");
}

#[tokio::test]
async fn t2_an_expired_token_is_refused_and_a_call_never_outlives_it() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let rig = Rig::new(&open(&upstream.http()));
    let token = rig.token_of(None, Ceilings::default(), Duration::from_millis(1));
    let outcome = loop {
        match rig.call_with(&token, get(upstream.http())).await {
            Ok(_) => {}
            Err(denied) if denied.refusal.why == Why::DeadlineExceeded => {}
            Err(denied) => break denied.refusal.why,
        }
    };
    assert!(matches!(outcome, Why::TokenExpired | Why::TokenRevoked), "{outcome:?}");
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_a_record() {
    let upstream = Upstream::plain(|_, _| true);
    let rig = Rig::new(&open(&upstream.http()));
    let token = rig.token();
    tokio::select! {
        _ = rig.call_with(&token, get(upstream.http())) => panic!("the upstream never answers"),
        () = async { while upstream.requests().is_empty() { tokio::task::yield_now().await } } => {}
    }
    let records = rig.broker.audit.list("run-1", u64::MAX, 10);
    assert_eq!(records.iter().map(|record| record.why).collect::<Vec<_>>(), [Some(Why::CallerGone)]);
}

#[tokio::test]
async fn t01_a_token_that_another_tool_run_step_or_tenant_shows_is_refused_and_the_record_says_so() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let rig = Rig::new(&open(&upstream.http()));
    let mut doors = Doors::open(rig.broker.clone()).await;
    let mut request = minting("n");
    (request.tenant, request.spender) = ("tenant-a".into(), Spender::Sandbox.into());
    let token = doors.grpc.mint_token(request.clone()).await.unwrap().into_inner().token;
    let own = CallingEffect {
        run_id: request.run_id,
        node: request.node,
        attempt: request.attempt,
        tool_name: request.tool_name,
        definition_hash: request.definition_hash,
        tenant: request.tenant,
        ..CallingEffect::default()
    };
    let fetch = |effect| FetchRequest { token: token.clone(), url: upstream.http(), effect, ..FetchRequest::default() };
    let others = [
        ("tool", Some(CallingEffect { tool_name: "u".into(), ..own.clone() })),
        ("run", Some(CallingEffect { run_id: "run-2".into(), ..own.clone() })),
        ("node", Some(CallingEffect { node: "m".into(), ..own.clone() })),
        ("attempt", Some(CallingEffect { attempt: 2, ..own.clone() })),
        ("tenant", Some(CallingEffect { tenant: "tenant-b".into(), ..own.clone() })),
        ("effect", None),
    ];
    for (part, effect) in others {
        let refused = doors.grpc.fetch(fetch(effect)).await.unwrap_err();
        let record: CallRecord = attached(&refused, RECORD).unwrap();
        assert_eq!((refused.code(), record.reason.as_str()), (Code::PermissionDenied, "token_binding_mismatch"));
        assert!(refused.message().contains(&format!("another {part}")), "{}", refused.message());
        assert_eq!((record.node.as_str(), record.tool_name.as_str()), ("n", "t"), "whose token it was");
        let newest = ListCallsRequest { page_size: 1, ..Default::default() };
        let newest = doors.grpc.list_calls(newest).await.unwrap().into_inner().calls;
        assert_eq!(newest[0].reason, "token_binding_mismatch");
    }
    // A child process is no sandbox.
    assert_eq!(doors.post(&token, &format!("{{\"url\":\"{}\"}}", upstream.http())).await.0, 403);
    assert_eq!(upstream.connections(), 0);
    assert_eq!(doors.grpc.fetch(fetch(Some(own))).await.unwrap().into_inner().status, 200);
    doors.close().await;
}
