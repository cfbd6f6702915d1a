//! Case U14: redirects, followed by hand, each hop decided anew.

use broker_svc::{broker::Request, refusal::Why};

use crate::{
    rig::{CANARY, Rig, get, why, with},
    upstream::{Upstream, echo, ok, reply},
};

/// Tool `t` may do everything with these origins; credential `a` is a bearer token for the first, `q` a parameter for it.
fn policy(origins: &[&str], allowed: &[&str]) -> String {
    let home = origins[0];
    format!(
        r#"
        [policy]
        allow_hosts = {allowed:?}
        allow_private = ["127.0.0.0/8"]
        [credentials.a]
        kind = "bearer"
        from = "$a"
        hosts = {origins:?}
        [credentials.q]
        kind = "query"
        parameter = "key"
        from = "$a"
        hosts = ["{home}"]
        [grants.t]
        credentials = ["a", "q"]
        methods = ["GET", "HEAD", "POST", "PUT"]
        hosts = {origins:?}
        "#
    )
}

/// Answers `/` with a redirect and everything else with an echo.
fn leads(status: &'static str, location: impl Into<String>) -> Upstream {
    let location = location.into();
    Upstream::plain(move |request, out| match request.split(|byte| *byte == b' ').nth(1) {
        Some(b"/") => reply(out, status, &[("Location", &location)], b"moved"),
        Some(path) if path.starts_with(b"/?") => reply(out, status, &[("Location", &location)], b"moved"),
        _ => echo(request, out),
    })
}

#[tokio::test]
async fn u14_a_redirect_within_its_origin_is_followed_with_the_credential() {
    for (status, method, then) in [
        ("301 Moved", "GET", "GET"),
        ("302 Found", "POST", "GET"),
        ("303 See Other", "PUT", "GET"),
        ("307 Temporary", "POST", "POST"),
        ("308 Permanent", "PUT", "PUT"),
    ] {
        let upstream = leads(status, "/there?x=1#f");
        let url = upstream.http();
        let rig = Rig::new(&policy(&[&url], &[&url]));
        let request = Request { method: method.into(), body: "{}".into(), ..with(&url, "a") };
        let done = rig.call(request).await.ok().unwrap();
        assert_eq!(done.status, 200);
        let sent = &upstream.requests()[1];
        assert!(sent.starts_with(&format!("{then} /there?x=1 HTTP/1.1\r\n")), "{sent}");
        assert_eq!(sent.matches(&format!("authorization: Bearer {CANARY}\r\n")).count(), 1, "{sent}");
        assert_eq!(sent.ends_with("{}"), method == then, "{sent}");
        assert_eq!(done.record.redirects, [url]);
    }
}

#[tokio::test]
async fn u14_what_was_injected_stays_behind_for_good_once_the_origin_changes() {
    for credential in ["a", "q"] {
        let home = std::sync::Arc::new(std::sync::OnceLock::<String>::new());
        let back = std::sync::Arc::clone(&home);
        // The other origin leads back home: what was dropped does not come back.
        let other = Upstream::plain(move |_, out| {
            reply(out, "302 Found", &[("Location", &format!("{}/home", back.get().unwrap()))], b"")
        });
        let upstream = leads("302 Found", format!("{}/away", other.http()));
        home.set(upstream.http()).unwrap();
        let (url, away) = (upstream.http(), other.http());
        let rig = Rig::new(&policy(&[&url, &away], &[&url, &away]));
        let done = rig.call(with(&url, credential)).await.ok().unwrap();
        assert_eq!(done.record.redirects, [away.clone(), url.clone()]);
        assert!(upstream.requests()[0].contains("canary"), "{credential}");
        for later in [&other.requests()[0], &upstream.requests()[1]] {
            assert!(
                !later.contains("canary") && !later.contains("authorization") && !later.contains("key="),
                "{later}"
            );
        }
        assert!(!String::from_utf8(done.body).unwrap().contains("canary"));
    }
}

