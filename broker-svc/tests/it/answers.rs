//! Case group R: answers are bounded, whole, unencoded and scrubbed.

use std::{io::Write, time::Duration};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE},
};
use broker_svc::{
    broker::{CallBounds, Request},
    refusal::Why,
    token::Ceilings,
};

use crate::{
    rig::{CANARY, Rig, get, open, why, with},
    upstream::{Upstream, echo, ok, reply},
};

#[tokio::test]
async fn r1_an_origin_that_echoes_the_secret_gives_nothing_away() {
    let percent: String = CANARY.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let json: String = CANARY.bytes().map(|byte| format!("\\u{byte:04x}")).collect();
    let html: String = CANARY.bytes().map(|byte| format!("&#{byte};")).collect();
    let mut echoes = vec![
        CANARY.to_owned(),
        format!("Bearer {CANARY}"),
        STANDARD.encode(format!("user:{CANARY}")),
        STANDARD.encode(format!("u:{CANARY}")),
        STANDARD.encode(format!("{CANARY}:x")),
        URL_SAFE.encode(CANARY),
        hex::encode(CANARY),
        hex::encode_upper(CANARY),
        percent.to_uppercase(),
        percent,
        json,
        html,
        CANARY.replace('/', "%2F").replace('+', "%2B"),
        CANARY.replace('/', "\\/"),
    ];
    echoes.push(format!("a {CANARY} b {CANARY} c"));
    for text in echoes {
        let said = text.clone();
        let upstream = Upstream::plain(move |_, out| ok(out, &said));
        let rig = Rig::new(&open(&upstream.http()));
        let body = String::from_utf8(rig.call(with(upstream.http(), "a")).await.ok().unwrap().body).unwrap();
        assert!(body.contains("[redacted]"), "{text} -> {body}");
        // What is left of base64 are the few letters that depend on its neighbours too.
        assert!(body.replace("[redacted]", "").len() <= 12, "{text} -> {body}");
    }
    let upstream = Upstream::plain(echo);
    let rig = Rig::new(&open(&upstream.http()));
    let body = String::from_utf8(rig.call(with(upstream.http(), "a")).await.ok().unwrap().body).unwrap();
    assert!(body.contains("authorization: Bearer [redacted]\r\n"), "{body}");
}

#[tokio::test]
async fn r1_a_secret_that_an_earlier_call_showed_is_not_told_to_a_later_call_without_it() {
    let upstream = Upstream::plain(move |_, out| ok(out, &format!("the last caller said {CANARY}")));
    let rig = Rig::new(&open(&upstream.http()));
    let body = String::from_utf8(rig.call(get(upstream.http())).await.ok().unwrap().body).unwrap();
    assert_eq!(body, "the last caller said [redacted]");
}

#[tokio::test]
async fn r3_only_asked_and_listed_headers_come_back_scrubbed() {
    let headers = [
        ("Location", "/next?key=canary-Zq7%2F3fK%2B9wXe"),
        ("ETag", "\"1\""),
        ("WWW-Authenticate", "Bearer canary-Zq7/3fK+9wXe"),
        ("X-Echo", "canary-Zq7/3fK+9wXe"),
    ];
    let upstream = Upstream::plain(move |_, out| reply(out, "401 canary-Zq7/3fK+9wXe", &headers, b""));
    let rig = Rig::new(&open(&upstream.http()));
    let asked = Request {
        response_headers: vec!["location".into(), "ETAG".into(), "etag".into()],
        ..with(upstream.http(), "a")
    };
    let done = rig.call(asked).await.ok().unwrap();
    assert_eq!(done.status, 401);
    let expected = [("location", "/next?key=[redacted]"), ("etag", "\"1\"")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(done.headers, expected);
    for name in ["www-authenticate", "x-echo", "set-cookie", "content-length"] {
        let asked = Request { response_headers: vec![name.into()], ..get(upstream.http()) };
        assert_eq!(rig.why(asked).await, Why::ResponseHeaderNotAllowed, "{name}");
    }
}

#[tokio::test]
async fn r3_trailers_are_neither_returned_nor_taken_for_headers() {
    let hex = hex::encode(CANARY);
    let answer = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: ETag, Location, Content-Encoding, X-Echo\r\n\r\n\
         5\r\nplain\r\n0\r\n\
         ETag: \"{CANARY}\"\r\nLocation: /next?key={CANARY}\r\nContent-Encoding: gzip\r\nSet-Cookie: s={CANARY}\r\n\
         X-Echo: Bearer {CANARY}\r\nX-Hex: {hex}\r\nContent-Length: 3\r\n\r\n"
    );
    let upstream = Upstream::plain(move |_, out| out.write_all(answer.as_bytes()).is_ok());
    let rig = Rig::new(&open(&upstream.http()));
    // Twice: what stands behind the first answer is not the beginning of the second one.
    for _ in 0..2 {
        let asked = Request {
            response_headers: vec!["etag".into(), "location".into(), "content-type".into()],
            ..with(upstream.http(), "a")
        };
        let done = rig.call(asked).await.ok().unwrap();
        assert_eq!((done.status, &*done.body, &done.headers[..]), (200, &b"plain"[..], &[][..]));
        let record = format!("{:?}", done.record);
        assert!(!record.contains(CANARY) && !record.contains(&hex), "{record}");
    }
    assert_eq!(upstream.connections(), 1, "the answer with its trailers was read to its end");
}

