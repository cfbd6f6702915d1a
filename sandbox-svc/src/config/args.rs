//! The command line; the same shape is the settings file's.

use std::path::PathBuf;

use proto::{
    serve::{Drain, ServeArgs},
    telemetry::TelemetryArgs,
};
use serde::{Deserialize, Serialize};

use super::compiling::CompilingArgs;
use crate::{compile::child::CompileArgs, exec::ExecArgs, jail::JailArgs, limits::Limits};

/// Runs content-addressed tool code, isolated: wasm modules with nothing but their input, and native blobs where allowed.
///
/// Without a command it serves areev.sandbox.v1.SandboxService. Each flag can also be given as AREEV_SANDBOX_FLAG, or in a
/// TOML file (--config); flags are stronger than the environment, the environment is stronger than the file.
#[derive(Debug, Default, clap::Parser, Serialize, Deserialize)]
#[command(name = "sandbox-svc", version, args_conflicts_with_subcommands = true)]
#[serde(default, deny_unknown_fields)]
pub struct Args {
    /// Settings file, TOML; unknown keys are refused
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Print the settings in force as TOML and end
    #[arg(long)]
    #[serde(skip)]
    pub print_config: bool,
    /// The broker, http://HOST:PORT, https://HOST:PORT or unix:PATH, repeatable for its replicas; without it no guest can call out
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub broker_url: Vec<String>,
    /// Execute native blobs too
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_native: Option<bool>,
    /// Directory for native blobs and their working directories, on a file system that allows execution [default: a
    /// new one under TMPDIR]
    #[arg(long, value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native_dir: Option<PathBuf>,
    /// Directories and files that native blobs may read beside the system's programs and libraries, comma-separated
    #[arg(long, value_name = "PATHS", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub native_read: Vec<PathBuf>,
    /// Serving.
    #[command(flatten)]
    pub serve: ServeArgs,
    /// Capacity.
    #[command(flatten)]
    pub capacity: CapacityArgs,
    /// Compiling, and the cache on disk.
    #[command(flatten)]
    pub compiling: CompilingArgs,
    /// Limits of one call.
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Logs.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
    /// Something else than serving.
    #[command(subcommand)]
    #[serde(skip)]
    pub command: Option<Command>,
}

/// What the program does other than serving.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Run one module once: JSON on stdin, the result as one line of JSON on stdout
    ///
    /// A blank stdin is null. What went wrong goes to stderr, and then `fuel used N`. It ends with 0 when there is a result, and
    /// with 1 otherwise, after 300 seconds at the latest.
    Exec(ExecArgs),
    /// The inside of a native child
    #[command(hide = true)]
    Jail(JailArgs),
    /// The inside of a compiling child
    #[command(hide = true)]
    Compile(CompileArgs),
}

/// How much at once, and how much is kept.
#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize)]
#[command(next_help_heading = "Capacity")]
#[serde(default, deny_unknown_fields)]
pub struct CapacityArgs {
    /// Guests that run at once [default: 4 for each core]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<usize>,
    /// Calls that may wait for a slot; more are told to try again [default: 256]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<usize>,
    /// Most of the slots, and of the queue, that calls of one tenant may take, in percent [default: 75]
    #[arg(long, value_name = "PERCENT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_percent: Option<u8>,
    /// Longest wall clock of one call, whatever its deadline; from 1s to 1h [default: 5m]
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_wall_clock: Option<Drain>,
    /// Largest module or native blob, in bytes [default: 16777216]
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_module_bytes: Option<u64>,
    /// Largest input, in bytes [default: 8388608]
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_input_bytes: Option<usize>,
    /// Largest output, in bytes; also of a fetch request and its reply [default: 8388608]
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_bytes: Option<usize>,
    /// Bytes of uploaded code that are kept [default: 268435456]
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module_cache_bytes: Option<u64>,
    /// Bytes of compiled code that are kept [default: 536870912]
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compiled_cache_bytes: Option<u64>,
}

/// Limits of one call: what it gets when it asks for nothing, and the most that it gets when it asks.
#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize)]
#[command(next_help_heading = "Limits of one call")]
#[serde(default, deny_unknown_fields)]
pub struct LimitArgs {
    /// Fuel [default: 200000000]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
    /// Most fuel that a call may ask for [default: 100000000000]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fuel_max: Option<u64>,
    /// Memory, in pages of 64 KiB [default: 256]
    #[arg(long, value_name = "PAGES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_pages: Option<u64>,
    /// Most memory that a call may ask for, in pages of 64 KiB [default: 4096]
    #[arg(long, value_name = "PAGES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_pages_max: Option<u64>,
    /// Brokered calls [default: 64]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// Most brokered calls that a call may ask for [default: 1024]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_max: Option<u64>,
    /// Body of one brokered answer, in bytes [default: 1048576]
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_bytes: Option<u64>,
    /// Most that a call may ask for, in bytes [default: 8388608]
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_bytes_max: Option<u64>,
    /// Body of one brokered request, in bytes [default: 1048576]
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_bytes: Option<u64>,
    /// Most that a call may ask for, in bytes [default: 8388608]
    #[arg(long, value_name = "BYTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_bytes_max: Option<u64>,
}

impl Args {
    /// The settings in force, every key filled in, as a settings file.
    pub fn print(&self, config: &super::Config) -> Result<String, toml::ser::Error> {
        let (bounds, limits, max) = (&config.bounds, &config.bounds.limits_default, &config.bounds.limits_max);
        let serve = ServeArgs {
            listen: Some(config.serve.listen.clone()),
            admin_listen: Some(
                config.serve.admin_listen.map_or_else(|| "off".to_owned(), |address| address.to_string()),
            ),
            insecure_listen: Some(self.serve.insecure_listen.unwrap_or(false)),
            trust_domain: Some(config.serve.trust_domain.clone()),
            drain: Some(Drain(config.serve.drain)),
            ..self.serve.clone()
        };
        let capacity = CapacityArgs {
            max_concurrent: Some(config.capacity.slots),
            queue: Some(config.capacity.queue),
            tenant_percent: Some(config.capacity.tenant_percent),
            max_wall_clock: Some(Drain(bounds.wall_clock_max)),
            max_module_bytes: Some(bounds.module_bytes_max),
            max_input_bytes: Some(bounds.input_bytes_max),
            max_output_bytes: Some(bounds.output_bytes_max),
            module_cache_bytes: Some(config.cache.uploaded_bytes),
            compiled_cache_bytes: Some(config.cache.compiled_bytes),
        };
        let filled = Self {
            broker_url: self.broker_url.clone(),
            allow_native: Some(config.native.is_some()),
            native_dir: self.native_dir.clone(),
            native_read: self.native_read.clone(),
            serve,
            capacity,
            compiling: CompilingArgs::filled(&config.compiler.limits, config.disk.as_ref()),
            limits: LimitArgs::filled(limits, max),
            telemetry: self.telemetry.filled(),
            config: None,
            print_config: false,
            command: None,
        };
        toml::to_string(&filled)
    }
}

impl LimitArgs {
    fn filled(limits: &Limits, max: &Limits) -> Self {
        Self {
            fuel: Some(limits.fuel),
            fuel_max: Some(max.fuel),
            memory_pages: Some(limits.memory_pages),
            memory_pages_max: Some(max.memory_pages),
            calls: Some(limits.calls),
            calls_max: Some(max.calls),
            response_bytes: Some(limits.response_bytes),
            response_bytes_max: Some(max.response_bytes),
            request_bytes: Some(limits.request_bytes),
            request_bytes_max: Some(max.request_bytes),
        }
    }
}