#[tokio::test]
async fn u14_a_redirect_that_repeats_an_injected_secret_tells_nobody() {
    let other = Upstream::plain(|_, out| ok(out, ""));
    let away = other.http();
    let coded = CANARY.replace('/', "%2F").replace('+', "%2B");
    // The parameter itself is taken out; the secret in any other place ends the call.
    let upstream = leads("302 Found", format!("{away}/x?key={coded}&y=2"));
    let rig = Rig::new(&policy(&[&upstream.http(), &away], &[&upstream.http(), &away]));
    rig.call(with(upstream.http(), "q")).await.ok().unwrap();
    assert!(other.requests()[0].starts_with("GET /x?y=2 HTTP/1.1\r\n"), "{}", other.requests()[0]);
    for place in [format!("{away}/x/{coded}"), format!("{away}/x?other={coded}"), format!("/x?again={coded}")] {
        let upstream = leads("302 Found", place);
        let rig = Rig::new(&policy(&[&upstream.http(), &away], &[&upstream.http(), &away]));
        let refused = rig.call(with(upstream.http(), "q")).await.err().unwrap();
        assert_eq!(refused.refusal.why, Why::RedirectRefused);
        assert!(!format!("{refused:?}").contains(&coded));
    }
    assert_eq!(other.requests().len(), 1);
}

#[tokio::test]
async fn u14_a_redirect_to_a_host_that_is_a_secret_is_neither_told_nor_recorded() {
    const SECRET: &str = "Canary-Host9Key";
    let coded: String = SECRET.bytes().map(|byte| format!("%{byte:02x}")).collect();
    for place in [
        format!("https://{SECRET}.evil.com/"),
        format!("https://{}.evil.com/", SECRET.to_uppercase()),
        format!("//{}.evil.com/", hex::encode(SECRET)),
        format!("https://{coded}.evil.com/"),
        format!("https://evil.com/{SECRET}"),
        format!("{SECRET}://evil.com/"),
        format!("https://user:{SECRET}@evil.com/"),
        format!("https://[{SECRET}]/"),
    ] {
        let upstream = leads("302 Found", place.clone());
        let url = upstream.http();
        let rig = Rig::new(&policy(&[&url], &[&url]));
        std::fs::write(rig.files.path().join("a"), SECRET).unwrap();
        // The second tool's call has no credential: its upstream knows the first one's.
        for request in [with(&url, "a"), get(&url)] {
            let refused = rig.call(request).await.err().unwrap();
            let said = format!("{refused:?} {:?}", rig.broker.audit.list("", u64::MAX, 10)).to_lowercase();
            assert_eq!(refused.refusal.why, Why::RedirectRefused, "{place}: {said}");
            for spelled in [SECRET.to_lowercase(), hex::encode(SECRET), coded.clone()] {
                assert!(!said.contains(&spelled), "{place}: {said}");
            }
            assert!(refused.record.redirects.is_empty() && refused.record.went_out);
        }
    }
}

