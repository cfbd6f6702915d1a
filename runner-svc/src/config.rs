//! What the operator says: flags over environment (`AREEV_RUN_…`) over one TOML file.

mod pins;
mod resolved;

use std::path::PathBuf;

use crate::command::Command;

use clap::Parser;
use proto::{
    serve::{Drain, ServeArgs},
    settings,
    telemetry::TelemetryArgs,
};
use serde::{Deserialize, Serialize};

pub use pins::{PinError, Pins};
pub use resolved::{Config, ConfigError};

/// Prefix of the environment variables: `--data-dir` is `AREEV_RUN_DATA_DIR`.
pub const ENV_PREFIX: &str = "AREEV_RUN";
/// gRPC port and admin port.
pub const PORTS: (u16, u16) = (7410, 7411);

/// Runs plans durably: journals every effect, dispatches code to a sandbox, never holds a secret.
#[derive(Debug, Clone, Default, Parser, Serialize, Deserialize)]
#[command(name = "runner-svc", version, max_term_width = 110)]
#[serde(default, deny_unknown_fields)]
pub struct Flags {
    /// One TOML file with the same names, `data_dir = "…"`; flags and environment are stronger
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Print the effective settings as TOML and exit
    #[arg(long)]
    #[serde(skip)]
    pub print_config: bool,
    /// Something else than to serve.
    #[command(subcommand)]
    #[serde(skip)]
    pub command: Option<Command>,

    /// Directory of the journal, the catalogue and the blobs; one process at a time [default: ./areev-data]
    #[arg(long, value_name = "DIR", help_heading = "Store")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_dir: Option<PathBuf>,
    /// What an acknowledged write survives [default: power-loss]
    #[arg(long, value_enum, help_heading = "Store")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<DurabilityArg>,

    /// Ed25519 key that signs receipts, PKCS#8 PEM [default: DATA_DIR/receipt.key, made at the first start]
    #[arg(long, value_name = "FILE", help_heading = "Store")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt_key: Option<PathBuf>,

    /// Digests that may execute here: 64 hex digits or cas://sha256:…, comma-separated, repeatable
    #[arg(long, value_name = "HEX", value_delimiter = ',', help_heading = "Code")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_executor: Vec<String>,
    /// File with one such digest a line (`#` begins a comment), read again when it changes
    #[arg(long, value_name = "FILE", help_heading = "Code")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_executor_file: Option<PathBuf>,
    /// Sandbox that executes code: http://HOST:PORT, https://HOST:PORT or unix:PATH; repeatable
    #[arg(long, value_name = "URL", value_delimiter = ',', help_heading = "Code")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sandbox_url: Vec<String>,
    /// Program that executes one module a call instead (`PROGRAM --module FILE …`)
    #[arg(long, value_name = "PROGRAM", conflicts_with = "sandbox_url", help_heading = "Code")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_cmd: Option<String>,
    /// Broker that makes outbound calls; repeatable for its replicas, which every sandbox has to know by the same URLs
    #[arg(long, value_name = "URL", value_delimiter = ',', help_heading = "Code")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub broker_url: Vec<String>,

    /// Model of abstract nodes: where its chat completions are, an absolute URL; asked through the broker
    #[arg(long, value_name = "URL", requires = "model", help_heading = "Model")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_url: Option<String>,
    /// The model's name there
    #[arg(long, value_name = "NAME", requires = "model_url", help_heading = "Model")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Credential of the broker that model calls carry; [grants.model] has to grant it
    #[arg(long, value_name = "NAME", requires = "model_url", help_heading = "Model")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_credential: Option<String>,
    /// Price of a million tokens that the model reads, in millionths of a US dollar: 150000 is $0.15. Runs with a budget of
    /// max_usd_micros need both prices
    #[arg(long, value_name = "N", requires_all = ["model_url", "model_output_price"], help_heading = "Model")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_input_price: Option<u64>,
    /// Price of a million tokens that it writes
    #[arg(long, value_name = "N", requires_all = ["model_url", "model_input_price"], help_heading = "Model")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_output_price: Option<u64>,

    /// Command that executes host tools, as `/bin/sh -c COMMAND`: input on stdin, result on stdout, both JSON
    #[arg(long, value_name = "COMMAND", help_heading = "Host tools")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_cmd: Option<String>,
    /// Service that executes host tools (areev.tool.v1.HostToolService)
    #[arg(long, value_name = "URL", conflicts_with = "tool_cmd", help_heading = "Host tools")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_url: Option<String>,

    /// Effects in flight at once, over all runs [default: 64]
    #[arg(long, value_name = "N", help_heading = "Runs")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// Unfinished runs at once, child runs not counted; one more is refused with RUN-E027 [default: 1000]
    #[arg(long, value_name = "N", help_heading = "Runs")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent_runs: Option<u32>,
    /// Longest time of one effect whose node names none [default: 5m]
    #[arg(long, value_name = "TIME", help_heading = "Runs")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect_timeout: Option<Drain>,
    /// Length of a run's lease, at least 5s [default: 15s]
    #[arg(long, value_name = "TIME", help_heading = "Runs")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<Drain>,
    /// Name of this runner in leases [default: the host's name]
    #[arg(long, value_name = "NAME", help_heading = "Runs")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,

    /// TOML file of bearer tokens, their principals and permissions; without one a caller on this host is user:local
    #[arg(long, value_name = "FILE", help_heading = "Callers")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_file: Option<PathBuf>,

    /// Where and how the service listens.
    #[command(flatten)]
    pub serve: ServeArgs,
    /// What it logs.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
}

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DurabilityArg {
    /// Power loss: fdatasync has returned.
    #[default]
    PowerLoss,
    /// The end of the process only: for tests and throwaway use; every manifest says so.
    ProcessCrash,
}

impl Flags {
    /// Reads the command line, the environment and the file. Ends the process on `--help` and on usage errors, as clap does.
    pub fn read() -> Result<Self, ConfigError> {
        let command = settings::with_environment(<Self as clap::CommandFactory>::command(), ENV_PREFIX);
        let flags = <Self as clap::FromArgMatches>::from_arg_matches(&command.get_matches())
            .unwrap_or_else(|error| error.exit());
        let (file, print, command) = (flags.config.clone(), flags.print_config, flags.command.clone());
        let layered = settings::layer(flags, file.as_deref())?;
        Ok(Self { config: file, print_config: print, command, ..layered })
    }
}
