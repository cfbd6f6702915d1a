//! A broker in this process, with a policy from TOML, a scripted resolver and secrets in files.

use std::{
    collections::BTreeMap,
    io,
    net::IpAddr,
    path::Path,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE},
};
use broker_svc::{
    audit::Door,
    broker::{Broker, CallBounds, Denied, Done, Parts, Request},
    capability::Declaration,
    config::policy_of,
    in_force::InForce,
    refusal::Why,
    resolve::Resolver,
    send::{Clients, Courier, client_tls},
    token::{Binding, Ceilings, Permit, TokenBounds, Tokens},
};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tracing_subscriber::fmt::format::FmtSpan;

use crate::{doors::WATCHER, upstream};

/// The secret that may be seen by the upstream and by nobody else.
pub const CANARY: &str = "canary-Zq7/3fK+9wXe";
/// A second one.
pub const CANARY_B: &str = "canary-b-Hd82LmWq";

/// Everything that this process logs, at the finest level. Every secret of every test has this word in it.
pub static LOG: LazyLock<Log> = LazyLock::new(Log::default);
const WORD: &str = "canary";
/// The first line of the log that held a secret.
static LEAK: Mutex<Option<String>> = Mutex::new(None);

#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if holds_secret(bytes) {
            LEAK.lock().get_or_insert_with(|| String::from_utf8_lossy(bytes).into_owned());
        }
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether a line holds the word that every secret of these tests holds.
pub fn holds_secret(line: &[u8]) -> bool {
    spellings().iter().any(|word| line.windows(word.len()).any(|found| found == word.as_bytes()))
}

/// The word that every secret of these tests holds, in every spelling.
pub fn spellings() -> &'static [String] {
    static SPELLINGS: LazyLock<Vec<String>> = LazyLock::new(|| spellings_of(WORD));
    &SPELLINGS
}

/// A word as it would be found in plain text, hex, percent, as printed bytes, and in both alphabets of base64 at each offset.
pub fn spellings_of(word: &str) -> Vec<String> {
    let percent: String = word.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let numbers = format!("{:?}", word.as_bytes());
    let numbers = numbers.trim_matches(['[', ']']).to_owned();
    let mut spelled = vec![word.to_owned(), hex::encode(word), hex::encode_upper(word)];
    spelled.extend([percent.to_uppercase(), percent, numbers.replace(' ', ""), numbers]);
    for offset in 0..3 {
        for engine in [STANDARD, URL_SAFE] {
            let text = engine.encode([&"xx"[..offset], word].concat());
            spelled.push(text[(offset * 8).div_ceil(6)..(offset + word.len()) * 8 / 6].to_owned());
        }
    }
    spelled.sort();
    spelled.dedup();
    spelled
}

static LOGGING: LazyLock<()> = LazyLock::new(|| {
    let log = LOG.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_span_events(FmtSpan::FULL)
        .with_ansi(false)
        .with_writer(move || log.clone())
        .init();
});

/// Answers from a list; each name's answers are used in turn, the last one again and again.
#[derive(Default)]
pub struct Script {
    answers: Mutex<BTreeMap<String, Vec<Vec<IpAddr>>>>,
    pub lookups: AtomicUsize,
    panics: Mutex<Option<String>>,
}

struct Scripted(Arc<Script>);

impl Resolver for Scripted {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        self.0.lookups.fetch_add(1, Ordering::SeqCst);
        assert!(self.0.panics.lock().as_deref() != Some(name), "a part of the broker fails");
        let mut answers = self.0.answers.lock();
        let answer =
            answers.get_mut(name).map(|turns| if turns.len() > 1 { turns.remove(0) } else { turns[0].clone() });
        Box::pin(std::future::ready(answer.ok_or_else(|| io::Error::other("no such name"))))
    }
}

/// A broker and what it is made of.
pub struct Rig {
    pub broker: Arc<Broker>,
    pub names: Arc<Script>,
    pub files: tempfile::TempDir,
}

impl Drop for Rig {
    fn drop(&mut self) {
        let leak = LEAK.lock().clone();
        assert!(std::thread::panicking() || leak.is_none(), "a secret is in the log: {leak:?}");
    }
}

impl Rig {
    /// `$a` and `$b` in the policy are files with the two canaries.
    pub fn new(policy: &str) -> Self {
        Self::bounded(policy, CallBounds::default())
    }

