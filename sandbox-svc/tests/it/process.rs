//! A sandbox as a process of its own: what it takes of memory and time can be read, and it can be ended and started again.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use proto::{
    dial::dial,
    sandbox::v1::{DescribeRequest, DescribeResponse, sandbox_service_client::SandboxServiceClient},
};
use rustix::process::{Pid, Signal};

use crate::caller::Caller;

/// Longest wait for a process to start or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where in its directory it listens.
pub const SOCKET: &str = "sandbox.socket";

pub struct Process {
    pub caller: Caller,
    child: Child,
    directory: PathBuf,
}

impl Process {
    /// Starts the program on a socket in a directory, with further arguments, and waits until it answers.
    pub async fn start(directory: &Path, arguments: &[&str]) -> Self {
        Self::start_with(directory, arguments, &[]).await
    }

    /// The same with variables of its environment.
    pub async fn start_with(directory: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let socket = directory.join(SOCKET);
        let log = std::fs::OpenOptions::new().create(true).append(true).open(directory.join("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_sandbox-svc"))
            .args(["--listen", &format!("unix:{}", socket.display()), "--admin-listen", "off"])
            .args(arguments)
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut process = Self { caller: connect(&socket), child, directory: directory.to_owned() };
        let end = Instant::now() + PATIENCE;
        while process.caller.client.clone().describe(DescribeRequest {}).await.is_err() {
            assert!(process.child.try_wait().unwrap().is_none(), "it ended: {}", process.log());
            assert!(Instant::now() < end, "it does not answer: {}", process.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        process
    }

    pub async fn describe(&self) -> DescribeResponse {
        self.caller.client.clone().describe(DescribeRequest {}).await.unwrap().into_inner()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory now and at its highest, in bytes.
    pub fn resident(&self) -> (u64, u64) {
        (self.status("VmRSS:"), self.status("VmHWM:"))
    }

    /// Address space at its highest, in bytes.
    pub fn virtual_peak(&self) -> u64 {
        self.status("VmPeak:")
    }

    fn status(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// CPU time of the children that it has waited for, in seconds.
    pub fn children_cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        // After the name in parentheses; cutime and cstime are the 16th and 17th fields of all.
        let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: u64 = fields[13..15].iter().map(|field| field.parse::<u64>().unwrap()).sum();
        ticks as f64 / rustix::param::clock_ticks_per_second() as f64
    }

    /// Asks it to drain.
    pub fn terminate(&self) {
        rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    /// Waits for its end, and says whether it ended well.
    pub async fn ended(mut self) -> bool {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.success();
            }
            assert!(Instant::now() < end, "it does not end: {}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// A caller with a connection of its own.
pub fn connect(socket: &Path) -> Caller {
    let channel = dial(&format!("unix:{}", socket.display()), None).unwrap();
    Caller { client: SandboxServiceClient::new(channel).max_decoding_message_size(32 << 20) }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _reaped_already = self.child.wait();
    }
}
