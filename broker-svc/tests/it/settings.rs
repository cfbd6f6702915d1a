//! Case P1 and the settings: every mistake stops the start and is named, with its line.

use broker_svc::config::{Flags, policy_of};
use clap::Parser as _;

#[test]
fn p1_every_mistake_in_the_file_is_named_with_key_and_line() {
    let credential = |rest: &str| format!("[credentials.c]\n{rest}");
    let cases = [
        ("polcy = 1".to_owned(), "polcy", 1),
        ("[policy]\nallow_host = []".to_owned(), "allow_host", 2),
        ("[policy]\nallow_hosts = [\"https://*\"]".to_owned(), "[policy] allow_hosts", 2),
        ("[policy]\nallow_hosts = [\n\"https://a.com\",\n\"*\"]".to_owned(), "[policy] allow_hosts", 4),
        ("[policy]\nallow_hosts = [\"https://аpi.com\"]".to_owned(), "A-labels", 2),
        ("[policy]\nallow_private = [\"10.0.0.1/8\"]".to_owned(), "10.0.0.0/8", 2),
        ("[policy]\nunrestricted = \"yes\"".to_owned(), "unrestricted", 2),
        ("[policy]\nunrestricted = true\nunrestricted = true".to_owned(), "duplicate", 3),
        (credential("from = \"env:X\"\nhosts = [\"https://a.com\"]"), "[credentials.c] kind", 1),
        (credential("kind = \"bearer\"\nhosts = [\"https://a.com\"]"), "[credentials.c] from", 1),
        (credential("kind = \"bearer\"\nfrom = \"env:X\""), "[credentials.c] hosts", 1),
        (credential("kind = \"bearer\"\nfrom = \"env:X\"\nhosts = []"), "[credentials.c] hosts", 4),
        (credential("kind = \"bearer\"\nfrom = \"env:X\"\nhosts = [\"a.com\"]"), "[credentials.c] hosts", 4),
        (credential("kind = \"digest\"\nfrom = \"env:X\"\nhosts = [\"https://a.com\"]"), "[credentials.c] kind", 2),
        (credential("kind = \"basic\"\nuser = \"a:b\"\nfrom = \"env:X\""), "[credentials.c] user", 3),
        (credential("kind = \"bearer\"\nuser = \"a\"\nfrom = \"env:X\""), "[credentials.c] user: is no key of", 3),
        (credential("kind = \"query\"\nfrom = \"env:X\""), "[credentials.c] parameter", 1),
        (credential("kind = \"query\"\nparameter = \"a b\""), "[credentials.c] parameter", 3),
        (credential("kind = \"oauth2_refresh\"\nfrom = \"env:X\""), "[credentials.c] token_url", 1),
        (credential("kind = \"oauth2_refresh\"\ntoken_url = \"http://a.com/token\""), "plain http", 3),
        (credential("kind = \"oauth2_refresh\"\ntoken_url = \"https://u:p@a.com/\""), "userinfo", 3),
        (credential("kind = \"aws_sigv4\"\naccess_key_id = \"AKID\"\nservice = \"s3\""), "[credentials.c] region", 1),
        (credential("kind = \"bearer\"\nfrom = \"cmd:sh -c x\""), "absolute path", 3),
        (credential("kind = \"bearer\"\nfrom = \"cmd:/bin/sh -c 'x'\""), "shell", 3),
        (credential("kind = \"bearer\"\nfrom = \"vault:secret/gmail#token\""), "<mount>/data/<path>", 3),
        (
            credential("kind = \"bearer\"\nfrom = \"env:X\"\nhosts = [\"https://a.com\"]\nrefresh = \"1m\""),
            "refresh",
            5,
        ),
        (
            credential("kind = \"bearer\"\nfrom = \"cmd:/x\"\nhosts = [\"https://a.com\"]\nrefresh = \"1\""),
            "refresh",
            5,
        ),
        ("[vault]\naddress = \"http://vault:8200\"\ntoken = \"env:T\"".to_owned(), "[vault] address", 2),
        ("[vault]\naddress = \"https://vault.a.com\"\ntoken = \"cmd:/x\"".to_owned(), "[vault] token", 3),
        ("[vault]\naddress = \"https://vault.a.com\"".to_owned(), "[vault] token", 1),
        (credential("kind = \"header\"\nfrom = \"env:X\"\nhosts = [\"https://a.com\"]"), "[credentials.c] header", 1),
        (
            credential("kind = \"header\"\nheader = \"Host\"\nfrom = \"env:X\"\nhosts = [\"https://a.com\"]"),
            "[credentials.c] header",
            3,
        ),
        (
            credential("kind = \"bearer\"\nfrom = \"file:relative\"\nhosts = [\"https://a.com\"]"),
            "[credentials.c] from",
            3,
        ),
        (
            credential("kind = \"bearer\"\nfrom = \"env:X\"\nhosts = [\"https://a.com\"]\nowner = \"\""),
            "[credentials.c] owner",
            5,
        ),
        ("[grants.t]\nmethods = []".to_owned(), "[grants.t] methods", 2),
        ("[grants.t]\nmethods = [\"post\"]".to_owned(), "[grants.t] methods", 2),
        ("[grants.t]\nhosts = []".to_owned(), "[grants.t] hosts", 2),
        ("[grants.t]\nrate = \"10\"".to_owned(), "[grants.t] rate", 2),
        ("[grants.t]\nrate = \"0/s\"".to_owned(), "[grants.t] rate", 2),
        ("[grants.t]\nrate = \"+1/s\"".to_owned(), "[grants.t] rate", 2),
        ("[grants.t]\nmethod = [\"GET\"]".to_owned(), "method", 2),
        ("[grants.t]\nartifacts = {}".to_owned(), "[grants.t] artifacts", 2),
        ("[grants.t]\nartifacts = { max_request_bytes = 33554433 }".to_owned(), "[grants.t] artifacts", 2),
        ("[grants.t]\nartifacts = { max_response_bytes = 33554433 }".to_owned(), "max_response_bytes 33554433", 2),
        ("[grants.t]\nartifacts = { max_bytes = 1 }".to_owned(), "max_bytes", 2),
    ];
    for (text, word, line) in cases {
        let error = policy_of(&text).unwrap_err().to_string();
        assert!(error.contains(word), "{text}\n-> {error}");
        assert!(error.contains(&format!("line {line}:")), "{text}\n-> {error}");
    }
}

