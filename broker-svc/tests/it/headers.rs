//! Case group H: request headers and framing.

use broker_svc::{broker::Request, refusal::Why};

use crate::{
    rig::{CANARY, Rig, carrying, get, open, why, with},
    upstream::{Upstream, ok, reply},
};

#[tokio::test]
async fn h1_h2_h3_h6_headers_of_the_broker_are_refused_whatever_a_declaration_says() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let url = upstream.http();
    let policy = format!(
        "{}\n[credentials.k]\nkind = \"header\"\nheader = \"X-Api-Key\"\nfrom = \"$b\"\nhosts = [\"https://elsewhere.com\"]\n",
        open(&url)
    );
    let rig = Rig::new(&policy);
    for name in [
        "Host",
        "X-Forwarded-Host",
        "x-forwarded-for",
        "Forwarded",
        "authorization",
        "AUTHORIZATION",
        "Cookie",
        "Proxy-Authorization",
        "X-Api-Key",
        "x-api-key",
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "TE",
        "Upgrade",
        "Expect",
        "Accept-Encoding",
        "X-HTTP-Method-Override",
        "X-Method-Override",
        "X-Areev-Egress-Token",
    ] {
        let declaration = format!(r#"[{{"http":{{"hosts":["{url}"],"headers":["{name}"]}}}}]"#);
        for token in [rig.token(), rig.declared(&declaration)] {
            let outcome = rig.call_with(&token, carrying(&url, &[(name, "5")])).await;
            assert_eq!(why(outcome), Why::HeaderNotAllowed, "{name}");
        }
    }
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn h2_h5_h6_malformed_and_repeated_headers_are_refused() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let rig = Rig::new(&open(&upstream.http()));
    for (name, value) in [
        ("Authorization ", "x"),
        (":authority", "x"),
        ("", "x"),
        ("a: b", "x"),
        ("a\r\nb", "x"),
        ("accept", "x\r\ny: z"),
        ("accept", "x\n"),
        ("accept", "\0"),
        ("accept", "é"),
        ("é", "x"),
    ] {
        assert_eq!(
            rig.why(carrying(upstream.http(), &[(name, value)])).await,
            Why::InvalidHeader,
            "{name:?}: {value:?}"
        );
    }
    let twice = carrying(upstream.http(), &[("Accept", "a"), ("ACCEPT", "b")]);
    assert_eq!(rig.why(twice).await, Why::InvalidHeader);
    let many: Vec<_> = (0..33).map(|n| format!("x-{n}")).collect();
    let many: Vec<_> = many.iter().map(|name| (name.as_str(), "v")).collect();
    assert_eq!(rig.why(carrying(upstream.http(), &many)).await, Why::InvalidHeader);
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn only_declared_headers_pass_and_without_a_declaration_only_harmless_ones() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let url = upstream.http();
    let rig = Rig::new(&open(&url));
    let token = rig.declared(&format!(r#"[{{"http":{{"hosts":["{url}"],"headers":["X-Trace"]}}}}]"#));
    assert!(rig.call_with(&token, carrying(&url, &[("x-trace", "1")])).await.is_ok());
    assert_eq!(why(rig.call_with(&token, carrying(&url, &[("x-other", "1")])).await), Why::HeaderNotAllowed);
    assert!(rig.call(carrying(&url, &[("Accept", "text/plain"), ("If-None-Match", "\"x\"")])).await.is_ok());
    assert_eq!(rig.why(carrying(&url, &[("x-trace", "1")])).await, Why::HeaderNotAllowed);
}

#[tokio::test]
async fn h2_c2_the_raw_request_is_exactly_what_was_decided() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let rig = Rig::new(&open(&upstream.http()));
    let request = Request {
        method: "POST".into(),
        body: "{}".into(),
        headers: vec![("Accept".into(), "text/plain".into())],
        ..with(format!("{}/v1?q=1", upstream.http()), "a")
    };
    rig.call(request).await.ok().unwrap();
    let (sent, host) = (upstream.requests().remove(0), upstream.address);
    let (head, body) = sent.split_once("\r\n\r\n").unwrap();
    let (first, lines) = head.split_once("\r\n").unwrap();
    let mut lines: Vec<_> = lines.split("\r\n").map(str::to_owned).collect();
    lines.sort();
    assert_eq!(first, "POST /v1?q=1 HTTP/1.1");
    assert_eq!(body, "{}");
    assert_eq!(
        lines,
        [
            "accept-encoding: identity".to_owned(),
            "accept: text/plain".to_owned(),
            format!("authorization: Bearer {CANARY}"),
            "content-length: 2".to_owned(),
            "content-type: application/json".to_owned(),
            format!("host: {host}"),
            format!("user-agent: areev-broker/{}", env!("CARGO_PKG_VERSION")),
        ]
    );
}

#[tokio::test]
async fn h8_cookies_are_neither_kept_nor_handed_back() {
    let upstream = Upstream::plain(|_, out| reply(out, "200 OK", &[("Set-Cookie", "session=1")], b""));
    let rig = Rig::new(&open(&upstream.http()));
    for _ in 0..2 {
        assert!(rig.call(get(upstream.http())).await.ok().unwrap().headers.is_empty());
    }
    assert!(upstream.requests().iter().all(|request| !request.to_ascii_lowercase().contains("cookie")));
    let asked = Request { response_headers: vec!["set-cookie".into()], ..get(upstream.http()) };
    assert_eq!(rig.why(asked).await, Why::ResponseHeaderNotAllowed);
}
