//! Case group S: the canary is seen by the upstream alone, whatever goes wrong.

use std::{io::Write, time::Duration};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE},
};
use broker_svc::broker::CallBounds;
use proto::broker::v1::{FetchRequest, broker_service_client::BrokerServiceClient};

use crate::{
    doors::minting,
    process::Process,
    rig::{CANARY, CANARY_B, LOG, Rig, get, open, spellings, spellings_of, with},
    upstream::{Upstream, echo, reply},
};

/// What stands before a canary in a text, in any spelling that a leak could have.
fn leaks(text: &str) -> Option<String> {
    let at = spellings().iter().filter_map(|spelling| text.find(spelling.as_str())).min()?;
    Some(text[text.floor_char_boundary(at.saturating_sub(200))..at].to_owned())
}

/// Writes and ends the connection.
fn ends_with(out: &mut dyn Write, bytes: &[u8]) -> bool {
    out.write_all(bytes).unwrap();
    false
}

#[test]
fn s2_a_leak_is_found_in_every_spelling_and_wherever_it_stands() {
    for secret in [CANARY, CANARY_B, "client-canary-s:cret/8"] {
        let percent = |case: fn(u8) -> String| secret.bytes().map(case).collect::<String>();
        let mut planted = vec![
            secret.to_owned(),
            hex::encode(secret),
            hex::encode_upper(secret),
            percent(|byte| format!("%{byte:02x}")),
            percent(|byte| format!("%{byte:02X}")),
            secret.replace('/', "%2F").replace('+', "%2B"),
            format!("{:?}", secret.as_bytes()),
            serde_json::to_string(secret.as_bytes()).unwrap(),
        ];
        for before in ["", "u", "me:", "user"] {
            for engine in [STANDARD, URL_SAFE] {
                planted.push(engine.encode(format!("{before}{secret}")));
                planted.push(engine.encode(format!("{before}{secret} and more")));
            }
        }
        for spelling in planted {
            for text in [
                format!("areev_broker_calls_total{{credential=\"{spelling}\"}} 1\n"),
                format!("{{\"level\":\"TRACE\",\"cause\":\"{spelling}\"}}"),
                spelling.clone(),
            ] {
                assert!(leaks(&text).is_some(), "{text}");
            }
        }
    }
    assert_eq!(leaks("a bird that sings, in hex 6361, in base64 Y2Fu, in percent %63%61"), None);
}

