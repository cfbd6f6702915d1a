//! Case group P: policy, grant and declaration.

use broker_svc::{broker::Request, config::policy_of, refusal::Why};

use crate::{
    rig::{EVERYWHERE, Rig, get, open, why, with},
    upstream::{Upstream, ok},
};

fn calling(method: &str, url: &str) -> Request {
    Request { method: method.into(), ..get(url) }
}

#[tokio::test]
async fn p1_without_policy_or_grant_everything_is_refused() {
    let nothing = Rig::new("");
    assert_eq!(nothing.why(get("https://api.good.com/")).await, Why::HostNotAllowed);
    let no_grant = Rig::new("[policy]\nunrestricted = true\n[grants.other]\n");
    assert_eq!(no_grant.why(get("https://api.good.com/")).await, Why::ToolNotGranted);
    let no_host = Rig::new("[policy]\nallow_hosts = []\n[grants.t]\n");
    assert_eq!(no_host.why(get("https://api.good.com/")).await, Why::HostNotAllowed);
}

#[tokio::test]
async fn p2_methods_are_exact_words_and_only_granted_ones() {
    let rig = Rig::new(EVERYWHERE);
    let refused =
        ["DELETE", "POST", "PATCH", "get", "GET ", "Get", "CONNECT", "TRACE", "OPTIONS", "GET\r\nx: y", "PROPFIND"];
    for method in refused {
        assert_eq!(rig.why(calling(method, "https://api.good.com/")).await, Why::MethodNotAllowed, "{method:?}");
    }
    for method in ["", "GET", "HEAD"] {
        assert_eq!(rig.why(calling(method, "https://api.good.com/")).await, Why::ResolveFailed, "{method:?}");
    }
}

#[tokio::test]
async fn p3_a_credential_goes_to_its_own_hosts_and_is_not_crossed_with_others() {
    let rig = Rig::new(
        r#"
        [policy]
        allow_hosts = ["https://a.com", "https://b.com"]
        [credentials.a]
        kind = "bearer"
        from = "$a"
        hosts = ["https://a.com"]
        [credentials.b]
        kind = "bearer"
        from = "$b"
        hosts = ["https://b.com"]
        [grants.t]
        credentials = ["a", "b"]
        "#,
    );
    assert_eq!(rig.why(with("https://b.com/", "a")).await, Why::CredentialHostMismatch);
    assert_eq!(rig.why(with("https://a.com/", "a")).await, Why::ResolveFailed);
    let token = rig.declared(
        r#"[{"http":{"hosts":["https://a.com"],"credentials":["a"],"methods":["GET"]}},
            {"http":{"hosts":["https://b.com"],"credentials":["b"],"methods":["POST"]}}]"#,
    );
    assert_eq!(why(rig.call_with(&token, with("https://b.com/", "b")).await), Why::MethodNotAllowed);
    assert_eq!(why(rig.call_with(&token, with("https://a.com/", "b")).await), Why::CredentialHostMismatch);
    assert_eq!(why(rig.call_with(&token, with("https://a.com/", "c")).await), Why::CredentialNotDeclared);
    assert_eq!(why(rig.call_with(&token, with("https://a.com/", "a")).await), Why::ResolveFailed);
}

