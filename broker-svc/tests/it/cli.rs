//! `check` and `explain`: what a person is told, offline.

use std::path::Path;

use broker_svc::{
    cli::{
        check::check,
        explain::{Question, Rules, explain},
    },
    config::Flags,
};

const POLICY: &str = r#"
[policy]
allow_hosts = ["https://gmail.googleapis.com", "https://*.zoho.com"]
allow_private = ["10.0.0.0/8"]

[credentials.gmail]
kind = "bearer"
from = "env:GMAIL_TOKEN"
hosts = ["https://gmail.googleapis.com"]
owner = "user:alice"

[credentials.zoho]
kind = "bearer"
from = "env:ZOHO_TOKEN"
hosts = ["https://*.zoho.com"]

[grants.poster]
credentials = ["gmail"]
methods = ["POST"]
"#;

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

/// What `check` says of a file with this text, and whether that is good.
pub fn checked(text: &str) -> (String, bool) {
    let file = file(text);
    let shown = check(file.path());
    (shown.text.replace(file.path().to_str().unwrap(), "FILE"), shown.good)
}

#[test]
fn check_finds_a_rule_that_speaks_of_one_that_is_not_there() {
    let (text, good) =
        checked("[policy]\nunrestricted = true\n[grants.t]\nmethods = [\"GET\"]\ncredentials = [\"zz\"]\n");
    assert!(!good && text.contains("[grants.t] credentials: \"zz\" is no credential"), "{text}");
    assert!(text.contains("--> FILE:5"), "{text}");
    let (text, good) = checked("egress_listen = \"0.0.0.0:7431\"\n");
    assert!(!good && text.contains("--insecure-listen"), "{text}");
    assert!(!check(Path::new("/no/such/file")).good);
}

