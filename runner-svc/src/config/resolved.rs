//! The settings, checked: what the rest of the runner is given.

use std::{path::PathBuf, time::Duration};

use proto::{
    serve::{Drain, ServeError, ServeSettings},
    settings::SettingsError,
    telemetry::TelemetryArgs,
};

use runner_core::model::{ModelPin, Price};

use super::{DurabilityArg, Flags, PORTS, PinError, Pins};

const EFFECT_TIMEOUT: Duration = Duration::from_secs(300);
const LEASE: Duration = Duration::from_secs(15);
const LEASE_MIN: Duration = Duration::from_secs(5);
const WORKERS: u32 = 64;
const WORKERS_MAX: u32 = 10_000;
const RUNS: u32 = 1000;
const RUNS_MAX: u32 = 1_000_000;
/// Longest name of a node, in bytes.
const NODE_ID_BYTES_MAX: usize = 128;
const MODEL_URL_BYTES_MAX: usize = 2048;
const MODEL_NAME_BYTES_MAX: usize = 256;

/// Settings that hold together.
#[derive(Debug, Clone)]
pub struct Config {
    /// Directory of journal, catalogue and blobs.
    pub data_dir: PathBuf,
    /// What an acknowledged write survives.
    pub durability: DurabilityArg,
    /// Key that signs receipts; the data directory's own without one.
    pub receipt_key: Option<PathBuf>,
    /// What may execute.
    pub pins: Pins,
    /// Sandboxes.
    pub sandbox_urls: Vec<String>,
    /// One-shot sandbox program.
    pub sandbox_cmd: Option<String>,
    /// Broker.
    pub broker_urls: Vec<String>,
    /// The model of abstract nodes.
    pub model: Option<ModelPin>,
    /// Host tools by command.
    pub tool_cmd: Option<String>,
    /// Host tools by service.
    pub tool_url: Option<String>,
    /// Effects in flight at once.
    pub workers: usize,
    /// Unfinished runs at once.
    pub max_concurrent_runs: usize,
    /// Longest time of one effect whose node names none.
    pub effect_timeout: Duration,
    /// Length of a lease.
    pub lease: Duration,
    /// Name in leases.
    pub node_id: String,
    /// Bearer tokens.
    pub tokens_file: Option<PathBuf>,
    /// Serving.
    pub serve: ServeSettings,
    /// Logging.
    pub telemetry: TelemetryArgs,
}

