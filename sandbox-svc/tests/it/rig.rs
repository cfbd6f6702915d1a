//! A sandbox served in this process on a free port, and a client that speaks to it as the runner does.

use std::{sync::Arc, time::Duration};

use content_digest::Digest;
use proto::{
    dial::dial,
    sandbox::v1::{
        Exchange, ExchangeAck, ExecuteRequest, ExecuteResponse, Limits, ModuleStat, Outcome, OutcomeKind,
        PutModuleRequest, Runtime, Start, StatModulesRequest, execute_request::Message, execute_response,
        put_module_request, sandbox_service_client::SandboxServiceClient,
    },
    serve,
};
use sandbox_svc::{
    app::App,
    config::{Args, Config},
    native::NativeSettings,
    sandbox::Sandbox,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Status, Streaming, transport::Channel};

/// Longest wait for what a loaded machine must manage.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Rig {
    pub client: SandboxServiceClient<Channel>,
    pub sandbox: Arc<Sandbox>,
    _drain: DropGuard,
    directory: tempfile::TempDir,
}

/// One call, driven message by message.
pub struct Call {
    pub requests: mpsc::Sender<ExecuteRequest>,
    pub replies: Streaming<ExecuteResponse>,
}

impl Rig {
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// A sandbox that executes native blobs.
    pub async fn native() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let native =
            NativeSettings { dir: Some(dir.path().join("native")), jail: env!("CARGO_BIN_EXE_sandbox-svc").into() };
        Self::start(dir, |config| config.native = Some(native)).await
    }

    /// A sandbox with other settings.
    pub async fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::start(tempfile::tempdir().unwrap(), change).await
    }

    async fn start(dir: tempfile::TempDir, change: impl FnOnce(&mut Config)) -> Self {
        let mut args = Args::default();
        args.serve.listen = Some("127.0.0.1:0".parse().unwrap());
        args.serve.admin_listen = Some("off".to_owned());
        args.capacity.max_concurrent = Some(8);
        let mut config = args.resolve().unwrap();
        config.compiler.program = env!("CARGO_BIN_EXE_sandbox-svc").into();
        change(&mut config);
        let listener = serve::bind("sandbox-svc", &config.serve).await.unwrap();
        let url = format!("http://{}", listener.address());
        let app = App::build(config).unwrap();
        let sandbox = Arc::clone(app.sandbox());
        let drain = CancellationToken::new();
        tokio::spawn(app.run_on(listener, drain.clone()));
        let client = SandboxServiceClient::new(dial(&url, None).unwrap()).max_decoding_message_size(32 << 20);
        Self { client, sandbox, _drain: drain.drop_guard(), directory: dir }
    }

    /// Speaks to another sandbox from now on.
    pub fn speaking_to(self, client: SandboxServiceClient<Channel>) -> Self {
        Self { client, ..self }
    }

    /// Where native blobs live, under `native`.
    pub fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// Uploads bytes under their digest.
    pub async fn put(&self, bytes: &[u8]) -> String {
        let uri = Digest::of(bytes).to_uri();
        self.put_as(&uri, bytes).await.unwrap();
        uri
    }

    /// Uploads bytes under a digest of the caller's.
    pub async fn put_as(&self, uri: &str, bytes: &[u8]) -> Result<(), Status> {
        let mut messages =
            vec![PutModuleRequest { message: Some(put_module_request::Message::Digest(uri.to_owned())) }];
        for chunk in bytes.chunks(1 << 20) {
            let chunk = put_module_request::Message::Chunk(chunk.to_vec());
            messages.push(PutModuleRequest { message: Some(chunk) });
        }
        self.client.clone().put_module(tokio_stream::iter(messages)).await.map(|_| ())
    }

    /// Begins a call.
    pub async fn begin(&self, start: Start) -> Result<Call, Status> {
        let (requests, messages) = mpsc::channel(8);
        requests.send(ExecuteRequest { message: Some(Message::Start(start)) }).await.unwrap();
        let replies = self.client.clone().execute(ReceiverStream::new(messages)).await?.into_inner();
        Ok(Call { requests, replies })
    }

    /// Executes a call, acknowledging every exchange.
    pub async fn execute(&self, start: Start) -> Result<(Outcome, Vec<Exchange>), Status> {
        let mut call = self.begin(start).await?;
        let mut exchanges = Vec::new();
        loop {
            match call.next().await? {
                execute_response::Message::Exchange(exchange) => {
                    call.ack(exchange.ordinal).await;
                    exchanges.push(exchange);
                }
                execute_response::Message::Outcome(outcome) => return Ok((outcome, exchanges)),
            }
        }
    }

    /// Executes a guest given as text.
    pub async fn run(&self, wat: &str, runtime: Runtime, input: &str) -> Outcome {
        self.run_with(wat, runtime, input, |_| {}).await
    }

    /// Executes a guest given as text, with a changed start message.
    pub async fn run_with(&self, wat: &str, runtime: Runtime, input: &str, change: impl FnOnce(&mut Start)) -> Outcome {
        let uri = self.put(&wat::parse_str(wat).unwrap()).await;
        let mut message = start(&uri, runtime, input);
        change(&mut message);
        self.execute(message).await.unwrap().0
    }

    pub async fn stat(&self, uri: &str) -> ModuleStat {
        let request = StatModulesRequest { digests: vec![uri.to_owned()] };
        self.client.clone().stat_modules(request).await.unwrap().into_inner().modules.remove(0)
    }
}

