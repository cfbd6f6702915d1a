//! Settings: flags over environment over one TOML file. Every mistake stops the start and is named.

mod forms;
mod rules;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use proto::{
    serve::{Drain, ServeArgs, ServeError, ServeSettings},
    settings::{self, SettingsError},
    telemetry::TelemetryArgs,
};
use serde::{Deserialize, Serialize};

pub use forms::BadForm;
use rules::Said;
pub use rules::{BadRule, BadRules, Places, check_whole, policy_of, shown};

use crate::{broker::CallBounds, capability::is_name, cli::Command, policy::Policy};

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
///   kind = "bearer"               # header, basic, query, oauth2_…, aws_sigv4: see the README
///   from = "env:GMAIL_TOKEN"      # or "file:/path", "vault:mount/data/path#field", "cmd:/program"
///   hosts = ["https://gmail.googleapis.com"]
///   [grants.poster]
///   credentials = ["gmail"]
///   methods = ["POST"]
#[derive(Parser, Default, Clone, Serialize, Deserialize)]
#[allow(
    rustdoc::broken_intra_doc_links,
    rustdoc::bare_urls,
    reason = "the text is the program's help, with TOML in it"
)]
#[command(name = "broker-svc", version, verbatim_doc_comment)]
#[serde(default, deny_unknown_fields)]
pub struct Flags {
    /// TOML file: the policy, and any other setting under its flag's name
    #[arg(long, value_name = "FILE", global = true)]
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
    /// Folder of the keys that sign egress tokens, as a Secret is mounted: each file a key of at least 32 bytes, its name the key's
    /// id; the last name signs, all verify [default: a random key of this process]
    #[arg(long, value_name = "DIR", help_heading = "Egress")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_keys: Option<PathBuf>,
    /// Name of this replica, which tokens carry: a token is spent where it was minted [default: broker]
    #[arg(long, value_name = "NAME", help_heading = "Egress")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica: Option<String>,
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

    /// Something else than serving.
    #[command(subcommand)]
    #[serde(skip)]
    pub command: Option<Command>,

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
    /// Keys of tokens, if they are shared.
    pub token_keys: Option<PathBuf>,
    /// This replica's name.
    pub replica: String,
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
    /// Rules are wrong, in the file or in flags.
    #[error("{}", told(file, rules, forms))]
    Rules {
        /// The file, if it is one.
        file: Option<PathBuf>,
        /// Each that is wrong in the file, or is only seen when all are together.
        rules: BadRules,
        /// Each flag in areev's form that is wrong.
        forms: Vec<BadForm>,
    },
    /// Serving is set up wrongly.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The HTTP door is set up wrongly.
    #[error("{0}")]
    Egress(String),
}

/// Every mistake on a line of its own, behind its file.
fn told(file: &Option<PathBuf>, rules: &BadRules, forms: &[BadForm]) -> String {
    let place = file.as_ref().map_or_else(String::new, |file| format!("{}: ", file.display()));
    let rules = rules.each().iter().map(|rule| format!("{place}{rule}"));
    let lines: Vec<_> = rules.chain(forms.iter().map(ToString::to_string)).collect();
    lines.join("\n")
}

impl Flags {
    /// Reads the command line and the environment. Ends the process on `--help` and usage errors, as clap does.
    pub fn given() -> Self {
        let command = settings::with_environment(Self::command(), ENV_PREFIX);
        Self::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
    }

    /// A file and no flag.
    pub fn of_file(file: &Path) -> Self {
        Self { config: Some(file.to_owned()), ..Self::default() }
    }

    /// Reads the file below the flags, and all rules.
    pub fn layered(self) -> Result<(Self, Policy), ConfigError> {
        let text = self.text()?;
        let rules = self.rules(text.as_deref(), |_| Vec::new())?;
        let (config, print_config) = (self.config.clone(), self.print_config);
        Ok((Self { config, print_config, ..self.over(text.as_deref())? }, rules.0))
    }

