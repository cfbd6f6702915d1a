//! Puts the runner together: store, catalogue, dispatcher, runs, services.

pub mod control;
mod faults;
mod files;
mod index;
mod readiness;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use proto::{
    admin,
    runner::v1::{catalog_service_server, runner_service_server},
    serve::{self, Health},
};
use runner_core::manifest::Durability;
use tokio_util::sync::CancellationToken;
use tonic::{server::NamedService, service::Routes};

use crate::{
    access::{Access, LocalAccess, StaticAccess},
    api::{
        catalog::{CatalogApi, CatalogParts, HostOffer},
        runner::{RunStepActions, RunnerApi, RunnerParts},
        stamp,
    },
    catalogue::Catalogue,
    config::{Config, DurabilityArg},
    dispatch::{DispatchConfig, Dispatcher, HostToolAt, PATIENCE_DEFAULT, SandboxAt},
    evidence::receipt::ReceiptKey,
    journal::{self, Disk, Journal},
    runs::{Attempts, Clock, Runs, Shared},
};

/// Memory for the journal's cache, in bytes.
const JOURNAL_CACHE_BYTES: u64 = 64 * 1024 * 1024;

/// The services of this process, by their full names.
const SERVICES: [&str; 2] = [
    runner_service_server::RunnerServiceServer::<RunnerApi>::NAME,
    catalog_service_server::CatalogServiceServer::<CatalogApi>::NAME,
];

/// Refuses what a start would refuse, without touching the data directory.
///
/// # Errors
/// The tokens' file or an address cannot be used.
pub fn check(config: &Config) -> anyhow::Result<()> {
    if let Some(path) = &config.tokens_file {
        StaticAccess::load(path)?;
    }
    Dispatcher::new(dispatch_config(config), files::no_code())?;
    Ok(())
}

/// The runner, opened and not serving yet.
pub struct App {
    config: Config,
    catalogue: Arc<Catalogue>,
    access: Arc<dyn Access>,
    runs: Runs,
    receipts: Arc<ReceiptKey>,
    drain: CancellationToken,
}

impl App {
    /// Opens store and catalogue. The data directory is this process's alone from here on.
    pub async fn open(config: Config) -> anyhow::Result<Self> {
        let drain = CancellationToken::new();
        let access = access(&config)?;
        let (data_dir, durability) = (config.data_dir.clone(), config.durability);
        let opened = tokio::task::spawn_blocking(move || open(&data_dir, durability, faults::disk()?)).await?;
        let (journal, catalogue) = opened?;
        let dispatcher = Dispatcher::new(dispatch_config(&config), files::code(&catalogue))?;
        let dispatcher = dispatcher.with_blobs(Arc::clone(catalogue.blobs()));
        let shared = Arc::new(Shared {
            journal,
            dispatcher,
            workers: Arc::new(tokio::sync::Semaphore::new(config.workers)),
            effect_timeout: config.effect_timeout,
            clock: Clock::start(),
            lease: config.lease,
            node_id: config.node_id.clone(),
            model: config.model.clone(),
            instance: uuid::Uuid::new_v4().to_string(),
            attempts: Attempts::in_dir(&config.data_dir),
        });
        let runs = Runs::new(shared, config.max_concurrent_runs, drain.clone());
        // After the journal, which takes the directory for this process.
        let receipts = Arc::new(ReceiptKey::load(config.receipt_key.as_deref(), &config.data_dir)?);
        tracing::info!(public_key = receipts.public_key(), "receipts are signed with this key");
        Ok(Self { config, catalogue, access, runs, receipts, drain })
    }

    /// Binds, takes unfinished runs over, serves until SIGTERM, and drains.
    pub async fn serve(self) -> anyhow::Result<()> {
        let settings = self.config.serve.clone();
        let listener = serve::bind("runner-svc", &settings).await?;
        let health = Health::not_serving(&SERVICES).await;
        let signals = serve::drain_on_signal(self.drain.clone())?;
        let served = Arc::new(AtomicBool::new(false));
        let ready = readiness::of(&self.runs, &served, &self.drain);
        let admin = match settings.admin_listen {
            Some(address) => {
                let notes = readiness::notes(&self.runs);
                // It outlives the drain's beginning, so that /readyz can say that it has begun.
                Some(admin::serve_with_notes(address, Arc::clone(&ready), notes, CancellationToken::new()).await?)
            }
            None => None,
        };
        let follow_pins = tokio::spawn(self.config.pins.clone().follow(self.drain.clone()));
        let recovered = self.runs.recover().await?;
        if recovered > 0 || self.runs.quarantined() > 0 {
            tracing::info!(driven = recovered, quarantined = self.runs.quarantined(), "unfinished runs taken over");
        }
        let journal = self.runs.shared().journal.clone();
        let control = tokio::spawn(control::serve(journal, self.config.data_dir.clone(), self.drain.clone()));
        served.store(true, Ordering::Relaxed);
        let follow_health = tokio::spawn(readiness::follow(health.clone(), &SERVICES, ready, self.drain.clone()));
        let settled = CancellationToken::new();
        let serving = async {
            let (drain, settled) = (self.drain.clone(), settled.clone().cancelled_owned());
            let served = serve::serve(listener, &settings, self.routes(), &health, (drain, settled)).await;
            // Also when serving fails, the runs are let go in order.
            self.drain.cancel();
            served
        };
        let settling = async {
            self.settle(settings.drain).await;
            settled.cancel();
        };
        let (served, ()) = tokio::join!(serving, settling);
        served?;
        for task in [Some(signals), admin, Some(follow_pins), Some(follow_health), Some(control)].into_iter().flatten()
        {
            task.abort();
        }
        tracing::info!("stopped");
        Ok(())
    }

