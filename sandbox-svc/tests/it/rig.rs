//! A sandbox served in this process on a free port, and a client that speaks to it as the runner does.

use std::{ops::Deref, sync::Arc, time::Duration};

use proto::{
    dial::dial,
    sandbox::v1::{Limits, Outcome, OutcomeKind, sandbox_service_client::SandboxServiceClient},
    serve,
};
use sandbox_svc::{
    app::App,
    config::{Args, Config},
    native::NativeSettings,
    sandbox::Sandbox,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::Channel;

use crate::caller::Caller;
pub use crate::caller::{Call, start};

/// Longest wait for what a loaded machine must manage.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Rig {
    caller: Caller,
    pub sandbox: Arc<Sandbox>,
    _drain: DropGuard,
    directory: tempfile::TempDir,
}

impl Rig {
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// A sandbox that executes native blobs.
    pub async fn native() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // As /tmp is: a child that is nobody finds its way.
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
        let (native, jail) = (dir.path().join("native"), env!("CARGO_BIN_EXE_sandbox-svc").into());
        let native = NativeSettings { dir: Some(native), jail, read: Vec::new() };
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
        Self { caller: Caller { client }, sandbox, _drain: drain.drop_guard(), directory: dir }
    }

    /// Speaks to another sandbox from now on.
    pub fn speaking_to(self, client: SandboxServiceClient<Channel>) -> Self {
        Self { caller: Caller { client }, ..self }
    }

    /// A caller of its own for a task.
    pub fn caller(&self) -> Caller {
        self.caller.clone()
    }

    /// Where native blobs live, under `native`.
    pub fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }
}

impl Deref for Rig {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        &self.caller
    }
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