#[test]
fn a_secret_that_stands_where_its_place_should_is_not_repeated() {
    for text in [
        "[credentials.c]\nkind = \"bearer\"\nfrom = \"sk-live-1\"\nhosts = [\"https://a.com\"]",
        "[credentials.c]\nkind = \"bearer\"\nfrom = \"env:sk-live-1\"\nhosts = [\"https://a.com\"]",
        "[credentials.c]\nkind = \"bearer\"\nfrom = \"sk-live-1\nhosts = []",
        "[credentials.c]\nkind = \"bearer\"\ntoken = \"sk-live-1\"",
        "token = \"sk-live-1\"",
        "sk-live-1 = \"x\"",
        "[credentials.c]\nsk-live-1 = \"x\"",
        "egress_listen = \"sk-live-1\"",
        "call_timeout = \"sk-live-1\"",
        "[serve]\nlisten = \"sk-live-1\"",
        "[policy]\nunrestricted = \"sk-live-1\"",
        "[credentials.c]\nkind = \"sk-live-1\"\nfrom = \"env:X\"\nhosts = [\"https://a.com\"]",
        "[policy]\nallow_hosts = [\"https://user:sk-live-1@a.com\"]",
        "[policy]\nallow_hosts = [\"https://a.com/?key=sk-live-1\"]",
        "[policy]\nallow_hosts = [\"user:sk-live-1@a.com\"]",
    ] {
        let error = policy_of(text).unwrap_err().to_string();
        assert!(!error.contains("sk-live-1"), "{error}");
    }
    let number = policy_of("[credentials.c]\nkind = \"bearer\"\nfrom = 48151623").unwrap_err().to_string();
    assert!(number.contains("line 3") && !number.contains("4815"), "{number}");
    let flags = Flags::parse_from(["broker-svc", "--egress-url", "http://:sk-live-1@broker/"]);
    let error = flags.checked().err().unwrap().to_string();
    assert!(error.contains("--egress-url") && !error.contains("sk-live-1"), "{error}");
    let flags = Flags::parse_from(["broker-svc", "--credential", "c=sk-live-1"]);
    let error = flags.layered().err().unwrap().to_string();
    assert!(error.contains("--credential") && !error.contains("sk-live-1"), "{error}");
}

