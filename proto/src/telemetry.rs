//! Logs and metrics of one process.

use std::{io::IsTerminal as _, sync::OnceLock};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use serde::{Deserialize, Serialize};
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _};

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Human,
    /// One JSON object a line.
    Json,
}

/// What a service logs and how.
#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize)]
#[command(next_help_heading = "Logs")]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryArgs {
    /// How log lines look [default: human]
    #[arg(long, value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_format: Option<LogFormat>,
    /// What is logged, as `level` or `target=level,…` [default: info]
    #[arg(long, value_name = "FILTER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

impl TelemetryArgs {
    /// The settings in force, every default filled in.
    #[must_use]
    pub fn filled(&self) -> Self {
        Self { log_format: Some(self.log_format.unwrap_or_default()), log: Some(self.filter()) }
    }

    /// Tries the filter, and begins nothing.
    ///
    /// # Errors
    /// It does not parse.
    pub fn check(&self) -> Result<(), BadFilter> {
        self.parsed(&[]).map(drop)
    }

    fn parsed(&self, muted: &[&str]) -> Result<EnvFilter, BadFilter> {
        let filter = self.filter();
        let muted = muted.iter().map(|target| format!("{target}=warn"));
        // What comes later holds; so does what is more exact, and then is what a person wants to see.
        let whole = std::iter::once(filter.clone()).chain(muted).collect::<Vec<_>>().join(",");
        EnvFilter::try_new(whole).map_err(|cause| BadFilter { filter, cause: cause.to_string() })
    }

    fn filter(&self) -> String {
        self.log.clone().or_else(|| std::env::var("RUST_LOG").ok()).unwrap_or_else(|| "info".to_owned())
    }
}

/// A log filter that does not parse.
#[derive(Debug, thiserror::Error)]
#[error("--log {filter:?}: {cause}; write a level (error, warn, info, debug, trace) or target=level pairs with commas")]
pub struct BadFilter {
    filter: String,
    cause: String,
}

/// Buckets of durations, in seconds: from the floor of one local call to a minute.
const SECONDS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 10.0, 60.0];

static METRICS: OnceLock<PrometheusHandle> = OnceLock::new();

/// Begins logging to stderr. `RUST_LOG` is heard where `--log` is absent. Only the first call of a process counts.
pub fn init(args: &TelemetryArgs) -> Result<(), BadFilter> {
    init_without(args, &[])
}

/// The same, but of these targets nothing below a warning is logged, whatever is asked for: their words are somebody else's.
pub fn init_without(args: &TelemetryArgs, muted: &[&str]) -> Result<(), BadFilter> {
    let parsed = args.parsed(muted)?;
    // A file or a collector gets plain text; so does a person who asked for it.
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal() && !plain);
    let registry = tracing_subscriber::registry().with(parsed);
    let _already_set = match args.log_format.unwrap_or_default() {
        LogFormat::Human => registry.with(lines.compact().with_target(false)).try_init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
    };
    metrics();
    Ok(())
}

/// The process's metrics; begins counting at the first call.
pub fn metrics() -> &'static PrometheusHandle {
    METRICS.get_or_init(|| {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)
            .expect("the buckets are not empty")
            .build_recorder();
        let handle = recorder.handle();
        let _already_set = metrics::set_global_recorder(recorder);
        handle
    })
}