#[tokio::test]
async fn u14_an_idempotency_key_stays_behind_for_good_once_the_origin_changes() {
    let home = std::sync::Arc::new(std::sync::OnceLock::<String>::new());
    let back = std::sync::Arc::clone(&home);
    let other = Upstream::plain(move |_, out| {
        reply(out, "307 Temporary", &[("Location", &format!("{}/home", back.get().unwrap()))], b"")
    });
    let upstream = Upstream::plain({
        let away = format!("{}/away", other.http());
        move |request, out| match request.split(|byte| *byte == b' ').nth(1) {
            Some(b"/") => reply(out, "307 Temporary", &[("Location", "/here")], b""),
            Some(b"/here") => reply(out, "307 Temporary", &[("Location", &away)], b""),
            _ => ok(out, ""),
        }
    });
    home.set(upstream.http()).unwrap();
    let (url, away) = (upstream.http(), other.http());
    let policy = policy(&[&url, &away], &[&url, &away]).replace("[grants.t]", "[grants.t]\nidempotency_key = true");
    let rig = Rig::new(&policy);
    let request = Request { method: "POST".into(), ..with(&url, "a") };
    assert_eq!(rig.call(request).await.ok().unwrap().status, 200);
    let has_key = |sent: &String| sent.starts_with("POST ") && sent.contains("\r\nidempotency-key: ");
    assert_eq!(upstream.requests().iter().map(has_key).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(other.requests().iter().map(has_key).collect::<Vec<_>>(), [false]);
}

#[tokio::test]
async fn u14_a_body_is_not_repeated_to_another_origin() {
    let other = Upstream::plain(|_, out| ok(out, ""));
    for status in ["307 Temporary", "308 Permanent"] {
        let upstream = leads(status, other.http());
        let rig = Rig::new(&policy(&[&upstream.http(), &other.http()], &[&upstream.http(), &other.http()]));
        let request = Request { method: "POST".into(), body: "{}".into(), ..get(upstream.http()) };
        assert_eq!(rig.why(request).await, Why::RedirectRefused, "{status}");
    }
    assert_eq!(other.connections(), 0);
}

#[tokio::test]
async fn u14_each_hop_is_decided_anew_and_no_byte_reaches_a_denied_place() {
    let denied = Upstream::plain(|_, out| ok(out, ""));
    for (place, reason) in [
        (denied.http(), Why::HostNotAllowed),
        ("http://169.254.169.254/latest/meta-data".to_owned(), Why::PrivateAddress),
        ("http://2852039166/".to_owned(), Why::PrivateAddress),
        ("https://metadata.google.internal/".to_owned(), Why::PrivateAddress),
        ("http://localhost/".to_owned(), Why::PrivateAddress),
        ("http://[::1]/".to_owned(), Why::PrivateAddress),
        ("ftp://api.good.com/".to_owned(), Why::SchemeNotAllowed),
        ("file:///etc/passwd".to_owned(), Why::SchemeNotAllowed),
        ("//evil.com/x".to_owned(), Why::HostNotAllowed),
        ("http://user:pw@127.0.0.1/".to_owned(), Why::UserinfoNotAllowed),
        ("\\\\evil.com".to_owned(), Why::RedirectRefused),
    ] {
        let upstream = leads("302 Found", place.clone());
        let url = upstream.http();
        let rig = Rig::new(&policy(&[&url], &[&url]));
        let refused = rig.call(with(&url, "a")).await.err().unwrap();
        assert_eq!(refused.refusal.why, reason, "{place}: {}", refused.refusal);
        assert_eq!(refused.record.host, upstream.address.to_string());
        assert!(refused.record.went_out, "the first request reached its upstream");
        assert!(refused.record.redirects.len() <= 1);
    }
    assert_eq!(denied.connections(), 0);
}

#[tokio::test]
async fn u14_a_redirect_from_https_to_http_is_denied_where_no_grant_spells_it() {
    let plain = Upstream::plain(|_, out| ok(out, ""));
    let place = plain.http();
    let upstream = Upstream::tls(move |_, out| reply(out, "302 Found", &[("Location", &place)], b""));
    let url = upstream.https("127.0.0.1");
    let rig = Rig::new(&policy(&[&url], &[&url, &plain.http()]));
    assert_eq!(rig.why(with(&url, "a")).await, Why::SchemeNotAllowed);
    assert_eq!(plain.connections(), 0);
}

#[tokio::test]
async fn u14_a_declaration_holds_for_every_hop() {
    let upstream = leads("302 Found", "/admin");
    let url = upstream.http();
    let rig = Rig::new(&policy(&[&url], &[&url]));
    let token = rig.declared(&format!(r#"[{{"http":{{"hosts":["{url}"],"path_prefixes":["/public"]}}}}]"#));
    assert_eq!(why(rig.call_with(&token, get(&url)).await), Why::PathNotAllowed);
    let token = rig.declared(&format!(r#"[{{"http":{{"hosts":["{url}"],"path_prefixes":["/"]}}}}]"#));
    assert!(rig.call_with(&token, get(&url)).await.is_ok());
}

#[tokio::test]
async fn u14_a_loop_and_a_long_chain_end_and_cost_one_call() {
    let upstream = Upstream::plain(|_, out| reply(out, "302 Found", &[("Location", "/")], b""));
    let url = upstream.http();
    let rig = Rig::new(&policy(&[&url], &[&url]));
    let ceilings = broker_svc::token::Ceilings { max_calls: 2, ..Default::default() };
    let token = rig.token_of(None, ceilings, std::time::Duration::from_secs(60));
    for _ in 0..2 {
        assert_eq!(why(rig.call_with(&token, with(&url, "a")).await), Why::RedirectRefused);
    }
    assert_eq!(upstream.requests().len(), 22, "the request and ten redirects, twice");
    assert_eq!(why(rig.call_with(&token, get(&url)).await), Why::CallsExhausted);
}

#[tokio::test]
async fn u14_an_answer_that_names_no_place_is_handed_back() {
    for status in ["304 Not Modified", "300 Choices", "302 Found"] {
        let upstream = Upstream::plain(move |_, out| reply(out, status, &[], b""));
        let url = upstream.http();
        let rig = Rig::new(&policy(&[&url], &[&url]));
        assert_eq!(rig.call(get(&url)).await.ok().unwrap().status.to_string(), status[..3]);
        assert_eq!(upstream.requests().len(), 1);
    }
}