#[tokio::test]
async fn r4_an_encoded_body_is_refused() {
    for coding in ["gzip", "br", "zstd", "x-unknown", "gzip, gzip", "identity, gzip"] {
        let upstream =
            Upstream::plain(move |_, out| reply(out, "200 OK", &[("Content-Encoding", coding)], b"\x1f\x8b"));
        let rig = Rig::new(&open(&upstream.http()));
        assert_eq!(rig.why(with(upstream.http(), "a")).await, Why::EncodedBody, "{coding}");
        assert!(upstream.requests()[0].contains("accept-encoding: identity\r\n"));
    }
    let upstream = Upstream::plain(|_, out| reply(out, "200 OK", &[("Content-Encoding", "identity")], b"plain"));
    let rig = Rig::new(&open(&upstream.http()));
    assert_eq!(rig.call(get(upstream.http())).await.ok().unwrap().body, b"plain");
}

/// What an upstream goes on sending.
type Endless = fn(&mut dyn Write) -> std::io::Result<()>;

#[tokio::test]
async fn r4_a_body_in_a_transfer_coding_other_than_chunks_is_refused() {
    let answer = |coding: &'static str| {
        Upstream::plain(move |_, out| {
            write!(out, "HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\n5\r\nplain\r\n0\r\n\r\n").unwrap();
            false
        })
    };
    for coding in [
        "gzip, chunked",
        "GZIP,chunked",
        "x-unknown, chunked",
        "gzip",
        "identity, gzip, chunked",
        "deflate, gzip, chunked",
    ] {
        let upstream = answer(coding);
        let rig = Rig::new(&open(&upstream.http()));
        assert_eq!(rig.why(with(upstream.http(), "a")).await, Why::EncodedBody, "{coding}");
    }
    let upstream = Upstream::plain(|_, out| {
        out.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
            .is_ok()
    });
    let rig = Rig::new(&open(&upstream.http()));
    assert_eq!(rig.why(with(upstream.http(), "a")).await, Why::EncodedBody, "two lines");
    for coding in ["chunked", "Chunked", "identity, chunked"] {
        let upstream = answer(coding);
        let rig = Rig::new(&open(&upstream.http()));
        assert_eq!(rig.call(get(upstream.http())).await.ok().unwrap().body, b"plain", "{coding}");
    }
}

#[tokio::test]
async fn r6_an_upstream_that_never_ends_meets_the_deadline_and_gives_its_place_free() {
    let endless: [(&str, &[u8], Endless); 6] = [
        ("a byte of a body now and then", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", |out| {
            out.write_all(b"x")
        }),
        ("a byte of a head now and then", b"HTTP/1.1 200 OK\r\nx-long: ", |out| out.write_all(b"x")),
        ("100 Continue for ever", b"", |out| out.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")),
        ("103 Early Hints for ever", b"", |out| out.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")),
        ("a chunk of nothing now and then", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", |out| {
            out.write_all(b"1\r\nx\r\n")
        }),
        ("nothing", b"", |out| out.write_all(b"")),
    ];
    let honest = Upstream::plain(|_, out| ok(out, "honest"));
    for (what, begin, write) in endless {
        let upstream = Upstream::plain(move |_, out| {
            out.write_all(begin).unwrap();
            // Ends when the broker closes the connection, or with the test.
            while write(out).and_then(|()| out.flush()).is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
            false
        });
        let policy = open(&honest.http()).replace("[\"http", &format!("[\"{}\", \"http", upstream.http()));
        // By the token's deadline, and by the broker's own bound; there is room for one call.
        let bounds = CallBounds { calls_in_flight: 1, ..CallBounds::default() };
        let rig = Rig::bounded(&policy, bounds);
        let token = rig.token_of(None, Ceilings::default(), Duration::from_millis(300));
        assert_eq!(why(rig.call_with(&token, get(upstream.http())).await), Why::DeadlineExceeded, "{what}");
        assert_eq!(rig.call(get(honest.http())).await.ok().unwrap().body, b"honest", "{what}");
        let rig = Rig::bounded(&policy, CallBounds { call_max: Duration::from_millis(300), ..bounds });
        assert_eq!(rig.why(get(upstream.http())).await, Why::DeadlineExceeded, "{what}");
        assert_eq!(rig.call(get(honest.http())).await.ok().unwrap().body, b"honest", "{what}");
    }
}

