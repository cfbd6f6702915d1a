//! Case group C: what is injected, for whom, and from where it is read.

use broker_svc::{
    config::policy_of,
    in_force::InForce,
    refusal::Why,
    token::{Binding, Ceilings, Permit},
};

use crate::{
    rig::{CANARY, CANARY_B, Rig, get, open, why, with},
    upstream::{Upstream, ok},
};

#[tokio::test]
async fn c1_an_unknown_and_an_ungranted_credential_are_refused_in_the_same_words() {
    let policy = format!(
        "{}\n[credentials.b]\nkind = \"bearer\"\nfrom = \"$b\"\nhosts = [\"https://a.com\"]\n",
        open("https://a.com")
    );
    let rig = Rig::new(&policy);
    let ungranted = rig.call(with("https://a.com/", "b")).await.err().unwrap().refusal;
    let unknown = rig.call(with("https://a.com/", "z")).await.err().unwrap().refusal;
    assert_eq!(ungranted.why, Why::CredentialNotGranted);
    assert_eq!(unknown.why, ungranted.why);
    assert_eq!(unknown.text.replace("\"z\"", "\"b\""), ungranted.text);
}

#[tokio::test]
async fn c2_a_bearer_and_a_header_credential_are_each_sent_once_and_only_when_named() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let url = upstream.http();
    let policy = format!(
        "{}\n[credentials.key]\nkind = \"header\"\nheader = \"X-Api-Key\"\nfrom = \"$b\"\nhosts = [\"{url}\"]\n",
        open(&url)
    )
    .replace("credentials = [\"a\"]", "credentials = [\"a\", \"key\"]");
    let rig = Rig::new(&policy);
    rig.call(with(&url, "a")).await.ok().unwrap();
    rig.call(with(&url, "key")).await.ok().unwrap();
    rig.call(get(&url)).await.ok().unwrap();
    let sent = upstream.requests();
    assert_eq!(sent[0].matches(&format!("\r\nauthorization: Bearer {CANARY}\r\n")).count(), 1);
    assert_eq!(sent[1].matches(&format!("\r\nx-api-key: {CANARY_B}\r\n")).count(), 1);
    assert_eq!(sent.iter().map(|request| request.matches("canary").count()).collect::<Vec<_>>(), [1, 1, 0]);
}

#[tokio::test]
async fn an_owned_credential_is_for_runs_of_its_principal_alone() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let url = upstream.http();
    let policy = open(&url).replace("from = \"$a\"", "from = \"$a\"\nowner = \"user:runner\"");
    let rig = Rig::new(&policy);
    assert!(rig.call(with(&url, "a")).await.is_ok());
    let binding =
        Binding { run_id: "r".into(), tool_name: "t".into(), principal: "user:other".into(), ..Binding::default() };
    let deadline = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    let token = rig.broker.tokens.mint(Permit::new(binding, None, Ceilings::default(), deadline)).ok().unwrap().token;
    assert_eq!(why(rig.call_with(&token, with(&url, "a")).await), Why::CredentialOwnerMismatch);
    assert!(rig.call_with(&token, get(&url)).await.is_ok());
}

#[tokio::test]
async fn c5_a_secret_file_is_trimmed_once_and_refused_when_it_is_no_secret() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let url = upstream.http();
    for good in ["tok", "tok\n", "tok\r\n"] {
        let rig = Rig::new(&open(&url));
        std::fs::write(rig.files.path().join("a"), good).unwrap();
        rig.call(with(&url, "a")).await.ok().unwrap();
    }
    assert!(upstream.requests().iter().all(|request| request.contains("\r\nauthorization: Bearer tok\r\n")));
    let files = tempfile::tempdir().unwrap();
    let path = files.path().join("s");
    let policy = format!(
        "[credentials.c]\nkind = \"bearer\"\nfrom = \"file:{}\"\nhosts = [\"https://a.com\"]\n",
        path.display()
    );
    let policy = policy_of(&policy).unwrap();
    for (bad, word) in [
        ("to\nk".to_owned(), "control"),
        ("tok\0".to_owned(), "control"),
        (String::new(), "empty"),
        ("\n".to_owned(), "empty"),
        ("x".repeat(1 << 20), "over"),
        ("tök".to_owned(), "ASCII"),
    ] {
        std::fs::write(&path, &bad).unwrap();
        let text = InForce::open(policy.clone(), None).err().unwrap().to_string();
        assert!(text.contains("credential c") && text.contains(word), "{text}");
        assert!(!text.contains("tok") && !text.contains("to\n"), "{text}");
    }
    std::fs::remove_file(&path).unwrap();
    assert!(InForce::open(policy.clone(), None).err().unwrap().to_string().contains("cannot be read"));
}

#[tokio::test]
async fn a_secret_file_is_read_again_when_it_changes_and_refuses_when_it_is_gone() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let url = upstream.http();
    let rig = Rig::new(&open(&url));
    let file = rig.files.path().join("a");
    rig.call(with(&url, "a")).await.ok().unwrap();
    std::fs::write(&file, "rotated-token\n").unwrap();
    rig.call(with(&url, "a")).await.ok().unwrap();
    std::fs::write(&file, "").unwrap();
    assert_eq!(rig.why(with(&url, "a")).await, Why::CredentialUnavailable);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(rig.why(with(&url, "a")).await, Why::CredentialUnavailable);
    std::fs::write(&file, CANARY).unwrap();
    rig.call(with(&url, "a")).await.ok().unwrap();
    let sent: Vec<_> = upstream.requests().iter().map(|request| request.contains("Bearer rotated-token\r\n")).collect();
    assert_eq!(sent, [false, true, false]);
}
