//! What the tests of dispatching share.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use content_digest::Digest;
use futures::FutureExt as _;
use runner_core::{
    event::Exchange,
    key::{EffectKey, EffectKind},
    manifest::OnDangling,
    outcome::{EffectOutcome, Failure, FailureCause},
    payload::Payload,
    pinned::{Executor, PinnedTool, Runtime, RuntimeLimits},
};
use runner_svc::dispatch::{
    CodeSource, CodeUnreadable, DispatchConfig, Dispatcher, Effect, Ending, HostToolAt, NotJournaled, SandboxAt,
    Settled, Slot,
};
use tokio_util::sync::CancellationToken;

/// Longest wait for anything in these tests: far beyond what a loaded machine needs.
pub const GENEROUS: Duration = Duration::from_secs(120);
/// The bytes of the module that effects name.
pub const MODULE: &[u8] = b"the bytes of a module";

/// Nothing configured.
pub fn config(dir: &Path) -> DispatchConfig {
    DispatchConfig {
        sandbox: None,
        host_tool: None,
        broker_urls: Vec::new(),
        module_dir: dir.join("modules"),
        blob_dir: dir.join("blobs"),
        children_max: 8,
        children_dir: std::env::temp_dir().join(format!("areev-children-{}", uuid::Uuid::new_v4())),
        patience: Duration::from_millis(300),
        tls: None,
    }
}

/// Host tools by a shell command.
pub fn tool_command(command: &str) -> Dispatcher {
    let host_tool = Some(HostToolAt::Command(command.to_owned()));
    dispatcher(DispatchConfig { host_tool, ..config(Path::new("/nonexistent")) })
}

/// Sandboxes by their addresses.
pub fn sandboxes(urls: &[&str]) -> Dispatcher {
    dispatcher(DispatchConfig { sandbox: Some(at(urls)), ..config(Path::new("/nonexistent")) })
}

pub fn at(urls: &[&str]) -> SandboxAt {
    SandboxAt::Urls(urls.iter().map(|url| (*url).to_owned()).collect())
}

/// A dispatcher whose catalogue holds [`MODULE`].
pub fn dispatcher(config: DispatchConfig) -> Dispatcher {
    Dispatcher::new(config, with_module()).unwrap()
}

/// A catalogue that holds [`MODULE`].
pub fn with_module() -> Arc<dyn CodeSource> {
    Arc::new(Blobs(BTreeMap::from([(Digest::of(MODULE), MODULE.to_vec())])))
}

struct Blobs(BTreeMap<Digest, Vec<u8>>);

impl CodeSource for Blobs {
    fn read(&self, digest: &Digest) -> Result<Vec<u8>, CodeUnreadable> {
        self.0.get(digest).cloned().ok_or_else(|| CodeUnreadable(format!("{} is not stored", digest.to_uri())))
    }

    fn size(&self, digest: &Digest) -> Result<Option<u64>, CodeUnreadable> {
        Ok(self.0.get(digest).map(|bytes| bytes.len() as u64))
    }
}

/// An effect of a host tool.
pub fn host_tool() -> Effect {
    effect(Executor::HostTool)
}

/// An effect of [`MODULE`].
pub fn code(runtime: Runtime) -> Effect {
    code_with(runtime, None)
}

/// An effect of [`MODULE`] with limits. A module with brokered calls declares one host.
pub fn code_with(runtime: Runtime, limits: Option<RuntimeLimits>) -> Effect {
    let capabilities = (runtime == Runtime::WasmIo)
        .then(|| serde_json::json!([{"http": {"hosts": ["https://api.example.com"], "methods": ["POST"]}}]));
    effect(Executor::Code { digest: Digest::of(MODULE), runtime, limits, capabilities })
}

fn effect(executor: Executor) -> Effect {
    let key = EffectKey::of_node("work", 1, EffectKind::Tool);
    let input = Payload::new("{\"q\":7}");
    Effect {
        run_id: "run-1".to_owned(),
        namespace: "ops".to_owned(),
        principal: "user:runner".to_owned(),
        idempotency_key: key.idempotency_key("run-1", input.text()),
        key,
        tool: Arc::new(PinnedTool {
            definition: Digest::of("definition"),
            tool_name: "work".to_owned(),
            description: String::new(),
            executor,
            input_schema: None,
            output_schema: None,
            strict: false,
            locked_params: serde_json::Map::new(),
        }),
        input,
        timeout: GENEROUS,
        recorded: Vec::new(),
        on_dangling: OnDangling::Redispatch,
        fuel_left: None,
        egress_calls_left: None,
    }
}

