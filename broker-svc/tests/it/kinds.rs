//! Case C2 and C3: each kind of credential on the wire, byte for byte, and nothing else that carries it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use broker_svc::{broker::Request, config::policy_of, in_force::InForce, refusal::Why};

use crate::{
    rig::{CANARY, Rig, get, with},
    upstream::{Upstream, echo, ok},
};

/// A policy with one credential `c` of this kind; `$a` is the file with the canary.
fn policy(origin: &str, kind: &str) -> String {
    format!(
        r#"
        [policy]
        allow_hosts = ["{origin}"]
        allow_private = ["127.0.0.0/8"]
        [credentials.c]
        {kind}
        from = "$a"
        hosts = ["{origin}"]
        [grants.t]
        credentials = ["c"]
        methods = ["GET", "POST"]
        hosts = ["{origin}"]
        "#
    )
}

#[tokio::test]
async fn c2_c3_a_basic_credential_is_the_pair_in_base64_once() {
    let upstream = Upstream::plain(echo);
    let url = upstream.http();
    for (kind, value, pair) in [
        ("kind = \"basic\"\nuser = \"alice\"", CANARY.to_owned(), format!("alice:{CANARY}")),
        ("kind = \"basic\"\nuser = \"ålice\"", "pä:ss wörd".to_owned(), "ålice:pä:ss wörd".to_owned()),
        ("kind = \"basic\"", format!("alice:{CANARY}"), format!("alice:{CANARY}")),
        // Some upstreams take a key as the user and no password.
        ("kind = \"basic\"", format!("{CANARY}:"), format!("{CANARY}:")),
    ] {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), value).unwrap();
        let rig = Rig::new(&policy(&url, kind).replace("$a", &format!("file:{}", file.path().display())));
        let done = rig.call(with(&url, "c")).await.ok().unwrap();
        let sent = upstream.requests().pop().unwrap();
        let line = format!("\r\nauthorization: Basic {}\r\n", STANDARD.encode(&pair));
        assert_eq!(sent.matches(&line).count(), 1, "{sent}");
        assert_eq!(sent.to_ascii_lowercase().matches("authorization").count(), 1);
        let back = String::from_utf8(done.body).unwrap();
        assert!(back.contains("[redacted]") && !back.contains(&STANDARD.encode(&pair)), "{back}");
    }
}

#[tokio::test]
async fn r1_what_is_sent_of_a_pair_or_a_parameter_is_taken_out_however_it_comes_back() {
    let units = |text: &str| -> String {
        let unit = |unit: u16| match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii() => char::from(byte).to_string(),
            _ => format!("\\u{unit:04x}"),
        };
        text.encode_utf16().map(unit).collect()
    };
    let (password, key) = ("pässwört-😀-canary", "my canary key");
    let basic = STANDARD.encode(format!("alice:{password}"));
    let pair = "kind = \"basic\"\nuser = \"alice\"";
    let parameter = "kind = \"query\"\nparameter = \"key\"";
    for (kind, value, echo) in [
        (pair, password, units(password)),
        (pair, password, password.chars().map(|letter| format!("&#{};", u32::from(letter))).collect()),
        (pair, password, password.chars().map(|letter| format!("&#x{:x};", u32::from(letter))).collect()),
        (pair, password, basic.clone()),
        (pair, password, hex::encode(&basic)),
        (pair, password, STANDARD.encode(&basic)),
        (parameter, key, "my+canary+key".into()),
        (parameter, key, "my%20canary%20key".into()),
        (parameter, key, hex::encode("my+canary+key")),
        (parameter, key, STANDARD.encode("my+canary+key")),
        (parameter, key, key.into()),
    ] {
        let said = echo.clone();
        let upstream = Upstream::plain(move |_, out| ok(out, &said));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), value).unwrap();
        let url = upstream.http();
        let rig = Rig::new(&policy(&url, kind).replace("$a", &format!("file:{}", file.path().display())));
        let body = String::from_utf8(rig.call(with(&url, "c")).await.ok().unwrap().body).unwrap();
        assert!(body.contains("[redacted]"), "{echo} -> {body}");
        // What is left of base64 are the few letters that depend on its neighbours too.
        assert!(body.replace("[redacted]", "").len() <= 8, "{echo} -> {body}");
    }
}

