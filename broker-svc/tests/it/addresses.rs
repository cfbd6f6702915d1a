//! Case U12: what a name resolves to, and where the connection goes.

use std::sync::atomic::Ordering;

use broker_svc::refusal::Why;

use crate::{
    rig::{Rig, get, open, with},
    upstream::{Upstream, echo, ok},
};

#[tokio::test]
async fn u12_one_lookup_serves_both_the_check_and_the_connection() {
    let upstream = Upstream::tls(|_, out| ok(out, "vetted"));
    let other = Upstream::tls_at([127, 0, 0, 2].into(), upstream.address.port());
    let url = upstream.https("api.good.com");
    let rig = Rig::new(&open(&url));
    rig.name("api.good.com", &[&["127.0.0.1"], &["127.0.0.2"]]);
    let done = rig.call(get(&url)).await.ok().unwrap();
    assert_eq!(done.body, b"vetted");
    assert_eq!(rig.names.lookups.load(Ordering::SeqCst), 1);
    assert_eq!(other.connections(), 0);
    // The next call is decided anew, and a connection to the old address is not reused for the new one.
    assert_eq!(rig.call(get(&url)).await.ok().unwrap().body, b"elsewhere");
    assert_eq!(rig.names.lookups.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn u12_one_inner_address_among_public_ones_spoils_them_all() {
    let upstream = Upstream::tls(|_, out| ok(out, "reached"));
    let url = upstream.https("api.good.com");
    let closed = open(&url).replace("allow_private = [\"127.0.0.0/8\"]", "");
    for answers in
        [&["127.0.0.1"][..], &["93.184.216.34", "127.0.0.1"], &["93.184.216.34", "::1"], &["::ffff:127.0.0.1"]]
    {
        let rig = Rig::new(&closed);
        rig.name("api.good.com", &[answers]);
        let refused = rig.call(get(&url)).await.err().unwrap();
        assert_eq!(refused.refusal.why, Why::PrivateAddress, "{answers:?}");
        assert!(answers.iter().all(|address| !refused.refusal.text.contains(address)), "{}", refused.refusal.text);
    }
    assert_eq!(upstream.connections(), 0);
}

#[tokio::test]
async fn u12_a_name_without_address_or_with_too_many_is_refused() {
    let rig = Rig::new(&open("https://api.good.com"));
    assert_eq!(rig.why(get("https://api.good.com/")).await, Why::ResolveFailed);
    let many: Vec<_> = (0..65).map(|last| format!("93.184.216.{last}")).collect();
    rig.name("api.good.com", &[&many.iter().map(String::as_str).collect::<Vec<_>>()]);
    assert_eq!(rig.why(get("https://api.good.com/")).await, Why::ResolveFailed);
}

#[tokio::test]
async fn h1_the_certificate_and_the_host_header_are_the_vetted_hosts() {
    let upstream = Upstream::tls(echo);
    let url = upstream.https("api.good.com");
    let rig = Rig::new(&open(&url));
    rig.name("api.good.com", &[&["127.0.0.1"]]);
    let done = rig.call(get(format!("{url}/a?b=c"))).await.ok().unwrap();
    let sent = String::from_utf8(done.body).unwrap();
    assert!(sent.starts_with("GET /a?b=c HTTP/1.1\r\n"), "{sent}");
    assert!(sent.contains(&format!("\r\nhost: api.good.com:{}\r\n", upstream.address.port())), "{sent}");

    let wrong = upstream.https("evil.good.com");
    let rig = Rig::new(&open(&wrong));
    rig.name("evil.good.com", &[&["127.0.0.1"]]);
    assert_eq!(rig.why(with(&wrong, "a")).await, Why::ConnectFailed, "the certificate is for other names");
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn connections_are_not_shared_between_credentials() {
    let upstream = Upstream::tls(|_, out| ok(out, ""));
    let url = upstream.https("api.good.com");
    let policy = format!("{}\n[credentials.b]\nkind = \"bearer\"\nfrom = \"$b\"\nhosts = [\"{url}\"]\n", open(&url))
        .replace("credentials = [\"a\"]", "credentials = [\"a\", \"b\"]");
    let rig = Rig::new(&policy);
    rig.name("api.good.com", &[&["127.0.0.1"]]);
    for credential in ["a", "a", "b", "b"] {
        rig.call(with(&url, credential)).await.ok().unwrap();
    }
    assert_eq!(upstream.connections(), 2);
    assert_eq!(upstream.requests().len(), 4);
}