    /// From the drain on: waits for effects in flight, so that their results are journaled.
    async fn settle(&self, limit: std::time::Duration) {
        self.drain.cancelled().await;
        if tokio::time::timeout(limit, self.runs.drained()).await.is_err() {
            tracing::warn!("some effects did not end in time: the next start sends them again");
        }
    }

    fn routes(&self) -> Routes {
        let runner = RunnerApi::new(RunnerParts {
            runs: self.runs.clone(),
            catalogue: Arc::clone(&self.catalogue),
            access: Arc::clone(&self.access),
            host: self.host(),
            durability: named(self.config.durability),
            receipts: Arc::clone(&self.receipts),
            drain: self.drain.clone(),
        });
        let catalog = CatalogApi::new(CatalogParts {
            catalogue: Arc::clone(&self.catalogue),
            access: Arc::clone(&self.access),
            host: self.host(),
            now_ms: stamp::now_ms,
            step_actions: Arc::new(RunStepActions::new(self.runs.shared().journal.clone())),
        });
        Routes::new(runner.into_server()).add_service(catalog.into_server())
    }

    /// What this host allows, as it stands at the time of a call.
    fn host(&self) -> Box<dyn Fn() -> HostOffer + Send + Sync> {
        let pins = self.config.pins.clone();
        let offer = HostOffer {
            sandbox_url: !self.config.sandbox_urls.is_empty(),
            sandbox_cmd: self.config.sandbox_cmd.is_some(),
            host_tool: self.config.tool_cmd.is_some() || self.config.tool_url.is_some(),
            model: self.config.model.clone(),
            ..HostOffer::default()
        };
        Box::new(move || HostOffer { pins: pins.current(), ..offer.clone() })
    }
}

fn access(config: &Config) -> anyhow::Result<Arc<dyn Access>> {
    Ok(match &config.tokens_file {
        Some(path) => Arc::new(StaticAccess::load(path)?),
        None => {
            tracing::info!("no --tokens-file: callers on this host are user:local and may do everything");
            Arc::new(LocalAccess)
        }
    })
}

fn open(
    data_dir: &std::path::Path,
    durability: DurabilityArg,
    disk: Arc<dyn Disk>,
) -> anyhow::Result<(Journal, Arc<Catalogue>)> {
    let files = Arc::new(files::JournalFiles::default());
    let options = journal::Options {
        durability: match durability {
            DurabilityArg::PowerLoss => journal::Durability::PowerLoss,
            DurabilityArg::ProcessCrash => journal::Durability::ProcessCrash,
        },
        files: Arc::clone(&files) as Arc<dyn journal::PayloadFiles>,
        disk,
        cache_bytes: JOURNAL_CACHE_BYTES,
    };
    // The journal comes first: it takes the directory for this process.
    let (journal, mended) = Journal::open_mending(data_dir, options, false)?;
    if let Some(journal::Mended { kept, gaps, values, runs_short }) = mended {
        tracing::error!(
            kept = %kept.display(), gaps, values, runs_short,
            "the journal's file is damaged: it was written anew from what can be read, and the damaged one is kept; runs that \
             lack something are quarantined by name"
        );
        metrics::counter!("areev_journal_mended_total").increment(1);
    }
    // The index is made whole from the catalogue's files at each start, so it needs no durability of its own.
    let index = index::open(&data_dir.join("catalogue"))?;
    let catalogue = Arc::new(Catalogue::open(data_dir, index)?);
    files.attach(Arc::clone(catalogue.blobs()));
    Ok((journal, catalogue))
}

fn named(durability: DurabilityArg) -> Durability {
    match durability {
        DurabilityArg::PowerLoss => Durability::PowerLoss,
        DurabilityArg::ProcessCrash => Durability::ProcessCrash,
    }
}

fn dispatch_config(config: &Config) -> DispatchConfig {
    let sandbox = match (&config.sandbox_cmd, config.sandbox_urls.is_empty()) {
        (Some(command), _) => Some(SandboxAt::Command(command.clone())),
        (None, false) => Some(SandboxAt::Urls(config.sandbox_urls.clone())),
        (None, true) => None,
    };
    let host_tool = match (&config.tool_cmd, &config.tool_url) {
        (Some(command), _) => Some(HostToolAt::Command(command.clone())),
        (None, Some(url)) => Some(HostToolAt::Url(url.clone())),
        (None, None) => None,
    };
    DispatchConfig {
        sandbox,
        host_tool,
        broker_urls: config.broker_urls.clone(),
        module_dir: config.data_dir.join("modules"),
        blob_dir: config.data_dir.join("blobs"),
        children_max: config.workers,
        children_dir: config.data_dir.join("children"),
        patience: PATIENCE_DEFAULT,
        tls: config.serve.tls.clone(),
    }
}