#[test]
fn c3_a_colon_in_the_user_and_a_value_without_one_are_refused_when_loaded() {
    let refused = policy_of(&policy("https://a.com", "kind = \"basic\"\nuser = \"a:b\"")).unwrap_err().to_string();
    assert!(refused.contains("[credentials.c] user") && refused.contains(':'), "{refused}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = policy("https://a.com", "kind = \"basic\"").replace("$a", &format!("file:{}", file.path().display()));
    for (value, word) in [("no-colon", "user"), (":password", "user"), ("", "empty"), ("a:\u{1}", "control")] {
        std::fs::write(file.path(), value).unwrap();
        let error = InForce::open(policy_of(&text).unwrap(), None).err().unwrap().to_string();
        assert!(error.contains("credential c") && error.contains(word), "{error}");
    }
    // A user in the configuration and no password is a credential that is not there.
    let text = text.replace("kind = \"basic\"", "kind = \"basic\"\nuser = \"a\"");
    std::fs::write(file.path(), "\n").unwrap();
    assert!(InForce::open(policy_of(&text).unwrap(), None).is_err());
}

#[tokio::test]
async fn c2_a_query_credential_is_a_parameter_that_nobody_else_may_set() {
    let upstream = Upstream::plain(echo);
    let url = upstream.http();
    let rig = Rig::new(&policy(&url, "kind = \"query\"\nparameter = \"api_key\""));
    let done = rig.call(with(format!("{url}/v1?q=a%20b"), "c")).await.ok().unwrap();
    let sent = upstream.requests().pop().unwrap();
    let coded = CANARY.replace('/', "%2F").replace('+', "%2B");
    assert!(sent.starts_with(&format!("GET /v1?q=a%20b&api_key={coded} HTTP/1.1\r\n")), "{sent}");
    assert_eq!(sent.matches("canary").count(), 1);
    assert!(!String::from_utf8(done.body).unwrap().contains("canary"));
    assert_eq!(done.record.path, "/v1");
    for query in ["api_key=mine", "x=1&api_key", "api%5Fkey=mine", "%61pi_key=mine"] {
        assert_eq!(rig.why(with(format!("{url}/?{query}"), "c")).await, Why::ParameterNotAllowed, "{query}");
        assert_eq!(rig.why(get(format!("{url}/?{query}"))).await, Why::ParameterNotAllowed, "{query}");
    }
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn c2_a_signed_request_carries_a_signature_of_all_that_is_sent_and_no_key() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let url = upstream.http();
    let kind = "kind = \"aws_sigv4\"\naccess_key_id = \"AKIDEXAMPLE\"\nregion = \"eu-central-1\"\nservice = \"s3\"\n\
                session_token_from = \"$b\"";
    let rig = Rig::new(&policy(&url, kind));
    let post = Request { method: "POST".into(), body: "{}".into(), ..with(format!("{url}/b/k%20y?z=1&a=2"), "c") };
    rig.call(post).await.ok().unwrap();
    let sent = upstream.requests().pop().unwrap();
    let line = sent.split("\r\nauthorization: ").nth(1).unwrap().split("\r\n").next().unwrap();
    assert!(line.starts_with("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"), "{line}");
    assert!(line.contains("/eu-central-1/s3/aws4_request, SignedHeaders="), "{line}");
    for header in ["content-type", "host", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token"] {
        assert!(line.contains(header), "{header} is signed: {line}");
        assert!(sent.contains(&format!("\r\n{header}: ")), "{header} is sent: {sent}");
    }
    assert!(sent.contains("x-amz-content-sha256: 44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"));
    assert!(sent.contains(&format!("x-amz-security-token: {}\r\n", crate::rig::CANARY_B)));
    assert!(!sent.contains(CANARY), "the key itself is never sent");
    for name in ["x-amz-date", "x-amz-security-token", "x-amz-content-sha256", "authorization"] {
        let request = crate::rig::carrying(&url, &[(name, "1")]);
        assert_eq!(rig.why(request).await, Why::HeaderNotAllowed, "{name}");
    }
}