#[tokio::test]
async fn p6_declared_and_granted_hosts_that_differ_leave_nothing() {
    let rig = Rig::new("[policy]\nunrestricted = true\n[grants.t]\nhosts = [\"https://b.com\"]\n");
    let token = rig.declared(r#"[{"http":{"hosts":["https://a.com"]}}]"#);
    assert_eq!(why(rig.call_with(&token, get("https://a.com/")).await), Why::HostNotAllowed);
    assert_eq!(why(rig.call_with(&token, get("https://b.com/")).await), Why::HostNotAllowed);
    let nothing = rig.declared("[]");
    assert_eq!(why(rig.call_with(&nothing, get("https://b.com/")).await), Why::HostNotAllowed);
}

#[tokio::test]
async fn declared_prefixes_hold_on_segment_borders_and_against_hidden_separators() {
    let rig = Rig::new(EVERYWHERE);
    let token = rig.declared(r#"[{"http":{"hosts":["https://a.com"],"path_prefixes":["/v1/users"]}}]"#);
    for path in ["/v1/users", "/v1/users/7?x=/../y"] {
        assert_eq!(why(rig.call_with(&token, get(format!("https://a.com{path}"))).await), Why::ResolveFailed, "{path}");
    }
    for path in ["/v1/users2", "/v1", "/", "/v1/users/..%2fadmin", "/v1/users/%252e%252e/admin", "//v1/users"] {
        assert_eq!(
            why(rig.call_with(&token, get(format!("https://a.com{path}"))).await),
            Why::PathNotAllowed,
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_refusal_costs_no_budget_and_a_spent_budget_is_named() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let rig = Rig::new(&open(&upstream.http()));
    let ceilings = broker_svc::token::Ceilings { max_calls: 2, ..Default::default() };
    let token = rig.token_of(None, ceilings, std::time::Duration::from_secs(60));
    for _ in 0..3 {
        assert_eq!(why(rig.call_with(&token, get("https://evil.com/")).await), Why::HostNotAllowed);
    }
    for _ in 0..2 {
        assert!(rig.call_with(&token, get(upstream.http())).await.is_ok());
    }
    assert_eq!(why(rig.call_with(&token, get(upstream.http())).await), Why::CallsExhausted);
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn a_rate_holds_for_all_effects_of_a_tool_together_and_refusals_cost_nothing_of_it() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let hosts = format!("\"{}\", \"https://inside.com\", \"https://gone.com\"]", upstream.http());
    let policy = open(&upstream.http()).replace(&format!("\"{}\"]", upstream.http()), &hosts);
    let policy = policy.replace("[grants.t]", "[grants.t]\n        rate = \"2/h\"");
    let rig = Rig::new(&policy);
    let spent = broker_svc::token::Ceilings { max_calls: 0, ..Default::default() };
    let spent = rig.token_of(None, spent, std::time::Duration::from_secs(60));
    rig.name("inside.com", &[&["10.0.0.1"]]).name("gone.com", &[&[]]);
    for _ in 0..3 {
        assert_eq!(rig.why(get("https://evil.com/")).await, Why::HostNotAllowed);
        assert_eq!(why(rig.call_with(&spent, get(upstream.http())).await), Why::CallsExhausted);
        assert_eq!(rig.why(get("https://inside.com/")).await, Why::PrivateAddress);
        assert_eq!(rig.why(get("https://gone.com/")).await, Why::ResolveFailed);
    }
    for _ in 0..2 {
        assert!(rig.call(get(upstream.http())).await.is_ok());
    }
    let refused = rig.call(get(upstream.http())).await.err().unwrap().refusal;
    assert_eq!(refused.why, Why::RateExceeded);
    assert!(refused.text.contains("2/h"), "{refused}");
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn a_writing_call_carries_a_key_of_its_own_where_the_grant_says_that_the_upstream_honours_it() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let policy = open(&upstream.http()).replace("[grants.t]", "[grants.t]\n        idempotency_key = true");
    let rig = Rig::new(&policy);
    let token = rig.token();
    for (method, ordinal) in [("POST", 0), ("POST", 0), ("POST", 1), ("GET", 2)] {
        let request = Request { ordinal: Some(ordinal), ..calling(method, &upstream.http()) };
        rig.call_with(&token, request).await.ok().unwrap();
    }
    let keys: Vec<_> = upstream
        .requests()
        .iter()
        .map(|sent| sent.split("idempotency-key: ").nth(1).map(|rest| rest[..64].to_owned()))
        .collect();
    assert!(keys[0].is_some() && keys[0] == keys[1] && keys[0] != keys[2], "{keys:?}");
    assert_eq!(keys[3], None);
    let plain = Rig::new(&open(&upstream.http()));
    plain.call(calling("POST", &upstream.http())).await.ok().unwrap();
    assert!(!upstream.requests()[4].contains("idempotency-key"));
}

#[tokio::test]
async fn a_repeated_effect_names_its_writing_calls_alike_whatever_was_refused_or_read_between() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let policy = open(&upstream.http()).replace("[grants.t]", "[grants.t]\n        idempotency_key = true");
    let rig = Rig::new(&policy);
    let first = rig.token();
    for _ in 0..2 {
        assert_eq!(why(rig.call_with(&first, calling("POST", "https://evil.com/")).await), Why::HostNotAllowed);
        rig.call_with(&first, calling("GET", &upstream.http())).await.ok().unwrap();
        rig.call_with(&first, calling("POST", &upstream.http())).await.ok().unwrap();
    }
    let again = rig.token();
    for _ in 0..2 {
        rig.call_with(&again, calling("POST", &upstream.http())).await.ok().unwrap();
    }
    let sent = upstream.requests();
    let keys: Vec<_> = sent.iter().filter_map(|sent| Some(&sent.split("idempotency-key: ").nth(1)?[..64])).collect();
    assert_eq!(keys.len(), 4);
    assert!(keys[..2] == keys[2..] && keys[0] != keys[1], "{keys:?}");
}

#[tokio::test]
async fn one_record_for_each_call_and_each_distinct_refusal() {
    let upstream = Upstream::plain(|_, out| ok(out, "hi"));
    let rig = Rig::new(&open(&upstream.http()));
    let token = rig.token();
    for _ in 0..3 {
        assert!(rig.call_with(&token, get(format!("{}/p?secret=1", upstream.http()))).await.is_ok());
        assert_eq!(why(rig.call_with(&token, get("https://evil.com/x?secret=1")).await), Why::HostNotAllowed);
    }
    let records = rig.broker.audit.list("run-1", u64::MAX, 100);
    let reasons: Vec<_> = records.iter().map(|record| record.why.map(Why::code)).collect();
    assert_eq!(reasons, [None, None, Some("host_not_allowed"), None]);
    assert!(records.iter().all(|record| !format!("{record:?}").contains("secret=1")));
    assert_eq!((records[0].path.as_str(), records[0].status, records[0].response_bytes), ("/p", 200, 2));
}

#[test]
fn the_policys_digest_is_of_what_it_means_and_holds_no_secret() {
    let one = policy_of("[policy]\nallow_hosts = [\"https://b.com\", \"https://A.com:443\"]\n[grants.t]\n").unwrap();
    let same = policy_of(
        "[grants.t]\nmethods = [\"HEAD\", \"GET\"]\n[policy]\nallow_hosts = [\"https://a.com\", \"https://b.com\"]\n",
    )
    .unwrap();
    let other = policy_of("[policy]\nallow_hosts = [\"https://a.com\"]\n[grants.t]\n").unwrap();
    assert_eq!(one.digest(), same.digest());
    assert_ne!(one.digest(), other.digest());
}
