//! Settings: flags over environment over one TOML file. Every mistake stops the start and is named.

mod forms;
mod rules;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use proto::{
    serve::{Drain, ServeArgs, ServeError, ServeSettings},
    settings::{self, SettingsError},
    telemetry::TelemetryArgs,
};
use serde::{Deserialize, Serialize};

pub use forms::BadForm;
pub use rules::{BadRule, check_whole, policy_of};

use crate::{broker::CallBounds, policy::Policy};

/// Before the names of environment variables.
const ENV_PREFIX: &str = "AREEV_BROKER";
/// Default gRPC and admin port.
const PORTS: (u16, u16) = (7430, 7432);
/// Default egress port.
const EGRESS_PORT: u16 = 7431;
/// Longest `--call-timeout`.
const CALL_MAX: Duration = Duration::from_secs(3600);

/// Makes outbound calls for tools: decides, attaches the secret, sends, and hands back a bounded, scrubbed answer.
///
/// Nothing is allowed until a policy, a grant and, where a tool names one, a credential say so. They stand in the TOML file:
///
///   [policy]
///   allow_hosts = ["https://gmail.googleapis.com"]
///   [credentials.gmail]
///   kind = "bearer"               # or header, basic, query, oauth2_client_credentials, oauth2_refresh, aws_sigv4
///   from = "env:GMAIL_TOKEN"      # or "file:/path" (read again when it changes), "vault:mount/data/path#field", "cmd:/program"
///   hosts = ["https://gmail.googleapis.com"]
///   [grants.poster]
///   credentials = ["gmail"]
///   methods = ["POST"]
#[derive(Parser, Default, Serialize, Deserialize)]
#[allow(
    rustdoc::broken_intra_doc_links,
    rustdoc::bare_urls,
    reason = "the text is the program's help, with TOML in it"
)]
#[command(name = "broker-svc", version, verbatim_doc_comment)]
#[serde(default, deny_unknown_fields)]
pub struct Flags {
    /// TOML file: the policy, and any other setting under its flag's name
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Print the effective settings, secrets by name only, and end
    #[arg(long)]
    #[serde(skip)]
    pub print_config: bool,

    /// Credential from an environment variable: NAME=VAR or NAME=VAR@PRINCIPAL (only runs of this principal). It goes as a
    /// bearer token to whatever host grant and policy allow over https; in the file it can be kept to named hosts
    #[arg(long, value_name = "NAME=VAR[@PRINCIPAL]", value_delimiter = ',', help_heading = "Policy")]
    #[serde(skip)]
    pub credential: Vec<String>,
    /// Host that may be reached: scheme://host[:port] or scheme://*.host
    #[arg(long, value_name = "HOST", value_delimiter = ',', help_heading = "Policy")]
    #[serde(skip)]
    pub allow_host: Vec<String>,
    /// Grant: TOOL:CREDENTIALS:METHODS with commas inside the parts, such as poster:gmail:POST; no methods are GET and HEAD
    #[arg(long, value_name = "TOOL:CREDS:METHODS", value_delimiter = ';', help_heading = "Policy")]
    #[serde(skip)]
    pub tool_egress: Vec<String>,
    /// Allow every host over https
    #[arg(long, help_heading = "Policy")]
    #[serde(skip)]
    pub unrestricted: bool,
    /// Inner network that may be reached, such as 127.0.0.0/8; metadata services never are
    #[arg(long, value_name = "CIDR", value_delimiter = ',', help_heading = "Policy")]
    #[serde(skip)]
    pub allow_private: Vec<String>,

    /// Address of the HTTP door for child processes [default: 127.0.0.1:7431]
    #[arg(long, value_name = "ADDR", help_heading = "Egress")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress_listen: Option<SocketAddr>,
    /// URL of the HTTP door as child processes see it [default: http:// and the address]
    #[arg(long, value_name = "URL", help_heading = "Egress")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress_url: Option<String>,
    /// Further authorities that may sign upstreams' certificates, PEM
    #[arg(long, value_name = "FILE", help_heading = "Egress")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_ca: Option<PathBuf>,
    /// Longest outbound call, whatever its token's deadline [default: 60s]
    #[arg(long, value_name = "TIME", help_heading = "Egress")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_timeout: Option<Drain>,
    /// Outbound calls in flight at once [default: 512]
    #[arg(long, value_name = "N", help_heading = "Egress")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_calls_in_flight: Option<u32>,

    /// Where and how it listens.
    #[command(flatten)]
    pub serve: ServeArgs,
    /// What it logs.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,

    /// The file's rules: they have no flags of their shape and are read apart.
    #[arg(skip)]
    #[serde(skip_serializing_if = "toml::Table::is_empty")]
    policy: toml::Table,
    #[arg(skip)]
    #[serde(skip_serializing_if = "toml::Table::is_empty")]
    vault: toml::Table,
    #[arg(skip)]
    #[serde(skip_serializing_if = "toml::Table::is_empty")]
    credentials: toml::Table,
    #[arg(skip)]
    #[serde(skip_serializing_if = "toml::Table::is_empty")]
    grants: toml::Table,
}