impl Call {
    pub async fn next(&mut self) -> Result<execute_response::Message, Status> {
        let reply = tokio::time::timeout(PATIENCE, self.replies.message()).await.expect("a reply in time")?;
        Ok(reply.expect("an outcome before the stream's end").message.unwrap())
    }

    pub async fn outcome(&mut self) -> Outcome {
        match self.next().await.unwrap() {
            execute_response::Message::Outcome(outcome) => outcome,
            other => panic!("no outcome: {other:?}"),
        }
    }

    pub async fn exchange(&mut self) -> Exchange {
        match self.next().await.unwrap() {
            execute_response::Message::Exchange(exchange) => exchange,
            other => panic!("no exchange: {other:?}"),
        }
    }

    pub async fn ack(&self, ordinal: u32) {
        let ack = Message::Ack(ExchangeAck { ordinal });
        self.requests.send(ExecuteRequest { message: Some(ack) }).await.unwrap();
    }
}

/// A start message with nothing but the needful.
pub fn start(uri: &str, runtime: Runtime, input: &str) -> Start {
    Start { module_digest: uri.to_owned(), runtime: runtime as i32, input_json: input.to_owned(), ..Start::default() }
}

/// Limits of which only the fuel is given.
pub fn fuel(fuel: u64) -> Option<Limits> {
    Some(Limits { fuel: Some(fuel), ..Limits::default() })
}

/// A deadline so many milliseconds from now.
pub fn within_ms(ms: u64) -> Option<prost_types::Timestamp> {
    Some((std::time::SystemTime::now() + Duration::from_millis(ms)).into())
}

#[track_caller]
pub fn assert_failed(outcome: &Outcome, kind: OutcomeKind, text: &str) {
    assert_eq!(outcome.kind(), kind, "{outcome:?}");
    assert!(outcome.text.contains(text), "{:?} does not say {text:?}", outcome.text);
    assert!(outcome.output_json.is_empty(), "{outcome:?}");
}

#[track_caller]
pub fn assert_output(outcome: &Outcome, output: &str) {
    assert_eq!((outcome.kind(), outcome.text.as_str()), (OutcomeKind::Completed, ""), "{outcome:?}");
    assert_eq!(outcome.output_json, output);
}

/// Waits until something holds.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(std::time::Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
