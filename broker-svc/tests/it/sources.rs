//! Where values come from: swapped files, programs, Vault.

use std::{
    os::unix::fs::symlink,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use broker_svc::refusal::Why;
use parking_lot::Mutex;

use crate::{
    rig::{CANARY, Rig, open, with},
    upstream::{Upstream, ok, reply},
};

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn c5_a_secret_that_kubernetes_swaps_by_its_links_is_read_again_without_a_failed_call() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let url = upstream.http();
    let mount = tempfile::tempdir().unwrap();
    let at = |name: &str| mount.path().join(name);
    // As a kubelet lays a Secret out: ..data leads to the version, the key's name leads through ..data.
    let version = |name: &str, value: &str| {
        std::fs::create_dir(at(name)).unwrap();
        std::fs::write(at(name).join("token"), value).unwrap();
        symlink(name, at("..data_tmp")).unwrap();
        std::fs::rename(at("..data_tmp"), at("..data")).unwrap();
    };
    version("..1", "canary-version-1");
    symlink("..data/token", at("token")).unwrap();
    let rig = Rig::new(&open(&url).replace("$a", &format!("file:{}", at("token").display())));
    let stop = Arc::new(AtomicBool::new(false));
    let swapping = {
        let (stop, root) = (Arc::clone(&stop), mount.path().to_owned());
        std::thread::spawn(move || {
            let mut number = 1;
            while !stop.load(Ordering::SeqCst) {
                number += 1;
                let (name, value) = (format!("..{number}"), format!("canary-version-{number}"));
                std::fs::create_dir(root.join(&name)).unwrap();
                std::fs::write(root.join(&name).join("token"), value).unwrap();
                symlink(&name, root.join("..data_tmp")).unwrap();
                std::fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
                std::fs::remove_dir_all(root.join(format!("..{}", number - 1))).unwrap();
            }
            number
        })
    };
    // A swap between finding the file and opening it leaves a file that is gone: the old version is deleted after the swap, and
    // what is opened by its path is one version or the other.
    let begun = Instant::now();
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 5 {
        match rig.call(with(&url, "a")).await {
            Ok(_) => seen.insert(upstream.requests().pop().unwrap()),
            Err(denied) => panic!("{}", denied.refusal),
        };
        assert!(begun.elapsed() < PATIENCE, "only {} versions were seen", seen.len());
    }
    stop.store(true, Ordering::SeqCst);
    let last = swapping.join().unwrap();
    rig.call(with(&url, "a")).await.ok().unwrap();
    assert!(upstream.requests().pop().unwrap().contains(&format!("Bearer canary-version-{last}\r\n")));
}

#[tokio::test]
async fn a_programs_output_is_the_value_until_it_is_asked_for_again() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let url = upstream.http();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "canary-printed-1\n").unwrap();
    let place = format!("\"cmd:/bin/cat {}\"\n        refresh = \"1s\"", file.path().display());
    let rig = Rig::new(&open(&url).replace("\"$a\"", &place));
    rig.call(with(&url, "a")).await.ok().unwrap();
    assert!(upstream.requests()[0].contains("Bearer canary-printed-1\r\n"));
    std::fs::write(file.path(), "canary-printed-2\n").unwrap();
    let begun = Instant::now();
    while !upstream.requests().pop().unwrap().contains("Bearer canary-printed-2\r\n") {
        rig.call(with(&url, "a")).await.ok().unwrap();
        assert!(begun.elapsed() < PATIENCE, "the program is never run again");
    }
    // A program that fails from then on fails the calls, in the end.
    std::fs::remove_file(file.path()).unwrap();
    let begun = Instant::now();
    let refused = loop {
        if let Err(denied) = rig.call(with(&url, "a")).await {
            break denied.refusal;
        }
        assert!(begun.elapsed() < PATIENCE, "an old value is used for ever");
    };
    assert_eq!(refused.why, Why::CredentialUnavailable);
}

/// A Vault server that takes one token and has one secret of two fields.
fn vault(value: Arc<Mutex<String>>) -> Upstream {
    Upstream::tls(move |request, out| {
        let text = String::from_utf8_lossy(request);
        if !text.contains(&format!("\r\nx-vault-token: {CANARY}\r\n")) {
            return reply(out, "403 Forbidden", &[], b"{\"errors\":[\"permission denied\"]}");
        }
        if !text.starts_with("GET /v1/secret/data/bank HTTP/1.1\r\n") {
            return reply(out, "404 Not Found", &[], b"{\"errors\":[]}");
        }
        let body = format!(
            "{{\"data\":{{\"data\":{{\"token\":\"{}\",\"number\":7}},\"metadata\":{{\"version\":3}}}}}}",
            value.lock()
        );
        ok(out, &body)
    })
}

#[tokio::test]
async fn a_field_of_vaults_store_is_the_value_and_every_other_answer_fails_the_call() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let (url, value) = (upstream.http(), Arc::new(Mutex::new("canary-vault-1".to_owned())));
    let server = vault(Arc::clone(&value));
    let address = server.https("127.0.0.1");
    let policy = |from: &str| {
        open(&url)
            .replace("from = \"$a\"", &format!("from = \"{from}\"\nrefresh = \"1s\""))
            .replace("allow_hosts = [", &format!("allow_hosts = [\"{address}\", "))
            + &format!("\n[vault]\naddress = \"{address}\"\ntoken = \"$a\"\n")
    };
    let rig = Rig::new(&policy("vault:secret/data/bank#token"));
    rig.call(with(&url, "a")).await.ok().unwrap();
    assert!(upstream.requests()[0].contains("Bearer canary-vault-1\r\n"));
    *value.lock() = "canary-vault-2".to_owned();
    let begun = Instant::now();
    while !upstream.requests().pop().unwrap().contains("Bearer canary-vault-2\r\n") {
        rig.call(with(&url, "a")).await.ok().unwrap();
        assert!(begun.elapsed() < PATIENCE, "the value is never asked for again");
    }
    let sent = upstream.requests().len();
    for from in ["vault:secret/data/bank#gone", "vault:secret/data/bank#number", "vault:secret/data/other#token"] {
        assert_eq!(Rig::new(&policy(from)).why(with(&url, "a")).await, Why::CredentialUnavailable, "{from}");
    }
    let wrong = Rig::new(&policy("vault:secret/data/bank#token"));
    std::fs::write(wrong.files.path().join("a"), "another-token").unwrap();
    assert_eq!(wrong.why(with(&url, "a")).await, Why::CredentialUnavailable);
    assert_eq!(upstream.requests().len(), sent);
}
