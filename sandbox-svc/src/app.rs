//! The composition root: from settings to a running service.

use std::{sync::Arc, time::Duration};

use proto::{
    admin,
    dial::{DialError, dial},
    sandbox::v1::sandbox_service_server::SandboxServiceServer,
    serve::{self, BoundListener, Health, MESSAGE_BYTES_MAX, ServeError},
};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::{
    admission::Admission,
    api::{Api, intake::Intake},
    background::Background,
    broker_client::BrokerClient,
    config::Config,
    engine::{Engine, EngineError},
    module_cache::{
        ModuleCache,
        disk::{self, DiskCache, DiskFault},
    },
    native::{Native, NativeFault},
    sandbox::Sandbox,
};

const SERVICES: [&str; 1] = ["areev.sandbox.v1.SandboxService"];
/// How often gauges are taken.
const GAUGES_EVERY: Duration = Duration::from_secs(5);

/// The service cannot start or has ended badly.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The broker's URL.
    #[error("--broker-url")]
    Broker(#[from] DialError),
    /// Native execution.
    #[error("native execution")]
    Native(#[from] NativeFault),
    /// The cache on disk.
    #[error("--cache-dir")]
    Cache(#[from] DiskFault),
    /// Threads.
    #[error("cannot start threads")]
    Threads(#[source] std::io::Error),
    /// Serving.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Tries what a start reads, and leaves nothing behind.
///
/// # Errors
/// A broker's URL, the cache's key, or what native blobs may read cannot be used.
pub fn check(config: &Config) -> Result<(), AppError> {
    brokers(config)?;
    if let Some(key_file) = config.disk.as_ref().and_then(|disk| disk.key_file.as_deref()) {
        disk::check_key(key_file)?;
    }
    if let Some(native) = &config.native {
        native.check()?;
    }
    Ok(())
}

fn brokers(config: &Config) -> Result<Vec<(String, BrokerClient)>, AppError> {
    let client = |url: &String| {
        let channel = dial(url, config.serve.tls.as_ref())?;
        Ok((url.clone(), BrokerClient::new(channel)))
    };
    config.broker_urls.iter().map(client).collect()
}

/// The service, ready to serve.
pub struct App {
    config: Config,
    sandbox: Arc<Sandbox>,
}

impl App {
    /// Makes the parts. Nothing listens yet.
    pub fn build(config: Config) -> Result<Self, AppError> {
        let pages_max = config.bounds.limits_max.memory_pages;
        let engine = Engine::new(config.capacity.slots as u32, pages_max)?;
        let background = Background::start().map_err(AppError::Threads)?;
        let disk = config.disk.as_ref().map(|settings| DiskCache::open(settings, &engine, pages_max)).transpose()?;
        let kept = disk.as_ref().map_or(0, |disk| disk.held().0);
        let compiler = config.compiler.clone();
        let modules = ModuleCache::new(engine, config.cache, compiler, Arc::clone(&background), disk);
        let mut sandbox = Sandbox::new(config.bounds, modules, Admission::new(config.capacity), background);
        sandbox.brokers = brokers(&config)?;
        if let Some(settings) = &config.native {
            let native = Native::open(settings)?;
            tracing::warn!(isolation = native.isolation().join(","), "native blobs are executed (--allow-native)");
            sandbox.native = Some(native);
        }
        let broker = match &config.broker_urls[..] {
            [] => "none".to_owned(),
            urls => urls.join(","),
        };
        tracing::info!(
            slots = config.capacity.slots,
            queue = config.capacity.queue,
            broker,
            kept,
            native = config.native.is_some(),
            "ready to execute"
        );
        Ok(Self { config, sandbox: Arc::new(sandbox) })
    }

    /// The sandbox itself, for callers in the same process.
    pub fn sandbox(&self) -> &Arc<Sandbox> {
        &self.sandbox
    }

    /// Binds the configured address and serves until the token is cancelled; then drains.
    pub async fn run(self, drain: CancellationToken) -> Result<(), AppError> {
        let listener = serve::bind("sandbox-svc", &self.config.serve).await?;
        self.run_on(listener, drain).await
    }

    /// Serves on a listener of the caller's until the token is cancelled; then drains.
    pub async fn run_on(self, listener: BoundListener, drain: CancellationToken) -> Result<(), AppError> {
        let health = Health::not_serving(&SERVICES).await;
        let admin = match self.config.serve.admin_listen {
            // It outlives the drain's beginning, so that /readyz can say that it has begun.
            Some(address) => Some(admin::serve(address, readiness(drain.clone()), CancellationToken::new()).await?),
            None => None,
        };
        let api = Api::new(Arc::clone(&self.sandbox), self.config.serve.trust_domain.clone());
        let service = SandboxServiceServer::new(api)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        health.set(&SERVICES, true).await;
        let watch = tokio::spawn(watch(Arc::clone(&self.sandbox), health.clone(), drain.clone()));
        let settled = std::future::ready(());
        let served =
            serve::serve(listener, &self.config.serve, Routes::new(Intake::of(service)), &health, (drain, settled))
                .await;
        for task in admin.into_iter().chain([watch]) {
            task.abort();
        }
        Ok(served?)
    }
}

/// Takes gauges, and tells health checks when the drain begins.
async fn watch(sandbox: Arc<Sandbox>, health: Health, drain: CancellationToken) {
    let mut every = tokio::time::interval(GAUGES_EVERY);
    loop {
        tokio::select! {
            _ = every.tick() => {
                metrics::gauge!("areev_sandbox_running").set(sandbox.admission.running() as f64);
                metrics::gauge!("areev_sandbox_queued").set(sandbox.admission.queued() as f64);
                metrics::gauge!("areev_sandbox_module_bytes").set(sandbox.modules.held().1 as f64);
                let cached = sandbox.modules.disk().map_or(0, |disk| disk.held().1);
                metrics::gauge!("areev_sandbox_cache_bytes").set(cached as f64);
            }
            () = drain.cancelled() => {
                health.set(&SERVICES, false).await;
                return;
            }
        }
    }
}

fn readiness(drain: CancellationToken) -> admin::Readiness {
    Arc::new(move || {
        let draining = drain.is_cancelled();
        Box::pin(async move { if draining { Err("draining".to_owned()) } else { Ok(()) } })
    })
}