#[tokio::test]
async fn s2_s3_neither_log_nor_error_nor_record_nor_metric_holds_the_secret() {
    proto::telemetry::metrics();
    let good = Upstream::tls(echo);
    let url = good.https("api.good.com");
    let rig = Rig::new(&open(&url));
    rig.name("api.good.com", &[&["127.0.0.1"]]);
    let mut said = String::new();
    for _ in 0..2 {
        let done = rig.call(with(format!("{url}/?q=1"), "a")).await.ok().unwrap();
        said.push_str(&format!("{:?} {:?} {:?}", String::from_utf8_lossy(&done.body), done.headers, done.record));
    }
    assert!(good.requests()[0].contains(CANARY), "the upstream got it");

    // What fails: nobody listens, wrong certificate, no TLS at all, an answer that is no HTTP, one that breaks off.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let wrong_name = Upstream::tls(echo);
    let no_tls = Upstream::plain(echo);
    let no_http = Upstream::tls(|_, out| ends_with(out, b"garbage\r\n\r\n"));
    let broken = Upstream::tls(|_, out| ends_with(out, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"));
    let hostile =
        Upstream::tls(|_, out| reply(out, &format!("500 {CANARY}"), &[("Location", CANARY)], CANARY.as_bytes()));
    let places = [
        format!("https://127.0.0.1:{}", gone.port()),
        wrong_name.https("wrong.good.com"),
        format!("https://127.0.0.1:{}", no_tls.address.port()),
        no_http.https("127.0.0.1"),
        broken.https("127.0.0.1"),
        hostile.https("127.0.0.1"),
    ];
    for place in places {
        // The one that waits for a request in plain text while it is spoken to in TLS ends by time.
        let bounds = CallBounds { call_max: Duration::from_secs(1), ..CallBounds::default() };
        let rig = Rig::bounded(&open(&place), bounds);
        rig.name("wrong.good.com", &[&["127.0.0.1"]]);
        let query = "?key=query-canary";
        match rig.call(with(format!("{place}/x{query}"), "a")).await {
            Ok(done) => said.push_str(&format!("{:?} {:?}", String::from_utf8_lossy(&done.body), done.headers)),
            Err(denied) => {
                let text = format!("{denied:?} {:#} {}", denied.refusal, denied.refusal.text);
                assert!(!text.contains("query-canary"), "{text}");
                assert!(!text.contains("127.0.0.1:") || place.contains("127.0.0.1"), "{text}");
                said.push_str(&text);
            }
        }
        said.push_str(&format!("{:?}", rig.broker.audit.list("", u64::MAX, 100)));
    }
    said.push_str(&proto::telemetry::metrics().render());
    assert_eq!(leaks(&said), None);
    // The log of every test of this program, at trace.
    let log = LOG.text();
    assert!(log.contains("TRACE"), "the log is at its finest level");
    assert_eq!(leaks(&log), None);
    assert!(!log.contains("query-canary"), "no URL's query is logged");
}

#[tokio::test]
async fn s3_a_certificate_that_repeats_what_its_server_was_shown_is_not_repeated_in_the_log() {
    // As the name of a host has it: what was shown before stands in the certificate that is shown now.
    const SHOWN: &str = "sparrow-shown-7";
    let server = Upstream::tls_as(&[&format!("{SHOWN}.evil.example")], echo);
    let (place, good) = (server.https("127.0.0.1"), Upstream::tls(echo));
    let resource = good.https("127.0.0.1");
    let minted = format!("kind = \"oauth2_client_credentials\"\ntoken_url = \"{place}/token\"\nclient_id = \"me\"");
    let minted = open(&resource).replace("kind = \"bearer\"", &minted);
    let vault = open(&resource).replace("from = \"$a\"", "from = \"vault:secret/data/bank#token\"")
        + &format!("\n[vault]\naddress = \"{place}\"\ntoken = \"$a\"\n");
    // A call of a tool, one for a token, one for a secret.
    for (policy, url) in [(open(&place), &place), (minted, &resource), (vault, &resource)] {
        let reached = format!("allow_hosts = [\"{resource}\", \"{place}\"]");
        let policy = policy.replace("$a", "env:SECRET").replace(&format!("allow_hosts = [\"{url}\"]"), &reached);
        let (mut process, _files) = Process::start(&policy, &[("SECRET", SHOWN)]);
        let grpc = process.address("listening");
        let mut client = BrokerServiceClient::connect(format!("http://{grpc}")).await.unwrap();
        let token = client.mint_token(minting("n")).await.unwrap().into_inner().token;
        let fetch = FetchRequest { token, url: url.clone(), credential: Some("a".into()), ..FetchRequest::default() };
        let refused = client.fetch(fetch).await.unwrap_err();
        let log = tokio::task::spawn_blocking(|| process.end()).await.unwrap();
        assert!(log.contains("TRACE") && log.contains("[redacted].evil.example"), "the failure is told");
        for text in [&log, refused.message()] {
            for spelling in spellings_of(SHOWN) {
                assert!(!text.contains(&spelling), "{}", &text[text.find(&spelling).unwrap_or_default()..]);
            }
        }
    }
    assert_eq!(good.requests().len() + server.requests().len(), 0);
}

#[tokio::test]
async fn s3_a_token_endpoint_whose_error_code_is_what_it_was_shown_is_not_repeated() {
    const SHOWN: &str = "canary_of_small_letters";
    let server = Upstream::tls(|_, out| {
        let body = format!("{{\"error\":\"{SHOWN}\"}}");
        reply(out, "400 Bad Request", &[("Content-Type", "application/json")], body.as_bytes())
    });
    let place = server.https("127.0.0.1");
    let policy = open(&place).replace(
        "kind = \"bearer\"",
        &format!("kind = \"oauth2_client_credentials\"\ntoken_url = \"{place}/token\"\nclient_id = \"me\""),
    );
    let rig = Rig::new(&policy);
    std::fs::write(rig.files.path().join("a"), SHOWN).unwrap();
    let denied = rig.call(with(&place, "a")).await.err().unwrap();
    assert!(!denied.refusal.text.contains("canary"), "{}", denied.refusal.text);
    assert_eq!(server.requests().len(), 1);
    assert!(LOG.text().contains("the token endpoint refused, with a code of its own"));
}

#[tokio::test]
async fn s4_s5_what_describes_the_policy_names_places_and_never_values() {
    let rig = Rig::new(&open("https://api.good.com"));
    let described = format!("{:?} {}", rig.broker.in_force().policy, rig.broker.in_force().digest);
    assert!(described.contains("File("), "{described}");
    assert_eq!(leaks(&described), None);
    // A failed call leaves the next one as it was.
    assert!(rig.call(get("https://api.good.com/")).await.is_err());
    assert!(rig.call(get("https://api.good.com/")).await.is_err());
}