#[test]
fn the_command_lines_forms_mean_what_the_file_would() {
    let flags = Flags::parse_from([
        "broker-svc",
        "--credential",
        "zoho=ZOHO_TOKEN@user:runner",
        "--allow-host",
        "https://*.zoho.com",
        "--tool-egress",
        "poster:zoho:POST,PUT",
        "--tool-egress",
        "reader::",
        "--allow-private",
        "10.0.0.0/8",
    ]);
    let (flags, policy) = flags.layered().unwrap();
    let zoho = &policy.credentials["zoho"];
    assert_eq!((zoho.source.to_string().as_str(), zoho.owner.as_deref()), ("env:ZOHO_TOKEN", Some("user:runner")));
    assert!(zoho.hosts.is_none());
    let methods = |tool: &str| policy.grants[tool].methods.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        (methods("poster"), methods("reader")),
        (vec!["POST".into(), "PUT".into()], vec!["GET".into(), "HEAD".into()])
    );
    let shown = flags.shown(&policy).unwrap();
    assert!(shown.contains("env:ZOHO_TOKEN") && shown.contains("https://*.zoho.com"), "{shown}");
}

#[test]
fn flags_that_contradict_or_dangle_are_refused() {
    for (arguments, word) in [
        (vec!["--tool-egress", "t:nope:GET"], "nope"),
        (vec!["--tool-egress", "t::get"], "get"),
        (vec!["--tool-egress", "t:a:GET:x"], "TOOL:CREDENTIALS:METHODS"),
        (vec!["--tool-egress", "t::", "--tool-egress", "t::POST"], "keep one"),
        (vec!["--credential", "c=X", "--credential", "c=Y"], "keep one"),
        (vec!["--allow-host", "api.good.com"], "https://"),
        (vec!["--allow-private", "127.0.0.1"], "10.0.0.0/8"),
        // Each of several, and none that only follows from another.
        (
            vec!["--allow-host", "a.com", "--allow-host", "b.com", "--credential", "c=1", "--tool-egress", "t:c:get"],
            "--allow-host \"a.com\" does not begin with https:// or http://: write scheme://host[:port]\n\
             --allow-host \"b.com\" does not begin with https:// or http://: write scheme://host[:port]\n\
             --credential is not NAME=VAR or NAME=VAR@PRINCIPAL, where VAR names an environment variable\n\
             --tool-egress \"get\" is no method",
        ),
        (vec!["--credential", "c=1", "--tool-egress", "t:d:GET"], "\"d\" is no credential"),
    ] {
        let flags = Flags::parse_from(std::iter::once("broker-svc").chain(arguments.iter().copied()));
        let error = flags.layered().err().unwrap().to_string();
        assert!(error.contains(word), "{arguments:?} -> {error}");
    }
    for (arguments, word) in [
        (vec!["--egress-listen", "0.0.0.0:7431"], "--insecure-listen"),
        (vec!["--egress-listen", "0.0.0.0:7431", "--insecure-listen"], "--egress-url"),
        (vec!["--egress-url", "broker:7431"], "--egress-url"),
        (vec!["--call-timeout", "0s"], "--call-timeout"),
    ] {
        let flags = Flags::parse_from(std::iter::once("broker-svc").chain(arguments.iter().copied()));
        let error = match flags.check(Default::default()) {
            Ok(_) => panic!("{arguments:?} was taken"),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(word), "{arguments:?} -> {error}");
    }
}