/// Checked settings.
pub struct Config {
    /// Serving gRPC.
    pub serve: ServeSettings,
    /// Logs.
    pub telemetry: TelemetryArgs,
    /// The HTTP door's address.
    pub egress_listen: SocketAddr,
    /// The HTTP door's URL, if it is not the address.
    pub egress_url: Option<String>,
    /// Further authorities of upstreams.
    pub upstream_ca: Option<PathBuf>,
    /// What the operator allows.
    pub policy: Policy,
    /// Bounds of all calls together.
    pub bounds: CallBounds,
}

/// The settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read, or does not fit the flags.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A rule of the file is wrong.
    #[error("{file}{rule}")]
    Rule {
        /// The file, with a colon.
        file: String,
        /// The rule.
        rule: BadRule,
    },
    /// A flag in areev's form is wrong.
    #[error(transparent)]
    Form(#[from] BadForm),
    /// Serving is set up wrongly.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The HTTP door is set up wrongly.
    #[error("{0}")]
    Egress(String),
}

impl Flags {
    /// Reads the command line, the environment and the file. Ends the process on `--help` and usage errors, as clap does.
    pub fn read() -> Result<(Self, Policy), ConfigError> {
        let command = settings::with_environment(Self::command(), ENV_PREFIX);
        let flags = Self::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit());
        flags.layered()
    }

    /// Reads the file below the flags, and all rules.
    pub fn layered(self) -> Result<(Self, Policy), ConfigError> {
        let mut policy = match &self.config {
            Some(path) => {
                let text = settings::read(path)?;
                rules::policy_of(&text)
                    .map_err(|rule| ConfigError::Rule { file: format!("{}: ", path.display()), rule })?
            }
            None => Policy::default(),
        };
        self.add_forms(&mut policy)?;
        rules::check_whole(&policy).map_err(|rule| ConfigError::Rule { file: String::new(), rule })?;
        let (config, print_config) = (self.config.clone(), self.print_config);
        let layered = settings::layer(self, config.as_deref())?;
        Ok((Self { config, print_config, ..layered }, policy))
    }

    /// Checks everything.
    pub fn check(&self, policy: Policy) -> Result<Config, ConfigError> {
        let serve = self.serve.resolve(PORTS)?;
        let egress_listen = self.egress_listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], EGRESS_PORT)));
        self.check_door(egress_listen)?;
        let mut bounds = CallBounds::default();
        if let Some(Drain(call_max)) = self.call_timeout {
            if call_max.is_zero() || call_max > CALL_MAX {
                return Err(ConfigError::Egress("--call-timeout is not between 1ms and 1h".to_owned()));
            }
            bounds.call_max = call_max;
        }
        if let Some(most) = self.max_calls_in_flight {
            bounds.calls_in_flight = most as usize;
        }
        Ok(Config {
            serve,
            telemetry: self.telemetry.clone(),
            egress_listen,
            egress_url: self.egress_url.clone(),
            upstream_ca: self.upstream_ca.clone(),
            policy,
            bounds,
        })
    }

    /// The HTTP door has no TLS: it stays on this host unless the operator says otherwise.
    fn check_door(&self, listen: SocketAddr) -> Result<(), ConfigError> {
        let refuse = |text: String| Err(ConfigError::Egress(text));
        if !listen.ip().is_loopback() && !self.serve.insecure_listen.unwrap_or(false) {
            return refuse(format!(
                "--egress-listen {listen} can be reached from other hosts and the HTTP door has no TLS: listen on loopback, \
                 or accept it with --insecure-listen"
            ));
        }
        if listen.ip().is_unspecified() && self.egress_url.is_none() {
            return refuse(format!(
                "--egress-listen {listen} is no address to call: say the door's URL with --egress-url"
            ));
        }
        let Some(url) = &self.egress_url else { return Ok(()) };
        match url::Url::parse(url) {
            Ok(parsed)
                if matches!(parsed.scheme(), "http" | "https") && parsed.has_host() && parsed.username().is_empty() =>
            {
                Ok(())
            }
            _ => refuse(format!("--egress-url {} is no http:// or https:// URL", crate::refusal::quote(url))),
        }
    }

    /// The effective settings as TOML, credentials by name and place.
    pub fn shown(&self, policy: &Policy) -> Result<String, ConfigError> {
        let unshown = |cause: toml::ser::Error| ConfigError::Egress(format!("cannot show the settings: {cause}"));
        let mut table = toml::Table::try_from(self).map_err(unshown)?;
        table.extend(rules::shown(policy));
        toml::to_string(&table).map_err(unshown)
    }
}
