//! Many at once: a slow upstream holds nobody else up, a slow caller keeps nothing, a panic takes nothing with it.

use std::{
    io::Write as _,
    sync::{Arc, Barrier},
    time::{Duration, Instant},
};

use broker_svc::broker::{CallBounds, Request};
use proto::broker::v1::FetchRequest;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    doors::{Doors, exchange},
    rig::{Rig, get, open, with},
    upstream::{Upstream, echo, ok},
};

const PATIENCE: Duration = Duration::from_secs(60);

/// A policy for two upstreams.
fn both(one: &str, other: &str) -> String {
    open(one).replace(&format!("[\"{one}\"]"), &format!("[\"{one}\", \"{other}\"]"))
}

#[tokio::test(flavor = "multi_thread")]
async fn four_fetches_of_a_slow_upstream_end_together_and_a_fast_one_beside_them_does_not_wait() {
    let (arrived, mut arrival) = tokio::sync::mpsc::unbounded_channel();
    // It answers only when all four are there and the test lets them go: in a row they would never end.
    let gate = Arc::new(Barrier::new(5));
    let held = Arc::clone(&gate);
    let slow = Upstream::plain(move |_, out| {
        arrived.send(()).unwrap();
        held.wait();
        ok(out, "slow")
    });
    let fast = Upstream::plain(|_, out| ok(out, "fast"));
    let rig = Rig::new(&both(&slow.http(), &fast.http()));
    let doors = Doors::open(rig.broker.clone()).await;
    // One effect, one module: its calls are parallel too. Two through each door.
    let token = rig.token();
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..4 {
        let (mut grpc, egress) = (doors.grpc.clone(), doors.egress.clone());
        let (token, url) = (token.clone(), slow.http());
        calls.spawn(async move {
            if n % 2 == 0 {
                let fetch = FetchRequest { token, url, credential: Some("a".into()), ordinal: n, ..Default::default() };
                return String::from_utf8(grpc.fetch(fetch).await.unwrap().into_inner().body).unwrap();
            }
            let call = format!("{{\"url\":\"{url}\",\"credential\":\"a\"}}");
            let head = format!("Host: b\r\nX-Areev-Egress-Token: {token}\r\nContent-Length: {}\r\n", call.len());
            exchange(&egress, &format!("POST / HTTP/1.1\r\n{head}\r\n{call}")).await
        });
    }
    for _ in 0..4 {
        tokio::time::timeout(PATIENCE, arrival.recv()).await.unwrap().unwrap();
    }
    // All four wait now; calls beside them go through, with and without the same credential.
    for _ in 0..50 {
        let done = tokio::time::timeout(PATIENCE, rig.call(with(fast.http(), "a"))).await.unwrap().ok().unwrap();
        assert_eq!(done.body, b"fast");
        assert_eq!(rig.call(get(fast.http())).await.ok().unwrap().body, b"fast");
    }
    assert!(calls.try_join_next().is_none(), "no slow call has ended");
    tokio::task::spawn_blocking(move || gate.wait()).await.unwrap();
    while let Some(body) = calls.join_next().await {
        assert!(body.unwrap().contains("slow"));
    }
    assert_eq!(slow.requests().len(), 4);
    doors.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r8_sixty_four_calls_with_the_largest_body_stay_within_one_budget() {
    let megabyte = "x".repeat(1 << 20);
    let upstream = Upstream::plain(move |_, out| ok(out, &megabyte));
    let bounds = CallBounds { body_bytes_in_flight: 8 * 1024 * 1024 + 64 * 1024, ..CallBounds::default() };
    let rig = Arc::new(Rig::bounded(&open(&upstream.http()), bounds));
    let gate = Arc::new(tokio::sync::Barrier::new(64));
    let calls: Vec<_> = (0..64)
        .map(|_| {
            let (rig, gate, url) = (Arc::clone(&rig), Arc::clone(&gate), upstream.http());
            tokio::spawn(async move {
                let made = rig.call(Request { max_response_bytes: Some(1 << 20), ..get(url) }).await;
                // Those that were answered hold their bytes until all were asked.
                gate.wait().await;
                made.map(|done| done.body.len()).map_err(|denied| denied.refusal.why)
            })
        })
        .collect();
    let mut answered = 0;
    for call in calls {
        match call.await.unwrap() {
            Ok(bytes) => {
                assert_eq!(bytes, 1 << 20);
                answered += 1;
            }
            Err(why) => assert_eq!(why.code(), "busy"),
        }
    }
    assert_eq!(answered, 8, "as many as the budget has room for");
    assert!(rig.call(get(upstream.http())).await.is_ok(), "what was held is free again");
}

#[tokio::test]
async fn s4_a_panic_under_a_call_tells_no_secret_and_the_process_goes_on() {
    let upstream = Upstream::tls(echo);
    let url = upstream.https("api.good.com");
    let rig = Rig::new(&open(&url));
    rig.panics("api.good.com");
    let mut doors = Doors::open(rig.broker.clone()).await;
    let (token, call) = (rig.token(), format!("{{\"url\":\"{url}\",\"credential\":\"a\"}}"));
    let fetch =
        || FetchRequest { token: token.clone(), url: url.clone(), credential: Some("a".into()), ..Default::default() };
    let head = format!("Host: b\r\nX-Areev-Egress-Token: {token}\r\nContent-Length: {}\r\n", call.len());
    let request = format!("POST / HTTP/1.1\r\n{head}\r\n{call}");
    let said =
        format!("{:?} {}", doors.grpc.fetch(fetch()).await.unwrap_err(), exchange(&doors.egress, &request).await);
    assert!(!said.contains("canary"), "{said}");
    assert_eq!(upstream.connections(), 0);
    rig.name("api.good.com", &[&["127.0.0.1"]]);
    assert_eq!(doors.grpc.fetch(fetch()).await.unwrap().into_inner().status, 200);
    assert!(exchange(&doors.egress, &request).await.starts_with("HTTP/1.1 200"));
    doors.close().await;
}

#[tokio::test]
async fn callers_that_dawdle_hold_nobody_up_and_are_let_go() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let rig = Rig::new(&open(&upstream.http()));
    let doors = Doors::open(rig.broker.clone()).await;
    // Half a head, half a body, nothing at all: each holds a connection open.
    let mut slow = Vec::new();
    for begun in ["", "POST / HTTP/1.1\r\nHost: b\r\nX-Areev", "POST / HTTP/1.1\r\nHost: b\r\nX-Areev-Egress-Token: "] {
        for _ in 0..20 {
            let mut stream = tokio::net::TcpStream::connect(&doors.egress).await.unwrap();
            stream.write_all(begun.as_bytes()).await.unwrap();
            slow.push(stream);
        }
    }
    let call = format!("{{\"url\":\"{}\"}}", upstream.http());
    for _ in 0..20 {
        assert_eq!(doors.post(&rig.token(), &call).await.0, 200);
    }
    // The door closes them by itself.
    let begun = Instant::now();
    for mut stream in slow {
        let mut rest = Vec::new();
        let _reset = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("the door lets go");
        assert!(begun.elapsed() < PATIENCE);
    }
    doors.close().await;
}

