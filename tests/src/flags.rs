//! The services' command lines, in one place.

use std::{ffi::OsString, path::Path};

use crate::{certificates::Certificate, service::Kind};

/// What a service is started with. `--listen` and the admin port are the harness's own.
#[derive(Debug, Clone)]
pub struct Flags {
    /// Which service.
    pub kind: Kind,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Variables of its environment beside the ordinary ones.
    pub environment: Vec<(String, String)>,
    /// Its certificate; plain text without one.
    pub certificate: Option<Certificate>,
}

impl Flags {
    fn new(kind: Kind) -> Self {
        Self { kind, arguments: Vec::new(), environment: Vec::new(), certificate: None }
    }

    /// A runner on a data directory.
    pub fn runner(data: &Path) -> Self {
        Self::new(Kind::Runner).value("--data-dir", data)
    }

    /// A sandbox.
    pub fn sandbox() -> Self {
        Self::new(Kind::Sandbox)
    }

    /// A broker; its door for child processes takes a free port.
    pub fn broker() -> Self {
        Self::new(Kind::Broker).value("--egress-listen", "127.0.0.1:0")
    }

    /// Adds a flag without a value.
    #[must_use]
    pub fn flag(mut self, name: &str) -> Self {
        self.arguments.push(name.into());
        self
    }

    /// Adds a flag with its value.
    #[must_use]
    pub fn value(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.arguments.push(name.into());
        self.arguments.push(value.into());
        self
    }

    /// Adds a variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Takes a variable away.
    pub fn forget_variable(&mut self, name: &str) {
        self.environment.retain(|(known, _)| known != name);
    }

    /// Runner: code that may execute.
    #[must_use]
    pub fn allow_executor(self, digest: &str) -> Self {
        self.value("--allow-executor", digest)
    }

    /// Runner: where modules run.
    #[must_use]
    pub fn sandbox_url(self, url: &str) -> Self {
        self.value("--sandbox-url", url)
    }

    /// Runner: a program that runs modules, one process a call.
    #[must_use]
    pub fn sandbox_cmd(self, program: &Path) -> Self {
        self.value("--sandbox-cmd", program)
    }

    /// Runner, sandbox: where outbound calls are decided.
    #[must_use]
    pub fn broker_url(self, url: &str) -> Self {
        self.value("--broker-url", url)
    }

    /// Runner: the shell command that executes host tools.
    #[must_use]
    pub fn tool_cmd(self, command: &str) -> Self {
        self.value("--tool-cmd", command)
    }

    /// Runner: the service that executes host tools.
    #[must_use]
    pub fn tool_url(self, url: &str) -> Self {
        self.value("--tool-url", url)
    }

    /// Runner: who is known, and what they may do.
    #[must_use]
    pub fn tokens_file(self, file: &Path) -> Self {
        self.value("--tokens-file", file)
    }

    /// Sandbox: native blobs may run.
    #[must_use]
    pub fn allow_native(self) -> Self {
        self.flag("--allow-native")
    }

    /// Every service: its settings file.
    #[must_use]
    pub fn config(self, file: &Path) -> Self {
        self.value("--config", file)
    }

    /// Every service: its certificate, shown to callers and to the services that it calls.
    #[must_use]
    pub fn certified(mut self, certificate: &Certificate) -> Self {
        self.certificate = Some(certificate.clone());
        self.value("--tls-cert", &certificate.cert)
            .value("--tls-key", &certificate.key)
            .value("--tls-client-ca", &certificate.authority)
    }

    /// Runner: SIGKILL itself after the n-th durable commit, counted from 1.
    #[must_use]
    pub fn crash_after_commits(self, commits: u32) -> Self {
        self.variable(CRASH_AFTER, &commits.to_string())
    }

    /// Runner: SIGKILL itself right before the n-th commit leaves the process, counted from 1.
    #[must_use]
    pub fn crash_before_commit(self, commit: u32) -> Self {
        self.variable(CRASH_BEFORE, &commit.to_string())
    }

    /// Runner: syncs of the journal fail while a file exists.
    #[must_use]
    pub fn fail_sync_while(self, file: &Path) -> Self {
        self.variable(FAIL_SYNC, &file.to_string_lossy())
    }

    /// Runner: no crash any more.
    pub fn no_crash(&mut self) {
        self.forget_variable(CRASH_AFTER);
        self.forget_variable(CRASH_BEFORE);
    }
}

/// The runner's faults for tests.
const CRASH_AFTER: &str = "AREEV_CRASH_AFTER_COMMITS";
const CRASH_BEFORE: &str = "AREEV_CRASH_BEFORE_COMMIT";
const FAIL_SYNC: &str = "AREEV_FAIL_SYNC_WHILE";
