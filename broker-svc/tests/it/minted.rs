//! Cases C2, C7, C8, C9: tokens that an authorization server mints.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use broker_svc::{broker::Request, refusal::Why};

use crate::{
    authorization_server::{CLIENT, CONSENT, Servers},
    rig::{LOG, Rig, with},
    upstream::{Upstream, ok},
};

/// Longest wait for something that has to happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// A rig whose file `$a` holds this.
fn rig(policy: &str, value: &str) -> Rig {
    let rig = Rig::new(policy);
    std::fs::write(rig.files.path().join("a"), value).unwrap();
    rig
}

fn by_secret(servers: &Servers) -> Rig {
    rig(&servers.policy("oauth2_client_credentials"), CLIENT.1)
}

/// Servers whose refresh tokens rotate, a rig that spends them, and its client's secret.
fn rotating() -> (Servers, Arc<Rig>, tempfile::NamedTempFile) {
    let servers = Servers::start(true);
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), CLIENT.1).unwrap();
    let place = format!("client_secret_from = \"file:{}\"\nfrom =", secret.path().display());
    let rig = rig(&servers.policy("oauth2_refresh").replace("from =", &place), CONSENT);
    (servers, Arc::new(rig), secret)
}

/// Two hundred calls at once, and what each is answered with.
fn two_hundred(rig: &Arc<Rig>, url: &str) -> Vec<tokio::task::JoinHandle<u16>> {
    let call = |_| {
        let (rig, url) = (Arc::clone(rig), url.to_owned());
        let ceiling = Request { max_response_bytes: Some(4096), ..with(url, "c") };
        tokio::spawn(async move { rig.call(ceiling).await.ok().unwrap().status })
    };
    (0..200).map(call).collect()
}

#[tokio::test]
async fn c2_a_token_of_the_clients_own_is_minted_once_and_goes_as_a_bearer_token() {
    for auth in ["", "client_auth = \"body\"\nscopes = [\"read\", \"write\"]\naudience = \"https://api\""] {
        let servers = Servers::start(false);
        let policy = servers.policy("oauth2_client_credentials").replace("from =", &format!("{auth}\nfrom ="));
        let rig = rig(&policy, CLIENT.1);
        for _ in 0..3 {
            let done = rig.call(with(servers.url(), "c")).await.ok().unwrap();
            assert_eq!(done.status, 200);
            let back = String::from_utf8(done.body).unwrap();
            assert!(back.contains("authorization: Bearer [redacted]") && !back.contains("canary"), "{back}");
        }
        assert_eq!((servers.minted(), servers.tokens.requests().len()), (1, 1));
        let asked = servers.tokens.requests().remove(0);
        if !auth.is_empty() {
            assert!(asked.contains("scope=read+write") && asked.contains("audience=https%3A%2F%2Fapi"), "{asked}");
            assert!(!asked.contains("authorization:"), "{asked}");
        }
        assert!(servers.resource.requests().iter().all(|sent| !sent.contains("client-canary")));
    }
}