#[tokio::test]
async fn a_body_that_the_door_will_refuse_is_not_read() {
    let rig = Rig::new(&open("https://api.good.com"));
    let doors = Doors::open(rig.broker.clone()).await;
    for (token, length, status) in [
        // A wrong token: not a byte of the body is waited for.
        ("wrong".to_owned(), 1000, "401"),
        // A good one, and more than it may send.
        (rig.token(), 1 << 30, "413"),
    ] {
        let head =
            format!("POST / HTTP/1.1\r\nHost: b\r\nX-Areev-Egress-Token: {token}\r\nContent-Length: {length}\r\n\r\n");
        let mut stream = tokio::net::TcpStream::connect(&doors.egress).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer)).await.unwrap().unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), format!("HTTP/1.1 {status}"));
    }
    doors.close().await;
}

#[test]
fn the_planted_word_is_found_in_the_log_in_every_spelling() {
    for planted in ["a canary here", "63616e617279", "63616E617279", "Y2FuYXJ5", "eGNhbmFyeQ", "eHhjYW5hcnk"] {
        let mut log = crate::rig::Log::default();
        assert!(crate::rig::holds_secret(planted.as_bytes()), "{planted}");
        log.write_all(b"nothing").unwrap();
    }
    assert!(!crate::rig::holds_secret(b"can ary, Canary, 6361"));
}
