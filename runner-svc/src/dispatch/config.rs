//! What the dispatcher is told at start.

use std::{path::PathBuf, time::Duration};

use proto::{dial::DialError, tls::TlsMaterial};

/// How long an effect tries to reach a service that does not answer: as long as it may take. That a sandbox, a broker or a
/// host tool is away for a while is no failure of the effect, and costs it no attempt.
pub const PATIENCE_DEFAULT: Duration = Duration::MAX;

/// Where effects go.
#[derive(Debug, Clone)]
pub struct DispatchConfig {
    /// What executes code.
    pub sandbox: Option<SandboxAt>,
    /// What executes host tools.
    pub host_tool: Option<HostToolAt>,
    /// The replicas of the broker that mints tokens for outbound calls; empty without one.
    pub broker_urls: Vec<String>,
    /// Directory of modules for a sandbox command; made with mode 0700 when first needed.
    pub module_dir: PathBuf,
    /// Directory of the catalogue's blobs, for modules that read some by a sandbox command.
    pub blob_dir: PathBuf,
    /// Child processes at once, over all effects.
    pub children_max: usize,
    /// Directory where running child processes are noted, for the next start; made with mode 0700 when first needed.
    pub children_dir: PathBuf,
    /// How long an effect tries to reach a service that does not answer, before it fails; its own timeout ends it in any case.
    pub patience: Duration,
    /// This service's certificate, for `https://` addresses.
    pub tls: Option<TlsMaterial>,
}

/// What executes code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SandboxAt {
    /// `--sandbox-url`: one service or several; each digest has its own order among them.
    Urls(Vec<String>),
    /// `--sandbox-cmd`: a program and its first arguments, separated by blanks; started once per call.
    Command(String),
}

/// What executes host tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostToolAt {
    /// `--tool-cmd`: started once per call as `/bin/sh -c COMMAND`.
    Command(String),
    /// `--tool-url`: a service.
    Url(String),
}

/// What this runner has, for the gates at start and for manifests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// `--sandbox-url`: executes modules, and native blobs where the sandbox allows them.
    pub sandbox_url: bool,
    /// `--sandbox-cmd`: executes modules, never native blobs: code that travelled does not run beside the journal.
    pub sandbox_cmd: bool,
    /// `--tool-cmd` or `--tool-url`.
    pub host_tool: bool,
    /// `--broker-url`.
    pub broker: bool,
}

/// The configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DispatchConfigError {
    /// A service's address.
    #[error("{flag}: {cause}")]
    Address {
        /// The flag that holds it.
        flag: &'static str,
        /// What is wrong.
        cause: DialError,
    },
    /// A command without a program.
    #[error("{0} is blank: name a program")]
    Blank(&'static str),
    /// No child process may run.
    #[error("child processes at once are 0: at least 1 is needed")]
    NoChildren,
}

impl DispatchConfig {
    /// What can be executed.
    pub fn profile(&self) -> Profile {
        Profile {
            sandbox_url: matches!(self.sandbox, Some(SandboxAt::Urls(_))),
            sandbox_cmd: matches!(self.sandbox, Some(SandboxAt::Command(_))),
            host_tool: self.host_tool.is_some(),
            broker: !self.broker_urls.is_empty(),
        }
    }
}