/// The settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// File and flags.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Pins.
    #[error(transparent)]
    Pins(#[from] PinError),
    /// Serving.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A model is named by halves.
    #[error("the model's settings need {0}")]
    ModelNeeds(&'static str),
    /// A value is outside its bounds.
    #[error("{flag} is {value}: it may be {bounds}")]
    OutOfBounds {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        bounds: String,
    },
}

impl Config {
    /// Checks the flags.
    pub fn resolve(flags: &Flags) -> Result<Self, ConfigError> {
        let node_id = flags.node_id.clone().unwrap_or_else(host_name);
        if node_id.is_empty() || node_id.len() > NODE_ID_BYTES_MAX || node_id.chars().any(char::is_control) {
            let bounds = format!("1 to {NODE_ID_BYTES_MAX} bytes without control characters");
            return Err(ConfigError::OutOfBounds { flag: "--node-id", value: format!("{node_id:?}"), bounds });
        }
        Ok(Self {
            data_dir: flags.data_dir.clone().unwrap_or_else(|| PathBuf::from("areev-data")),
            durability: flags.durability.unwrap_or_default(),
            receipt_key: flags.receipt_key.clone(),
            pins: Pins::read(&flags.allow_executor, flags.allow_executor_file.as_deref())?,
            sandbox_urls: flags.sandbox_url.clone(),
            sandbox_cmd: flags.sandbox_cmd.clone(),
            broker_urls: flags.broker_url.clone(),
            model: model(flags)?,
            tool_cmd: flags.tool_cmd.clone(),
            tool_url: flags.tool_url.clone(),
            workers: within("--workers", flags.workers.unwrap_or(WORKERS), WORKERS_MAX)?,
            max_concurrent_runs: within("--max-concurrent-runs", flags.max_concurrent_runs.unwrap_or(RUNS), RUNS_MAX)?,
            effect_timeout: flags.effect_timeout.map_or(EFFECT_TIMEOUT, |time| time.0),
            lease: lease(flags.lease.map_or(LEASE, |time| time.0))?,
            node_id,
            tokens_file: flags.tokens_file.clone(),
            // A caller of the runner may come with a bearer token instead of a certificate.
            serve: ServeSettings { client_certificate_optional: true, ..flags.serve.resolve(PORTS)? },
            telemetry: flags.telemetry.clone(),
        })
    }
}

impl Flags {
    /// The settings in force, every default filled in, as a settings file.
    #[must_use]
    pub fn filled(&self, config: &Config) -> Self {
        let number = |count: usize| Some(u32::try_from(count).unwrap_or(u32::MAX));
        Self {
            data_dir: Some(config.data_dir.clone()),
            durability: Some(config.durability),
            workers: number(config.workers),
            max_concurrent_runs: number(config.max_concurrent_runs),
            effect_timeout: Some(Drain(config.effect_timeout)),
            lease: Some(Drain(config.lease)),
            node_id: Some(config.node_id.clone()),
            serve: self.serve.filled(&config.serve),
            telemetry: self.telemetry.filled(),
            ..self.clone()
        }
    }
}

/// A model is asked through the broker, so that the runner never holds its key.
fn model(flags: &Flags) -> Result<Option<ModelPin>, ConfigError> {
    let (url, name) = match (&flags.model_url, &flags.model) {
        (None, None) => return Ok(None),
        (Some(url), Some(name)) => (url.clone(), name.clone()),
        (Some(_), None) => return Err(ConfigError::ModelNeeds("--model NAME")),
        (None, Some(_)) => return Err(ConfigError::ModelNeeds("--model-url URL")),
    };
    if flags.broker_url.is_empty() {
        return Err(ConfigError::ModelNeeds("--broker-url URL, since a model is asked through the broker"));
    }
    let bounded = |flag: &'static str, text: &str, max: usize| {
        if text.is_empty() || text.len() > max || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            let bounds = format!("1 to {max} bytes without white space");
            return Err(ConfigError::OutOfBounds { flag, value: format!("{text:?}"), bounds });
        }
        Ok(())
    };
    bounded("--model-url", &url, MODEL_URL_BYTES_MAX)?;
    bounded("--model", &name, MODEL_NAME_BYTES_MAX)?;
    if !url.starts_with("https://") && !url.starts_with("http://") {
        let bounds = "an absolute https:// or http:// URL".to_owned();
        return Err(ConfigError::OutOfBounds { flag: "--model-url", value: url, bounds });
    }
    let price = match (flags.model_input_price, flags.model_output_price) {
        (None, None) => None,
        (Some(input), Some(output)) => Some(Price { input, output }),
        (Some(_), None) => return Err(ConfigError::ModelNeeds("--model-output-price N beside --model-input-price")),
        (None, Some(_)) => return Err(ConfigError::ModelNeeds("--model-input-price N beside --model-output-price")),
    };
    Ok(Some(ModelPin { url, name, credential: flags.model_credential.clone(), price }))
}

fn within(flag: &'static str, value: u32, most: u32) -> Result<usize, ConfigError> {
    if value == 0 || value > most {
        return Err(ConfigError::OutOfBounds { flag, value: value.to_string(), bounds: format!("1 to {most}") });
    }
    Ok(value as usize)
}

fn lease(length: Duration) -> Result<Duration, ConfigError> {
    if length < LEASE_MIN {
        let value = humantime::format_duration(length).to_string();
        let bounds = format!("{} or more", humantime::format_duration(LEASE_MIN));
        return Err(ConfigError::OutOfBounds { flag: "--lease", value, bounds });
    }
    Ok(length)
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