#[tokio::test]
async fn c2_c9_a_rotating_refresh_token_is_spent_once_each() {
    let (servers, rig, _secret) = rotating();
    for round in 1..=4 {
        assert_eq!(rig.call(with(servers.url(), "c")).await.ok().unwrap().status, 200, "round {round}");
        assert_eq!(servers.minted(), round);
        servers.withdraw();
        // Refused values are asked for anew once a second at most.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(1050) {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(*servers.behaviour.refused.lock(), Vec::<String>::new());
}

#[tokio::test]
async fn a_refused_token_is_renewed_once_and_only_reading_calls_are_repeated() {
    let servers = Servers::start(false);
    let rig = by_secret(&servers);
    let post = || Request { method: "POST".into(), body: "{}".into(), ..with(servers.url(), "c") };
    assert_eq!(rig.call(with(servers.url(), "c")).await.ok().unwrap().status, 200);
    servers.withdraw();
    assert_eq!(rig.call(post()).await.ok().unwrap().status, 401, "a call that may have done something is not repeated");
    assert_eq!(servers.resource.requests().len(), 2);
    assert_eq!(rig.call(post()).await.ok().unwrap().status, 200, "but the next one has another token");
    assert_eq!(servers.minted(), 2);

    let servers = Servers::start(false);
    let rig = by_secret(&servers);
    assert_eq!(rig.call(with(servers.url(), "c")).await.ok().unwrap().status, 200);
    servers.withdraw();
    let token = rig.token();
    assert_eq!(rig.call_with(&token, with(servers.url(), "c")).await.ok().unwrap().status, 200);
    assert_eq!((servers.minted(), servers.resource.requests().len()), (2, 3));

    // An upstream that refuses every token is asked twice, and the token endpoint is not flooded.
    let servers = Servers::start(false);
    let never = Upstream::tls(|_, out| crate::upstream::reply(out, "401 Unauthorized", &[], b""));
    let policy = servers.policy("oauth2_client_credentials").replace(&servers.url(), &never.https("127.0.0.1"));
    let rig = self::rig(&policy, CLIENT.1);
    for _ in 0..20 {
        assert_eq!(rig.call(with(never.https("127.0.0.1"), "c")).await.ok().unwrap().status, 401);
    }
    assert!((20..=30).contains(&never.requests().len()), "{}", never.requests().len());
    assert!(servers.minted() <= 10, "{}", servers.minted());
}

#[tokio::test(flavor = "multi_thread")]
async fn c9_two_hundred_callers_cause_one_refresh() {
    let (servers, rig, _secret) = rotating();
    for call in two_hundred(&rig, &servers.url()) {
        assert_eq!(call.await.unwrap(), 200);
    }
    assert_eq!((servers.minted(), servers.tokens.requests().len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn c9_two_hundred_callers_beside_a_refresh_of_a_token_that_still_lives_cause_no_other() {
    let (servers, rig, _secret) = rotating();
    *servers.behaviour.expires_in.lock() = "4".to_owned();
    assert_eq!(rig.call(with(servers.url(), "c")).await.ok().unwrap().status, 200);
    *servers.behaviour.expires_in.lock() = "3600".to_owned();
    servers.behaviour.gate.shut(true);
    // The first call behind the token's best time has it renewed, and does not wait for that.
    let begun = Instant::now();
    while servers.tokens.requests().len() < 2 {
        assert_eq!(rig.call(with(servers.url(), "c")).await.ok().unwrap().status, 200);
        assert!(begun.elapsed() < PATIENCE, "the token is never renewed");
    }
    let (before, begun) = (servers.resource.requests().len(), Instant::now());
    let calls = two_hundred(&rig, &servers.url());
    // All are served with what is held; on a slow machine its life ends, and the rest wait for the one that is on its way.
    while servers.resource.requests().len() < before + calls.len() && begun.elapsed() < Duration::from_secs(5) {
        tokio::task::yield_now().await;
    }
    servers.behaviour.gate.shut(false);
    for call in calls {
        assert_eq!(call.await.unwrap(), 200);
    }
    assert_eq!(
        servers.tokens.requests().len(),
        2,
        "one for the first token, one for all who came behind its best time"
    );
    assert_eq!(*servers.behaviour.refused.lock(), Vec::<String>::new());
    // What was minted last is what goes out from then on.
    let begun = Instant::now();
    while !servers.resource.requests().last().unwrap().contains("Bearer access-canary-2\r\n") {
        assert_eq!(rig.call(with(servers.url(), "c")).await.ok().unwrap().status, 200);
        assert!(begun.elapsed() < PATIENCE, "the new token is never used");
    }
}

#[tokio::test]
async fn c9_a_caller_that_goes_away_takes_no_refresh_with_it() {
    let (arrived, mut arrival) = tokio::sync::mpsc::unbounded_channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = parking_lot::Mutex::new(released);
    let slow = Upstream::tls(move |_, out| {
        arrived.send(()).unwrap();
        let _until_told = released.lock().recv();
        ok(out, r#"{"access_token":"access-canary-slow","token_type":"Bearer","expires_in":3600}"#)
    });
    let servers = Servers::start(false);
    let resource = Upstream::tls(|_, out| ok(out, ""));
    let policy = servers
        .policy("oauth2_client_credentials")
        .replace(&servers.tokens.https("127.0.0.1"), &slow.https("127.0.0.1"))
        .replace(&servers.url(), &resource.https("127.0.0.1"));
    let rig = rig(&policy, CLIENT.1);
    tokio::select! {
        _ = rig.call(with(resource.https("127.0.0.1"), "c")) => panic!("the token never came"),
        _ = arrival.recv() => {}
    }
    release.send(()).unwrap();
    let done = tokio::time::timeout(PATIENCE, rig.call(with(resource.https("127.0.0.1"), "c"))).await.unwrap();
    assert_eq!(done.ok().unwrap().status, 200);
    assert_eq!(slow.requests().len(), 1);
    assert!(resource.requests()[0].contains("Bearer access-canary-slow\r\n"));
}

#[tokio::test]
async fn c7_c8_a_token_endpoint_that_misbehaves_fails_the_call_and_is_not_heard_by_the_guest() {
    let attacker = Upstream::tls(|_, out| ok(out, r#"{"access_token":"x","token_type":"bearer"}"#));
    let place = attacker.https("127.0.0.1");
    let json = |body: &str| ("200 OK".to_owned(), vec![], body.as_bytes().to_vec());
    let huge = vec![b' '; 10 * 1024 * 1024];
    for broken in [
        ("307 Temporary".to_owned(), vec![("Location".to_owned(), place)], vec![]),
        ("200 OK".to_owned(), vec![], vec![]),
        ("200 OK".to_owned(), vec![], huge),
        ("200 OK".to_owned(), vec![], b"<html>told-canary</html>".to_vec()),
        ("500 Oops".to_owned(), vec![], b"told-canary".to_vec()),
        ("400 No".to_owned(), vec![], br#"{"error":"invalid_grant","error_description":"told-canary"}"#.to_vec()),
        ("400 No".to_owned(), vec![], br#"{"error":"told-canary"}"#.to_vec()),
        json(r#"{"access_token":"told-canary","token_type":"mac","expires_in":60}"#),
        json(r#"{"access_token":"told-canary","token_type":"bearer","expires_in":0}"#),
        json(r#"{"access_token":"told-canary","token_type":"bearer","expires_in":-1}"#),
        json(r#"{"access_token":"told-canary","token_type":"bearer","expires_in":"soon"}"#),
        json(r#"{"access_token":"told canary","token_type":"bearer"}"#),
        json(r#"{"access_token":"","token_type":"bearer"}"#),
        json(r#"{"token_type":"bearer","told-canary":1}"#),
    ] {
        let servers = Servers::start(false);
        let shown = format!("{} {}", broken.0, String::from_utf8_lossy(&broken.2[..broken.2.len().min(64)]));
        *servers.behaviour.broken.lock() = Some(broken);
        let rig = by_secret(&servers);
        let refused = rig.call(with(servers.url(), "c")).await.err().unwrap();
        assert_eq!(refused.refusal.why, Why::CredentialUnavailable, "{shown}");
        assert!(!format!("{refused:?}").contains("told"), "{refused:?}");
        assert_eq!(servers.resource.connections(), 0, "{shown}");
        // The failure answers others too, but not for long.
        assert_eq!(rig.why(with(servers.url(), "c")).await, Why::CredentialUnavailable);
        assert_eq!(servers.tokens.requests().len(), 1, "{shown}");
        *servers.behaviour.broken.lock() = None;
        let begun = Instant::now();
        while rig.call(with(servers.url(), "c")).await.is_err() {
            assert!(begun.elapsed() < PATIENCE, "a failure is remembered for ever");
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(attacker.connections(), 0);
    assert!(!LOG.text().contains("told-canary"), "what a token endpoint says is logged");
}

#[tokio::test]
async fn c8_a_life_that_is_missing_or_absurd_is_taken_for_a_sane_one() {
    for said in ["", "1e18", "1000000000000000000", "\"3600\"", "3599.5"] {
        let servers = Servers::start(false);
        *servers.behaviour.expires_in.lock() = said.to_owned();
        let rig = by_secret(&servers);
        for _ in 0..2 {
            assert_eq!(rig.call(with(servers.url(), "c")).await.ok().unwrap().status, 200, "{said}");
        }
        assert_eq!(servers.minted(), 1, "{said}");
    }
}

#[tokio::test]
async fn c8_a_token_is_renewed_before_its_end_and_an_endpoint_that_is_down_fails_closed_after_it() {
    let servers = Servers::start(false);
    *servers.behaviour.expires_in.lock() = "2".to_owned();
    let rig = by_secret(&servers);
    let begun = Instant::now();
    // Before a token's end another is asked for; no call waits or fails meanwhile.
    while servers.minted() < 3 {
        assert_eq!(rig.call(with(servers.url(), "c")).await.ok().unwrap().status, 200);
        assert!(begun.elapsed() < PATIENCE, "the token is never renewed");
    }
    *servers.behaviour.broken.lock() = Some(("503 Down".to_owned(), vec![], b"down".to_vec()));
    let (begun, mut used) = (Instant::now(), 0);
    let reason = loop {
        match rig.call(with(servers.url(), "c")).await {
            Ok(_) => used += 1,
            Err(denied) => break denied.refusal.why,
        }
        assert!(begun.elapsed() < PATIENCE, "an expired token is used for ever");
    };
    assert_eq!(reason, Why::CredentialUnavailable);
    assert!(used > 0, "a token that still lives is used while its endpoint is down");
}

#[tokio::test]
async fn c7_p8_the_token_call_is_decided_and_vetted_like_any_other() {
    let servers = Servers::start(false);
    let policy = servers.policy("oauth2_client_credentials");
    let endpoint = servers.tokens.https("127.0.0.1");
    // Not in the policy's hosts: refused when loaded, and by the decision itself.
    let closed = policy.replace(&format!("[\"{endpoint}\", "), "[");
    let checked = broker_svc::config::policy_of(&closed.replace("$a", "env:X")).unwrap();
    let mistake = broker_svc::config::check_whole(&checked).unwrap_err().to_string();
    assert!(mistake.contains("[credentials.c] token_url") && mistake.contains("allow_hosts"), "{mistake}");
    let rig = self::rig(&closed, CLIENT.1);
    assert_eq!(rig.why(with(servers.url(), "c")).await, Why::CredentialUnavailable);
    // At a private address that nobody listed, or one that its name resolves to.
    for name in ["tokens.good.com", "metadata.google.internal", "localhost"] {
        let port = servers.tokens.address.port();
        let named = policy.replace(&endpoint, &format!("https://{name}:{port}"));
        let rig = self::rig(&named, CLIENT.1);
        rig.name(name, &[&["10.0.0.1"]]);
        assert_eq!(rig.why(with(servers.url(), "c")).await, Why::CredentialUnavailable, "{name}");
    }
    assert_eq!(servers.tokens.connections(), 0);
    let log = LOG.text();
    assert!(log.contains("is not allowed by the egress policy") && log.contains("private, local or reserved"));
}
