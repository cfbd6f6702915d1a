//! One service as a process: started, found by the address it logs, healthy, restarted on the same address.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use crate::{
    binaries,
    channel::Channel,
    flags::Flags,
    process::{PATIENCE, POLL, Process},
};

/// What services log in tests: everything, so that it can be searched for secrets. The journal's store is given no secret and
/// would say more than all others together.
pub const LOUDEST: &str = "trace,sled=info";
/// Longest wait for the metrics of a service that is about to be ended.
const SCRAPE: Duration = Duration::from_secs(5);

/// Which service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// runner-svc
    Runner,
    /// sandbox-svc
    Sandbox,
    /// broker-svc
    Broker,
}

impl Kind {
    /// The program's name.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Runner => "runner-svc",
            Self::Sandbox => "sandbox-svc",
            Self::Broker => "broker-svc",
        }
    }
}

/// A service that is up.
pub struct Service {
    /// What it is started with, now and at the next restart.
    pub flags: Flags,
    process: Process,
    address: String,
    log: PathBuf,
    wrapper: Vec<String>,
}

impl Service {
    /// Starts a service and waits until it is healthy. Its log goes to `<logs>/<program>.log`.
    pub async fn start(flags: Flags, logs: &Path) -> Result<Self> {
        Self::start_under(flags, logs, Vec::new()).await
    }

    /// The same, with the service's command line behind a wrapper's, such as `strace -f`.
    pub async fn start_under(flags: Flags, logs: &Path, wrapper: Vec<String>) -> Result<Self> {
        let log = logs.join(format!("{}.log", flags.kind.program()));
        let (process, address) = launch(&flags, &log, "127.0.0.1:0", &wrapper).await?;
        Ok(Self { flags, process, address, log, wrapper })
    }

    /// Its address, IP:PORT.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its URL.
    pub fn url(&self) -> String {
        url(&self.flags, &self.address)
    }

    /// A channel to it.
    pub fn channel(&self) -> Result<Channel> {
        channel(&self.flags, &self.address)
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Starts it behind another program from the next restart on.
    pub fn run_under(&mut self, wrapper: Vec<String>) {
        self.wrapper = wrapper;
    }

    /// Its log file.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Starts it again on the same address, after it has ended or was killed.
    pub async fn restart(&mut self) -> Result<()> {
        if self.process.exit().is_none() {
            self.process.kill()?;
        }
        let (process, address) = launch(&self.flags, &self.log, &self.address, &self.wrapper).await?;
        self.process = process;
        self.address = address;
        Ok(())
    }

    /// Its metrics now, as a collector is told them.
    pub fn metrics(&self) -> Result<String> {
        self.admin("/metrics")
    }

    /// What its admin port answers, the head included.
    pub fn admin(&self, path: &str) -> Result<String> {
        let address = admin_address(&self.process.log_text()).context("the log names the admin port")?;
        let mut stream = TcpStream::connect(&address).context("the admin port")?;
        stream.set_read_timeout(Some(SCRAPE))?;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).context("the answer of the admin port")?;
        Ok(answer)
    }

