//! Case P7: other rules while calls run; a file that cannot be used changes nothing.

use std::{os::unix::fs::symlink, path::Path, sync::Arc};

use broker_svc::{
    config::Flags,
    refusal::Why,
    reload::{Reload, Watch},
};
use parking_lot::Mutex;

use crate::{
    authorization_server::{CLIENT, Servers},
    rig::{Rig, get, open, why, with},
    upstream::{Upstream, ok},
};

/// A rig with these rules, and a watch on their file.
struct Watched {
    rig: Rig,
    watch: Watch,
    file: tempfile::NamedTempFile,
}

impl Watched {
    fn new(policy: &str) -> Self {
        let rig = Rig::new(policy);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), rig.filled(policy)).unwrap();
        let watch = Watch::new(Flags::of_file(file.path()));
        Self { rig, watch, file }
    }

    /// Puts another text in the file's place, as editors and Kubernetes do, and looks.
    fn put(&mut self, policy: &str) -> Option<Reload> {
        let next = self.file.path().with_extension("next");
        std::fs::write(&next, self.rig.filled(policy)).unwrap();
        std::fs::rename(&next, self.file.path()).unwrap();
        self.watch.look(&self.rig.broker)
    }
}

#[tokio::test]
async fn p7_a_grant_that_is_taken_away_lets_the_running_call_finish_and_denies_the_next() {
    let (arrived, mut arrival) = tokio::sync::mpsc::unbounded_channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Mutex::new(released);
    let upstream = Upstream::plain(move |_, out| {
        arrived.send(()).unwrap();
        let _until_told = released.lock().recv();
        ok(out, "whole")
    });
    let url = upstream.http();
    let mut watched = Watched::new(&open(&url));
    let (token, before) = (watched.rig.token(), watched.rig.broker.in_force().digest);
    let running = {
        let (broker, token, url) = (Arc::clone(&watched.rig.broker), token.clone(), url.clone());
        tokio::spawn(async move {
            let pass = broker.admit(&token, broker_svc::audit::Door::Grpc).ok().unwrap();
            broker.call(pass, with(url, "a")).await.ok().unwrap().body
        })
    };
    arrival.recv().await.unwrap();
    let without = open(&url).replace("[grants.t]", "[grants.other]");
    assert_eq!(watched.put(&without), Some(Reload::Changed));
    assert_ne!(watched.rig.broker.in_force().digest, before);
    let refused = watched.rig.call_with(&token, get(&url)).await.err().unwrap();
    assert_eq!(refused.refusal.why, Why::ToolNotGranted, "a token that was minted before is no way around it");
    assert_eq!(refused.record.policy_digest, watched.rig.broker.in_force().digest);
    release.send(()).unwrap();
    assert_eq!(running.await.unwrap(), b"whole");
}