    /// All rules, with their places in the file, and the other settings as far as they are no matter of this host.
    pub fn checked(&self) -> Result<(Policy, Places), ConfigError> {
        let text = self.text()?;
        let settings = |places: &Places| {
            // Where a value is of the wrong kind it is named among the rules.
            let Ok(layered) = self.clone().over(text.as_deref()) else { return Vec::new() };
            let each = [
                ("call_timeout", layered.bounds().err()),
                ("egress_listen", layered.door().err()),
                ("replica", layered.replica_name().err()),
            ];
            let wrong = |(key, cause): (&str, Option<ConfigError>)| {
                // The text names the flag, which has the key's name.
                Some(BadRule { line: places.line(key), key: String::new(), rule: cause?.to_string() })
            };
            each.into_iter().filter_map(wrong).collect()
        };
        let found = self.rules(text.as_deref(), settings)?;
        self.clone().over(text.as_deref())?;
        Ok(found)
    }

    /// The file's text, read once: its rules and its other settings are of one moment.
    fn text(&self) -> Result<Option<String>, ConfigError> {
        Ok(self.config.as_deref().map(settings::read).transpose()?)
    }

    fn over(self, text: Option<&str>) -> Result<Self, ConfigError> {
        match (self.config.clone(), text) {
            (Some(path), Some(text)) => Ok(settings::layer_text(self, &path, text)?),
            _ => Ok(self),
        }
    }

    /// All rules, of file and flags; or everything that is wrong with them and with what else is looked at.
    fn rules(
        &self,
        text: Option<&str>,
        further: impl Fn(&Places) -> Vec<BadRule>,
    ) -> Result<(Policy, Places), ConfigError> {
        let (mut said, places) = match text {
            Some(text) => (Said::of(text), Places::of(text)),
            None => (Said::default(), Places::default()),
        };
        let forms = self.add_forms(&mut said.policy);
        self.note_unread(&forms, &mut said);
        said.mistakes.extend(further(&places));
        said.check(&places);
        if said.mistakes.is_empty() && forms.is_empty() {
            return Ok((said.policy, places));
        }
        Err(ConfigError::Rules { file: self.config.clone(), rules: BadRules::of(said.mistakes), forms })
    }

    /// Checks everything.
    pub fn check(&self, policy: Policy) -> Result<Config, ConfigError> {
        let serve = self.serve.resolve(PORTS)?;
        let (egress_listen, bounds) = (self.door()?, self.bounds()?);
        Ok(Config {
            serve,
            telemetry: self.telemetry.clone(),
            egress_listen,
            egress_url: self.egress_url.clone(),
            token_keys: self.token_keys.clone(),
            replica: self.replica_name()?,
            upstream_ca: self.upstream_ca.clone(),
            policy,
            bounds,
        })
    }

    fn replica_name(&self) -> Result<String, ConfigError> {
        let name = self.replica.as_deref().unwrap_or("broker");
        let wrong = || ConfigError::Egress("--replica may have 1 to 64 letters, digits, `_`, `-` and `.`".to_owned());
        if is_name(name) { Ok(name.to_owned()) } else { Err(wrong()) }
    }

    fn bounds(&self) -> Result<CallBounds, ConfigError> {
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
        Ok(bounds)
    }

    /// The HTTP door has no TLS: it stays on this host unless the operator says otherwise.
    fn door(&self) -> Result<SocketAddr, ConfigError> {
        let listen = self.egress_listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], EGRESS_PORT)));
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
        let Some(url) = &self.egress_url else { return Ok(listen) };
        match url::Url::parse(url) {
            Ok(parsed) if matches!(parsed.scheme(), "http" | "https") && parsed.has_host() && !url.contains('@') => {
                Ok(listen)
            }
            // Not repeated: a password may stand in it.
            _ if url.contains('@') => refuse("--egress-url has a user name or password: write it without".to_owned()),
            _ => refuse(format!("--egress-url {} is no http:// or https:// URL", crate::refusal::quote(url))),
        }
    }

    /// The settings in force, every default filled in.
    #[must_use]
    pub fn filled(&self, config: &Config) -> Self {
        Self {
            egress_listen: Some(config.egress_listen),
            replica: Some(config.replica.clone()),
            call_timeout: Some(Drain(config.bounds.call_max)),
            max_calls_in_flight: Some(u32::try_from(config.bounds.calls_in_flight).unwrap_or(u32::MAX)),
            serve: self.serve.filled(&config.serve),
            telemetry: self.telemetry.filled(),
            ..self.clone()
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
