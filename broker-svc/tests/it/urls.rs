//! Case group U, as far as URLs and host patterns go.

use std::sync::Arc;

use broker_svc::{
    decide::{Ask, Right, decide},
    refusal::Why,
    target::Target,
};
use proto::broker::v1::FetchRequest;

use crate::{
    doors::{Doors, minting},
    rig::{EVERYWHERE, Rig, get, open, with},
    upstream::{Upstream, ok},
};

#[tokio::test]
async fn u2_both_doors_say_of_a_metadata_service_that_there_is_nothing_to_configure() {
    let mut doors = Doors::open(Arc::clone(&Rig::new(EVERYWHERE).broker)).await;
    let token = doors.grpc.mint_token(minting("n")).await.unwrap().into_inner().token;
    for host in ["169.254.169.254", "[fd00:ec2::254]", "metadata.google.internal"] {
        let url = format!("https://{host}/latest/meta-data");
        let (status, said) = doors.post(&token, &format!("{{\"url\":{url:?}}}")).await;
        let fetch = FetchRequest { token: token.clone(), url, ..FetchRequest::default() };
        let refused = doors.grpc.fetch(fetch).await.unwrap_err();
        assert_eq!((status, refused.code()), (403, tonic::Code::PermissionDenied), "{said}");
        for text in [said["error"].as_str().unwrap(), refused.message()] {
            assert!(
                text.contains("is a metadata service: it is never reached, and there is nothing to configure"),
                "{text}"
            );
            assert!(!text.contains("allow_private"), "{text}");
        }
    }
}