    /// With other bounds.
    pub fn bounded(policy: &str, bounds: CallBounds) -> Self {
        LazyLock::force(&LOGGING);
        let files = tempfile::tempdir().unwrap();
        std::fs::write(files.path().join("a"), format!("{CANARY}\n")).unwrap();
        std::fs::write(files.path().join("b"), CANARY_B).unwrap();
        let policy = policy_of(&fill(policy, files.path())).unwrap();
        let names = Arc::new(Script::default());
        let broker = Broker::new(Parts {
            in_force: InForce::open(policy, None).ok().unwrap(),
            tokens: Tokens::new(Arc::new(SystemTime::now), TokenBounds::default()),
            courier: Courier::new(
                Box::new(Scripted(Arc::clone(&names))),
                Clients::new(client_tls(Some(&upstream::authority())).unwrap()),
            ),
            bounds,
        });
        Self { broker: Arc::new(broker), names, files }
    }

    /// A policy with the places of the two canaries.
    pub fn filled(&self, policy: &str) -> String {
        fill(policy, self.files.path())
    }

    /// Gives a name its answers, in turn.
    pub fn name(&self, name: &str, turns: &[&[&str]]) -> &Self {
        let turns = turns.iter().map(|turn| turn.iter().map(|address| address.parse().unwrap()).collect()).collect();
        self.names.answers.lock().insert(name.to_owned(), turns);
        self.names.panics.lock().take();
        self
    }

    /// Makes the lookup of a name panic, until it is given answers.
    pub fn panics(&self, name: &str) {
        *self.names.panics.lock() = Some(name.to_owned());
    }

    /// A token for tool `t`, without a declaration.
    pub fn token(&self) -> String {
        self.token_of(None, Ceilings::default(), Duration::from_secs(60))
    }

    /// A token with a declaration.
    pub fn declared(&self, capabilities: &str) -> String {
        let declaration = Declaration::parse(capabilities).unwrap();
        self.token_of(Some(declaration), Ceilings::default(), Duration::from_secs(60))
    }

    /// A token of its own effect.
    pub fn token_of(&self, declaration: Option<Declaration>, ceilings: Ceilings, life: Duration) -> String {
        static NODES: AtomicUsize = AtomicUsize::new(0);
        let node = format!("node-{}", NODES.fetch_add(1, Ordering::SeqCst));
        let (run_id, tool_name, principal) = ("run-1".into(), "t".into(), "user:runner".into());
        let binding = Binding { run_id, node, tool_name, principal, attempt: 1, ..Binding::default() };
        self.broker
            .tokens
            .mint(Permit::new(binding, declaration, ceilings, SystemTime::now() + life).watched_by(WATCHER.into()))
            .ok()
            .unwrap()
            .token
    }

    /// One call with a token of its own.
    pub async fn call(&self, request: Request) -> Result<Done, Denied> {
        self.call_with(&self.token(), request).await
    }

    /// One call with a token.
    pub async fn call_with(&self, token: &str, request: Request) -> Result<Done, Denied> {
        self.broker.call(self.broker.admit(token, Door::Grpc)?, request).await
    }

    /// The reason for which a call is refused.
    pub async fn why(&self, request: Request) -> Why {
        why(self.call(request).await)
    }
}

fn fill(policy: &str, files: &Path) -> String {
    let place = |name: &str| format!("file:{}", files.join(name).display());
    policy.replace("$a", &place("a")).replace("$b", &place("b"))
}

/// The reason of a refusal, which its record has to agree with.
pub fn why(outcome: Result<Done, Denied>) -> Why {
    let denied = match outcome {
        Ok(done) => panic!("answered with {}", done.status),
        Err(denied) => denied,
    };
    assert_eq!(denied.record.why, Some(denied.refusal.why));
    assert!(denied.record.sequence > 0);
    denied.refusal.why
}

/// A GET.
pub fn get(url: impl Into<String>) -> Request {
    Request { url: url.into(), ..Request::default() }
}

/// A GET with a credential.
pub fn with(url: impl Into<String>, credential: &str) -> Request {
    Request { credential: Some(credential.to_owned()), ..get(url) }
}

/// A GET with headers.
pub fn carrying(url: impl Into<String>, headers: &[(&str, &str)]) -> Request {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Request { headers, ..get(url) }
}

/// A policy that lets tool `t` do everything with one upstream, credential `a` as a bearer token.
pub fn open(origin: &str) -> String {
    format!(
        r#"
        [policy]
        allow_hosts = ["{origin}"]
        allow_private = ["127.0.0.0/8"]
        [credentials.a]
        kind = "bearer"
        from = "$a"
        hosts = ["{origin}"]
        [grants.t]
        credentials = ["a"]
        methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
        hosts = ["{origin}"]
        "#
    )
}

/// A policy that grants tool `t` to read from everywhere over https.
pub const EVERYWHERE: &str = "[policy]\nunrestricted = true\n[grants.t]\n";