#[tokio::test]
async fn p7_a_file_that_cannot_be_used_leaves_the_last_good_rules_in_force() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let url = upstream.http();
    let good = open(&url);
    let mut watched = Watched::new(&good);
    let before = watched.rig.broker.in_force().digest;
    for (bad, word) in [
        ("[policy".to_owned(), "line 1"),
        ("[policy]\nunrestricted = tru".to_owned(), "line 2"),
        (good.replace("methods", "methds"), "methds"),
        (good.replace("kind = \"bearer\"", "kind = \"barer\""), "[credentials.a] kind"),
        (good.replace("\"a\"", "\"zz\""), "zz"),
        (good.replace("$a", "file:/no/such/file"), "credential a"),
        (format!("call_timeout = \"0s\"\n{good}"), "--call-timeout"),
    ] {
        match watched.put(&bad) {
            Some(Reload::Refused(cause)) => assert!(cause.contains(word), "{word}: {cause}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(watched.rig.broker.in_force().digest, before);
        assert!(watched.rig.call(with(&url, "a")).await.is_ok());
    }
    std::fs::remove_file(watched.file.path()).unwrap();
    assert!(matches!(watched.watch.look(&watched.rig.broker), Some(Reload::Refused(_))));
    assert!(watched.rig.call(with(&url, "a")).await.is_ok());
    assert_eq!(watched.put(&good), Some(Reload::Same));
    assert_eq!(watched.watch.look(&watched.rig.broker), None);
    assert_eq!(watched.put(&good.replace("\"GET\", ", "")), Some(Reload::Changed));
    assert_eq!(why(watched.rig.call(get(&url)).await), Why::MethodNotAllowed);
}

#[tokio::test]
async fn p7_there_is_no_moment_without_rules() {
    let upstream = Upstream::plain(|_, out| ok(out, ""));
    let url = upstream.http();
    let policies = [
        open(&url),
        open(&url).replace("\"DELETE\"]", "\"DELETE\", \"GET\"]").replace("[policy]", "[grants.u]\n[policy]"),
    ];
    let mut watched = Watched::new(&policies[0]);
    let broker = Arc::clone(&watched.rig.broker);
    let token = watched.rig.token_of(
        None,
        broker_svc::token::Ceilings { max_calls: 10_000, ..Default::default() },
        std::time::Duration::from_secs(60),
    );
    let calling = tokio::spawn(async move {
        let mut made = 0;
        while made < 100 {
            let pass = broker.admit(&token, broker_svc::audit::Door::Grpc).ok().unwrap();
            broker.call(pass, with(&url, "a")).await.ok().unwrap();
            made += 1;
        }
    });
    let mut round = 0;
    while !calling.is_finished() {
        round += 1;
        assert_eq!(watched.put(&policies[round % 2]), Some(Reload::Changed));
        tokio::task::yield_now().await;
    }
    calling.await.unwrap();
    assert!(round > 10, "only {round} reloads");
}

#[tokio::test]
async fn a_reload_keeps_the_tokens_of_credentials_that_did_not_change() {
    let servers = Servers::start(false);
    let policy = servers.policy("oauth2_client_credentials");
    let mut watched = Watched::new(&policy);
    std::fs::write(watched.rig.files.path().join("a"), CLIENT.1).unwrap();
    assert_eq!(watched.rig.call(with(servers.url(), "c")).await.ok().unwrap().status, 200);
    assert_eq!(
        watched.put(&policy.replace("methods = [\"GET\", \"POST\"]", "methods = [\"GET\"]")),
        Some(Reload::Changed)
    );
    assert_eq!(watched.rig.call(with(servers.url(), "c")).await.ok().unwrap().status, 200);
    assert_eq!(servers.minted(), 1);
    let scoped = policy.replace("from =", "scopes = [\"read\"]\n            from =");
    assert_eq!(watched.put(&scoped), Some(Reload::Changed));
    assert_eq!(watched.rig.call(with(servers.url(), "c")).await.ok().unwrap().status, 200);
    assert_eq!(servers.minted(), 2, "what is asked for changed");
}

#[test]
fn a_config_map_that_kubernetes_swaps_by_its_links_is_seen() {
    let mount = tempfile::tempdir().unwrap();
    let version = |name: &str, text: &str| {
        std::fs::create_dir(mount.path().join(name)).unwrap();
        std::fs::write(mount.path().join(name).join("broker.toml"), text).unwrap();
        symlink(name, mount.path().join("..data_tmp")).unwrap();
        std::fs::rename(mount.path().join("..data_tmp"), mount.path().join("..data")).unwrap();
    };
    version("..1", "[policy]\nallow_hosts = [\"https://a.com\"]\n");
    let file = mount.path().join("broker.toml");
    symlink(Path::new("..data/broker.toml"), &file).unwrap();
    let rig = Rig::new("[policy]\nallow_hosts = [\"https://a.com\"]\n");
    let mut watch = Watch::new(Flags::of_file(&file));
    assert_eq!(watch.look(&rig.broker), None);
    version("..2", "[policy]\nallow_hosts = [\"https://b.com\"]\n");
    assert_eq!(watch.look(&rig.broker), Some(Reload::Changed));
    assert_eq!(rig.broker.in_force().policy.egress.allow_hosts[0].to_string(), "https://b.com");
}

#[test]
fn t3_keys_of_tokens_are_taken_from_their_folder_and_bad_ones_leave_those_in_use() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), [1; 32]).unwrap();
    let rig = Rig::new("");
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut watch = Watch::new(Flags::of_file(file.path())).with_keys(Some(folder.path().to_owned()));
    assert_eq!(watch.look_at_keys(&rig.broker), None);
    let random = rig.token();
    std::fs::write(folder.path().join("b"), [2; 32]).unwrap();
    assert_eq!(watch.look_at_keys(&rig.broker), Some(Reload::Changed));
    assert_eq!(rig.broker.tokens.verify(&random).unwrap_err().why, Why::TokenInvalid);
    let token = rig.token();
    std::fs::write(folder.path().join("c"), "short").unwrap();
    assert!(matches!(watch.look_at_keys(&rig.broker), Some(Reload::Refused(_))));
    assert!(rig.broker.tokens.verify(&token).is_ok());
}