/// Sends an effect that must not exchange anything.
pub async fn send(dispatcher: &Dispatcher, effect: Effect) -> Settled {
    send_until(dispatcher, effect, CancellationToken::new()).await
}

/// Sends an effect that may be canceled.
pub async fn send_until(dispatcher: &Dispatcher, effect: Effect, cancel: CancellationToken) -> Settled {
    let nothing = |exchange: Exchange| -> futures::future::BoxFuture<'static, Result<(), NotJournaled>> {
        panic!("exchange {} was not expected", exchange.ordinal)
    };
    tokio::time::timeout(GENEROUS, dispatcher.dispatch(effect, &nothing, slot(), cancel)).await.expect("it settles")
}

/// Sends an effect that ends by its timeout, once it got as far as it had to before: what a loaded machine does not manage in
/// the shortest time, it manages in a longer one.
pub async fn timed_out(
    dispatcher: &Dispatcher,
    effect: impl Fn() -> Effect,
    far_enough: impl Fn(&Settled) -> bool,
) -> Settled {
    for millis in [200, 1000, 5000, 25_000, 100_000] {
        let settled = send(dispatcher, Effect { timeout: Duration::from_millis(millis), ..effect() }).await;
        assert_eq!(failure(&settled).cause, FailureCause::Timeout);
        if far_enough(&settled) {
            return settled;
        }
    }
    panic!("it never got far enough before its time was over");
}

/// Sends an effect and keeps what it exchanges; each exchange is noted in the log when it is durable.
pub async fn send_journaled(dispatcher: &Dispatcher, effect: Effect, log: &Log) -> (Settled, Vec<Exchange>) {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let journal = |exchange: Exchange| {
        let (kept, log) = (Arc::clone(&kept), log.clone());
        async move {
            tokio::task::yield_now().await;
            log.note(format!("durable {}", exchange.ordinal));
            kept.lock().unwrap().push(exchange);
            Ok(())
        }
        .boxed()
    };
    let sent = dispatcher.dispatch(effect, &journal, slot(), CancellationToken::new());
    let settled = tokio::time::timeout(GENEROUS, sent).await.expect("it settles");
    let kept = kept.lock().unwrap().clone();
    (settled, kept)
}

/// What happened, in order, as several tasks saw it.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Waits until something has happened.
    pub async fn has(&self, what: &str) {
        eventually(what, || self.all().iter().any(|line| line == what)).await;
    }
}

/// Polls until a condition holds.
pub async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + GENEROUS;
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "never came: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The result's text.
#[track_caller]
pub fn output(settled: &Settled) -> String {
    match &settled.ending {
        Ending::Outcome(EffectOutcome::Completed { output }) => output.text().to_owned(),
        other => panic!("not completed: {}", told(other)),
    }
}

/// The failure.
#[track_caller]
pub fn failure(settled: &Settled) -> &Failure {
    match &settled.ending {
        Ending::Outcome(EffectOutcome::Failed { failure }) => failure,
        other => panic!("not failed: {other:?}"),
    }
}

/// The failure's text.
#[track_caller]
pub fn detail(settled: &Settled) -> &str {
    failure(settled).detail.text()
}

fn told(ending: &Ending) -> String {
    match ending {
        Ending::Outcome(EffectOutcome::Failed { failure }) => failure.detail.text().to_owned(),
        other => format!("{other:?}"),
    }
}

/// Serves in the background; the address. It ends with the test's runtime.
pub async fn serve(routes: tonic::service::Routes) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    tokio::spawn(tonic::transport::Server::builder().add_routes(routes).serve_with_incoming(incoming));
    url
}

/// An address where nobody listens.
pub async fn nobody() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// A slot that nobody else wants.
pub fn slot() -> Slot {
    Slot::of(&Arc::new(tokio::sync::Semaphore::new(1)))
}