    /// Waits until its health check says that it serves, or that it does not.
    pub async fn until_serving(&self, wanted: bool) -> Result<()> {
        let mut health = HealthClient::new(self.channel()?);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = health.check(HealthCheckRequest { service: String::new() }).await?.into_inner();
            if (answer.status() == ServingStatus::Serving) == wanted {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the health check still says {:?}:\n{}", answer.status(), self.process.log_tail());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until it has ended by itself, as after a crash point.
    pub async fn ended(&mut self) -> Result<ExitStatus> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.exit() {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("{} has not ended:\n{}", self.flags.kind.program(), self.process.log_tail());
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

impl Drop for Service {
    /// Keeps the last metrics beside the log, where they are searched together.
    fn drop(&mut self) {
        if self.process.exit().is_none() && !std::thread::panicking() {
            let _may_be_stopped =
                self.metrics().and_then(|text| Ok(std::fs::write(self.log.with_extension("prom"), text)?));
        }
    }
}

/// Runs a service that is expected to refuse its start, and hands back what it said.
pub fn refused_start(flags: &Flags) -> Result<Output> {
    let mut command = command(flags, "127.0.0.1:0", &[])?;
    command.stdin(Stdio::null()).output().context("running a service to its end")
}

async fn launch(flags: &Flags, log: &Path, listen: &str, wrapper: &[String]) -> Result<(Process, String)> {
    let program = flags.kind.program();
    let before = std::fs::metadata(log).map_or(0, |file| file.len());
    let mut process = Process::spawn(program, command(flags, listen, wrapper)?, log)?;
    let deadline = Instant::now() + PATIENCE;
    let address = loop {
        let text = process.log_text();
        if let Some(address) = text.get(usize::try_from(before)?..).and_then(logged_address) {
            break address;
        }
        if let Some(status) = process.exit() {
            bail!("{program} ended at its start ({status}):\n{}", process.log_tail());
        }
        if Instant::now() > deadline {
            bail!("{program} does not say where it listens:\n{}", process.log_tail());
        }
        tokio::time::sleep(POLL).await;
    };
    await_healthy(&mut process, flags, &address, deadline).await?;
    Ok((process, address))
}

fn url(flags: &Flags, address: &str) -> String {
    match (&flags.certificate, address.rsplit_once(':')) {
        (Some(_), Some((_, port))) => format!("https://localhost:{port}"),
        _ => format!("http://{address}"),
    }
}

/// A channel to a service; with certificates, the service's own is good enough for a look at its health.
fn channel(flags: &Flags, address: &str) -> Result<Channel> {
    proto::tls::install_crypto_provider();
    let material = flags.certificate.as_ref().map(|certificate| certificate.material()).transpose()?;
    let channel = proto::dial::dial(&url(flags, address), material.as_ref()).context("dialing a service")?;
    Ok(Channel::new(channel))
}

async fn await_healthy(process: &mut Process, flags: &Flags, address: &str, deadline: Instant) -> Result<()> {
    let program = flags.kind.program();
    let mut health = HealthClient::new(channel(flags, address)?);
    loop {
        let answer = health.check(HealthCheckRequest { service: String::new() }).await;
        if answer.as_ref().is_ok_and(|answer| answer.get_ref().status() == ServingStatus::Serving) {
            return Ok(());
        }
        if let Some(status) = process.exit() {
            bail!("{program} ended at its start ({status}):\n{}", process.log_tail());
        }
        if Instant::now() > deadline {
            bail!("{program} is not healthy ({answer:?}):\n{}", process.log_tail());
        }
        tokio::time::sleep(POLL).await;
    }
}

fn command(flags: &Flags, listen: &str, wrapper: &[String]) -> Result<Command> {
    let program = binaries::directory()?.join(flags.kind.program());
    let mut command = match wrapper {
        [] => Command::new(program),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    };
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("AREEV") || name == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    command.args(&flags.arguments);
    command.args(["--listen", listen, "--admin-listen", "127.0.0.1:0", "--log-format", "json"]);
    command.env("RUST_LOG", LOUDEST);
    command.envs(flags.environment.iter().map(|(name, value)| (name, value)));
    Ok(command)
}

/// The address in the log line `listening` of the gRPC port.
fn logged_address(log: &str) -> Option<String> {
    let listening = |line: &Value| line["message"] == "listening" && line.get("service").is_some();
    log.lines().find_map(|line| address_in(line, listening))
}

/// The address of the admin port, as the latest start logged it.
fn admin_address(log: &str) -> Option<String> {
    let admin = |line: &Value| line["message"].as_str().is_some_and(|message| message.starts_with("admin port"));
    log.lines().rev().find_map(|line| address_in(line, admin))
}

fn address_in(line: &str, wanted: impl Fn(&Value) -> bool) -> Option<String> {
    // Most lines are of other things, and there are many.
    let line: Value = line.contains("\"address\"").then(|| serde_json::from_str(line).ok())??;
    wanted(&line).then(|| line["address"].as_str().map(str::to_owned))?
}