#[tokio::test]
async fn u1_u2_u4_an_inner_address_is_refused_in_every_spelling() {
    let rig = Rig::new(EVERYWHERE);
    for host in [
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "017700000001",
        "127.1",
        "0251.0376.0251.0376",
        "2852039166",
        "127.0.0.1",
        "169.254.169.254",
        "169.254.170.2",
        "100.100.100.200",
        "192.0.0.192",
        "[fd00:ec2::254]",
        "[64:ff9b::a9fe:a9fe]",
        "[64:ff9b:1::1]",
        "[2002:a9fe:a9fe::]",
        "[2001:0:1::1]",
        "198.18.0.1",
        "192.0.0.8",
        "240.0.0.1",
        "255.255.255.255",
        "224.0.0.1",
        "[ff02::1]",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[fe80::1]",
        "0.0.0.0",
        "10.0.0.1",
        "metadata.google.internal",
        "METADATA.google.internal.",
        "localhost",
        "LOCALHOST.",
        "x.localhost",
        "printer",
        "kubernetes.default.svc",
        "api.payments.svc.cluster.local",
        "printer.local",
        "db.internal",
    ] {
        assert_eq!(rig.why(get(format!("https://{host}/"))).await, Why::PrivateAddress, "{host}");
    }
    assert_eq!(rig.names.lookups.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[tokio::test]
async fn u2_metadata_is_refused_even_where_policy_grant_and_allow_private_name_it() {
    let rig = Rig::new(
        r#"
        [policy]
        allow_hosts = ["https://169.254.169.254", "https://[fd00:ec2::254]", "https://metadata.google.internal", "https://api.good.com"]
        allow_private = ["0.0.0.0/0", "::/0"]
        [grants.t]
        hosts = ["https://169.254.169.254", "https://[fd00:ec2::254]", "https://metadata.google.internal", "https://api.good.com"]
        "#,
    );
    rig.name("api.good.com", &[&["169.254.169.254"]]);
    for host in ["169.254.169.254", "2852039166", "[fd00:ec2::254]", "metadata.google.internal", "api.good.com"] {
        assert_eq!(rig.why(get(format!("https://{host}/"))).await, Why::PrivateAddress, "{host}");
    }
}

#[tokio::test]
async fn u2_names_of_this_host_and_its_cluster_are_refused_without_a_lookup_whatever_the_policy_names() {
    let rig = Rig::new(
        r#"
        [policy]
        allow_hosts = ["https://localhost", "https://db", "https://api.payments.svc.cluster.local"]
        allow_private = ["0.0.0.0/0", "::/0"]
        [grants.t]
        "#,
    );
    for host in ["localhost", "db", "api.payments.svc.cluster.local"] {
        rig.name(host, &[&["10.0.0.1"]]);
        let refused = rig.call(get(format!("https://{host}/"))).await.err().unwrap().refusal;
        assert_eq!(refused.why, Why::PrivateAddress, "{host}");
        assert!(refused.text.contains("never looked up"), "{refused}");
    }
    assert_eq!(rig.names.lookups.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[test]
fn u5_the_neighbours_of_private_ranges_are_left_to_the_policy() {
    let policy = broker_svc::config::policy_of(EVERYWHERE).unwrap();
    let right = Right { tool: "t", definition: "", principal: "", declaration: None, own: None };
    for host in ["100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0", "11.0.0.1", "169.253.255.255"] {
        let target = Target::parse(&format!("https://{host}/")).unwrap();
        let ask = Ask { target: &target, method: "GET", credential: None, headers: &[] };
        assert!(decide(&policy, right, ask).is_ok(), "{host}");
    }
}

#[tokio::test]
async fn u7_userinfo_and_urls_that_are_not_absolute_are_rejected() {
    let rig = Rig::new(EVERYWHERE);
    for url in ["https://api.good.com@evil.com/", "https://user:pw@api.good.com/", "https://api.good.com:443@evil.com"]
    {
        assert_eq!(rig.why(get(url)).await, Why::UserinfoNotAllowed, "{url}");
    }
    for url in
        ["//evil.com/x", "/x", "https:evil.com", "https:///evil.com", "https://a.com\\.b.com/", "https://a.com/%2e%2e/"]
    {
        assert_eq!(rig.why(get(url)).await, Why::InvalidUrl, "{url}");
    }
}

#[tokio::test]
async fn u9_a_wildcard_grant_means_names_below_only() {
    let rig = Rig::new("[policy]\nunrestricted = true\n[grants.t]\nhosts = [\"https://*.googleapis.com\"]\n");
    for host in ["evilgoogleapis.com", "googleapis.com.evil.com", "googleapis.com"] {
        assert_eq!(rig.why(get(format!("https://{host}/"))).await, Why::HostNotAllowed, "{host}");
    }
    // Allowed: what fails then is the lookup, for the script has no such name.
    for host in ["a.b.googleapis.com", "GMAIL.googleapis.com."] {
        assert_eq!(rig.why(get(format!("https://{host}/"))).await, Why::ResolveFailed, "{host}");
    }
}

#[tokio::test]
async fn u10_a_lookalike_in_other_letters_is_another_host() {
    let rig = Rig::new("[policy]\nallow_hosts = [\"https://api.good.com\"]\n[grants.t]\n");
    assert_eq!(rig.why(get("https://аpi.good.com/")).await, Why::InvalidUrl);
    assert_eq!(rig.why(get("https://xn--pi-7kc.good.com/")).await, Why::HostNotAllowed);
    assert_eq!(rig.why(get("https://xn--example-.org/")).await, Why::InvalidUrl);
}

#[tokio::test]
async fn u11_plain_http_and_other_schemes_are_refused_where_the_grant_says_https() {
    let rig = Rig::new(&open("https://api.good.com"));
    for scheme in ["http", "ftp", "ws", "gopher"] {
        assert_eq!(rig.why(get(format!("{scheme}://api.good.com/"))).await, Why::SchemeNotAllowed, "{scheme}");
    }
    for url in ["file:///etc/passwd", "data:text/plain,x"] {
        assert_eq!(rig.why(get(url)).await, Why::SchemeNotAllowed, "{url}");
    }
    let unrestricted = Rig::new(EVERYWHERE);
    assert_eq!(unrestricted.why(get("http://api.good.com/")).await, Why::SchemeNotAllowed);
}

#[tokio::test]
async fn u11_a_credential_goes_over_plain_http_only_where_its_own_hosts_and_allow_private_say_so() {
    let upstream = Upstream::plain(|_, out| ok(out, "hello"));
    let url = upstream.http();
    assert_eq!(Rig::new(&open(&url)).call(with(&url, "a")).await.ok().unwrap().status, 200);
    assert!(upstream.requests()[0].contains("authorization: Bearer canary"));

    let https_only = open(&url).replace(
        &format!("from = \"$a\"\n        hosts = [\"{url}\"]"),
        "from = \"$a\"\n        hosts = [\"https://127.0.0.1\"]",
    );
    assert_eq!(Rig::new(&https_only).why(with(&url, "a")).await, Why::SchemeNotAllowed);

    // A public address, were it reached, would get the secret in clear: refused before anything is sent.
    let public = Rig::new(&open("http://api.good.com"));
    public.name("api.good.com", &[&["93.184.216.34"]]);
    assert_eq!(public.why(with("http://api.good.com/", "a")).await, Why::SchemeNotAllowed);
    assert_eq!(upstream.connections(), 1);
}