#[tokio::test]
async fn r6_a_flood_before_the_answer_is_cut_short() {
    let floods: [Endless; 3] = [
        |out| out.write_all(b"HTTP/1.1 100 Continue\r\n\r\n"),
        |out| out.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
        |out| out.write_all(b"x-line: one of many\r\n"),
    ];
    for (kind, write) in floods.into_iter().enumerate() {
        let upstream = Upstream::plain(move |_, out| {
            if kind == 2 {
                out.write_all(b"HTTP/1.1 200 OK\r\n").unwrap();
            }
            // As fast as it can, and as much as this program can log at its finest level.
            (0..2000).all(|_| write(out).is_ok());
            false
        });
        let bounds = CallBounds { call_max: Duration::from_secs(1), ..CallBounds::default() };
        let rig = Rig::bounded(&open(&upstream.http()), bounds);
        let why = rig.why(get(upstream.http())).await;
        assert!(matches!(why, Why::DeadlineExceeded | Why::UpstreamFailed), "{kind}: {why:?}");
    }
}

#[tokio::test]
async fn r7_an_answer_over_its_ceiling_is_an_error_and_never_cut() {
    type Body = fn(&mut dyn Write) -> std::io::Result<()>;
    let bodies: [Body; 3] = [
        |out| out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n"),
        |out| {
            out.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            loop {
                out.write_all(b"400\r\n")?;
                out.write_all(&[b'x'; 1024])?;
                out.write_all(b"\r\n")?;
            }
        },
        |out| {
            out.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
            out.write_all(&[b'x'; 4097])
        },
    ];
    for (kind, body) in bodies.into_iter().enumerate() {
        let upstream = Upstream::plain(move |_, out| {
            let _closed_by_the_broker = body(out);
            false
        });
        let rig = Rig::new(&open(&upstream.http()));
        let ceiling = Request { max_response_bytes: Some(4096), ..get(upstream.http()) };
        assert_eq!(rig.why(ceiling).await, Why::ResponseTooLarge, "{kind}");
    }
    let exact = Upstream::plain(|_, out| ok(out, &"x".repeat(4096)));
    let rig = Rig::new(&open(&exact.http()));
    let ceiling = Request { max_response_bytes: Some(4096), ..get(exact.http()) };
    assert_eq!(rig.call(ceiling).await.ok().unwrap().body.len(), 4096);
}

#[tokio::test]
async fn r7_a_body_that_breaks_off_is_an_error() {
    let upstream = Upstream::plain(|_, out| {
        out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort").unwrap();
        false
    });
    let rig = Rig::new(&open(&upstream.http()));
    assert_eq!(rig.why(get(upstream.http())).await, Why::UpstreamFailed);
}

#[tokio::test]
async fn r8_bodies_in_flight_have_one_budget() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let bounds = CallBounds { body_bytes_in_flight: 64 * 1024, ..CallBounds::default() };
    let rig = Rig::bounded(&open(&upstream.http()), bounds);
    let small = || Request { max_response_bytes: Some(40 * 1024), ..get(upstream.http()) };
    let held = rig.call(small()).await.ok().unwrap();
    assert_eq!(rig.why(small()).await, Why::Busy);
    assert_eq!(rig.why(get(upstream.http())).await, Why::Busy);
    drop(held);
    assert!(rig.call(small()).await.is_ok());
}

#[tokio::test]
async fn r10_a_body_that_is_no_text_comes_back_byte_for_byte() {
    let bytes: Vec<u8> = (0..=255).collect();
    let said = bytes.clone();
    let upstream = Upstream::plain(move |_, out| reply(out, "200 OK", &[], &said));
    let rig = Rig::new(&open(&upstream.http()));
    assert_eq!(rig.call(with(upstream.http(), "a")).await.ok().unwrap().body, bytes);
}

#[tokio::test]
async fn a_head_answer_has_no_body_whatever_its_length_says() {
    let upstream = Upstream::plain(|_, out| {
        out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\nContent-Encoding: gzip\r\n\r\n").is_ok()
    });
    let rig = Rig::new(&open(&upstream.http()));
    let head = Request { method: "HEAD".into(), ..get(upstream.http()) };
    assert!(rig.call(head).await.ok().unwrap().body.is_empty());
}

#[tokio::test]
async fn a_request_over_its_ceiling_is_refused_before_anything_is_sent() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let rig = Rig::new(&open(&upstream.http()));
    let ceilings = Ceilings { max_request_bytes: 8, ..Ceilings::default() };
    let post = |body: &'static str| Request { method: "POST".into(), body: body.into(), ..get(upstream.http()) };
    let token = rig.token_of(None, ceilings, Duration::from_secs(60));
    assert!(rig.call_with(&token, post("12345678")).await.is_ok());
    assert_eq!(why(rig.call_with(&token, post("123456789")).await), Why::RequestTooLarge);
    assert_eq!(upstream.requests().len(), 1);
}