#[test]
fn check_warns_of_rules_that_can_allow_nothing_and_reads_no_secret() {
    let (text, good) = checked(
        &(POLICY.replace("[\"https://gmail", "[\"https://localhost\", \"https://gmail")
            + "hosts = [\"https://gmail.googleapis.com\", \"https://b.com\"]\n"),
    );
    assert!(good, "{text}");
    for words in [
        "warning: [policy] allow_hosts: https://localhost can never be reached",
        "warning: [grants.poster] hosts: https://b.com is not in [policy] allow_hosts",
        "warning: [credentials.zoho]: it is granted to no tool",
        "FILE: fine, 3 warnings; 2 credentials, 1 grant, policy digest ",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    let (text, _) = checked("");
    assert!(text.contains("every call is refused") && text.contains("no tool is granted anything"), "{text}");
}

#[test]
fn check_warns_of_a_metadata_service_that_is_listed_and_does_not_say_that_it_could_be() {
    let (text, good) = checked(
        "[policy]\nallow_hosts = [\"https://169.254.169.254\"]\nallow_private = [\"169.254.169.254/32\", \"fd00:ec2::254/128\"]\n",
    );
    assert!(good, "{text}");
    for words in [
        "allow_hosts: https://169.254.169.254 can never be reached: 169.254.169.254 is a metadata service: it is never reached",
        "allow_private: 169.254.169.254/32 is a metadata service, which is never reached\n  --> FILE:3",
        "allow_private: fd00:ec2::254/128 is a metadata service, which is never reached\n  --> FILE:3",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
}

#[test]
fn u2_explain_says_of_a_metadata_service_that_there_is_nothing_to_configure() {
    for host in ["169.254.169.254", "[fd00:ec2::254]", "[::ffff:169.254.169.254]", "metadata.google.internal"] {
        let (text, good) = explained(asking("POST", &format!("https://{host}/"), None));
        assert!(!good && text.starts_with("denied[private_address]: "), "{text}");
        for words in [
            "is a metadata service: it is never reached, and there is nothing to configure\n  --> --url\n",
            "NO: a metadata service\n",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert!(!text.contains("allow_private") && !text.contains("help"), "{text}");
    }
}

fn explained(question: Question) -> (String, bool) {
    let file = file(POLICY);
    let flags = Flags::of_file(file.path());
    let (policy, places) = flags.checked().unwrap();
    let shown = explain(&Rules { policy: &policy, file: flags.config, places }, &question);
    (shown.text.replace(file.path().to_str().unwrap(), "FILE"), shown.good)
}

fn asking(method: &str, url: &str, credential: Option<&str>) -> Question {
    Question {
        tool: "poster".into(),
        url: url.into(),
        method: method.into(),
        credential: credential.map(str::to_owned),
        principal: "user:alice".into(),
        ..Question::default()
    }
}

#[test]
fn explain_names_the_rule_that_answers_each_question_yes() {
    let (text, good) = explained(asking("POST", "https://gmail.googleapis.com/v1/x?secret=1", Some("gmail")));
    assert!(good, "{text}");
    for words in [
        "allowed: POST https://gmail.googleapis.com/v1/x by tool \"poster\" with credential \"gmail\"",
        "https://gmail.googleapis.com in FILE:3 [policy] allow_hosts",
        "methods POST; hosts what the policy allows: FILE:17 [grants.poster]",
        "bearer from env:GMAIL_TOKEN, for https://gmail.googleapis.com, for runs of user:alice: FILE:6 [credentials.gmail]",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    assert!(!text.contains("secret=1"), "{text}");
    // The type of a body is its own field of a call, however the caller words it.
    let typed = asking("POST", "https://gmail.googleapis.com/v1/x", None);
    let typed = Question { headers: vec!["Content-Type".into()], ..typed };
    let (text, good) = explained(typed);
    assert!(good, "{text}");
    let (text, good) = explained(asking("POST", "https://accounts.zoho.com/", None));
    assert!(good && text.contains("https://*.zoho.com in FILE:3"), "{text}");
}

#[test]
fn explain_says_how_large_artifacts_may_be_and_which_rule_gives_none() {
    let policy = POLICY.to_owned() + "artifacts = { max_request_bytes = 10, max_response_bytes = 2000 }\n";
    let clause = r#"{"hosts":["https://gmail.googleapis.com"],"methods":["POST"],"artifacts":{"max_request_bytes":99,"max_response_bytes":99}}"#;
    let asked = |policy: &str, body, capabilities: String| {
        let file = file(policy);
        let flags = Flags::of_file(file.path());
        let (policy, places) = flags.checked().unwrap();
        let question = Question {
            capabilities: Some(capabilities),
            artifact_body: Some(body),
            artifact_answer: true,
            ..asking("POST", "https://gmail.googleapis.com/v1", None)
        };
        let shown = explain(&Rules { policy: &policy, file: flags.config, places }, &question);
        (shown.text.replace(file.path().to_str().unwrap(), "FILE"), shown.good)
    };
    let (text, good) = asked(&policy, 10, format!("[{{\"http\":{clause}}}]"));
    assert!(good && text.contains("artifacts    a request body of 10 bytes, an answer of at most 99 bytes"), "{text}");
    assert!(text.contains("artifacts of 10 bytes out and 2000 back: FILE:17 [grants.poster]"), "{text}");
    let (text, good) = asked(&policy, 11, format!("[{{\"http\":{clause}}}]"));
    assert!(!good && text.starts_with("denied[request_too_large]: the artifact has 11 bytes, over the 10"), "{text}");
    assert!(text.contains("--> FILE:20 [grants.poster] artifacts"), "{text}");
    let (text, good) = asked(POLICY, 1, format!("[{{\"http\":{clause}}}]"));
    assert!(!good && text.starts_with("denied[artifact_not_allowed]: artifacts are not granted to tool"), "{text}");
    assert!(text.contains("--> FILE:17 [grants.poster] artifacts"), "{text}");
}

#[test]
fn explain_names_the_rule_that_says_no_and_what_to_write() {
    let gmail = "https://gmail.googleapis.com/";
    for (question, words) in [
        (
            asking("POST", "https://evil.com/", None),
            vec!["denied[host_not_allowed]", "--> FILE:3 [policy] allow_hosts", "add \"https://evil.com\""],
        ),
        (
            asking("GET", gmail, None),
            vec!["denied[method_not_allowed]", "--> FILE:19 [grants.poster] methods", "NO: methods POST"],
        ),
        (
            asking("POST", gmail, Some("zoho")),
            vec![
                "denied[credential_not_granted]",
                "--> FILE:18 [grants.poster] credentials",
                "it exists: add \"zoho\"",
            ],
        ),
        (asking("POST", gmail, Some("nope")), vec!["denied[credential_not_granted]", "there is no [credentials.nope]"]),
        (
            asking("POST", "https://a.zoho.com/", Some("gmail")),
            vec!["denied[credential_host_mismatch]", "--> FILE:9 [credentials.gmail] hosts"],
        ),
        (
            Question { principal: "user:bob".into(), ..asking("POST", gmail, Some("gmail")) },
            vec!["denied[credential_owner_mismatch]", "--> FILE:10 [credentials.gmail] owner"],
        ),
        (
            Question { tool: "other".into(), ..asking("GET", gmail, None) },
            vec!["denied[tool_not_granted]", "there are poster", "add [grants.other]"],
        ),
        (
            asking("POST", "https://10.1.2.3/", None),
            vec!["denied[host_not_allowed]", "inner, and listed in FILE:4 [policy] allow_private"],
        ),
        (
            asking("POST", "https://192.168.1.1/", None),
            vec!["192.168.1.1 is a private, local", "--> FILE:4 [policy] allow_private", "NO: an inner address"],
        ),
        (
            asking("POST", "https://localhost/", None),
            vec!["denied[private_address]", "--> --url\n", "NO: a name that is never looked up"],
        ),
        (
            asking("POST", "https://u:p@gmail.googleapis.com/", None),
            vec!["denied[userinfo_not_allowed]", "before any rule"],
        ),
        (
            Question { headers: vec!["Cookie".into()], ..asking("POST", gmail, None) },
            vec!["denied[header_not_allowed]", "\"cookie\"", "--> --header\n"],
        ),
        (asking("post", gmail, None), vec!["denied[method_not_allowed]", "--> --method\n", "NO: no method"]),
        (
            Question {
                capabilities: Some(r#"[{"http":{"hosts":["https://b.com"]}}]"#.into()),
                ..asking("POST", gmail, None)
            },
            vec!["denied[host_not_allowed]", "--> --capabilities", "the definition's capabilities"],
        ),
        (
            Question { capabilities: Some("{}".into()), ..asking("POST", gmail, None) },
            vec!["error: --capabilities: malformed"],
        ),
    ] {
        let (text, good) = explained(question);
        assert!(!good, "{text}");
        for words in words {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert!(!text.contains("u:p@gmail.googleapis.com/ "), "{text}");
    }
}
