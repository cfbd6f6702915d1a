//! Compiling in a child: this program once more, at the lowest priority, with bounds on its CPU time and its memory. What
//! makes a compiler long or hungry, or brings it down, costs the service a child and nothing else.
//!
//! A child that does not get on at that priority, because the machine is never idle, gives way to one that has a share.

pub mod child;

use std::{
    io,
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use bytes::Bytes;
use rustix::{io::Errno, process::Signal};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
};

use crate::{
    artefact::Artefact,
    jail::THIS_PROGRAM,
    outcome::{Failure, FailureKind},
    priority::Priority,
};

/// Bytes of functions for which a child gets its CPU time once; a larger module gets it once for each of them.
pub const CODE_UNIT_BYTES: u64 = 512 * 1024;
/// Bytes of compiled code that a child may hand over.
const ARTEFACT_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Bytes of what it says went wrong.
const TEXT_BYTES_MAX: u64 = 4096;
/// How long a child may take for one second of its CPU time, on a machine that has other things to do.
const PATIENCE: u32 = 30;
/// How long a child of the lowest priority is watched, and the CPU time that it has to have had by then to go on: what the one in
/// its place may use more than its own budget is less than that.
const WATCHED: Duration = Duration::from_millis(500);
const STARVING: Duration = Duration::from_millis(50);

/// What a child may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompileLimits {
    /// Seconds of CPU time for each [`CODE_UNIT_BYTES`] begun.
    pub cpu_seconds: u64,
    /// Bytes of address space.
    pub memory_bytes: u64,
}

impl CompileLimits {
    /// What is enough for what ordinary toolchains make.
    pub const DEFAULT: Self = Self { cpu_seconds: 2, memory_bytes: 1024 * 1024 * 1024 };
}

/// Starts the children.
#[derive(Debug, Clone)]
pub struct Compiler {
    /// The program that is started as `PROGRAM compile …`.
    pub program: PathBuf,
    /// What each may use.
    pub limits: CompileLimits,
}

/// A module could not be compiled for a reason that is not its own.
#[derive(Debug, thiserror::Error)]
pub enum CompileFault {
    /// The child could not be started or spoken to.
    #[error("cannot compile in a child process, {program}: {cause}", program = program.display())]
    Child {
        /// The program.
        program: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// The system has no file descriptors, processes or memory left for one more child.
    #[error("the system has no means to compile it at present: {0}")]
    NoMeans(io::Error),
    /// The machine had no time for it.
    #[error("compiling did not come to its end within {}", humantime::format_duration(*.0))]
    Starved(Duration),
}

/// What came of a child.
struct Ended {
    status: ExitStatus,
    artefact: Vec<u8>,
    text: String,
}

impl Compiler {
    /// Children that are this program once more.
    pub fn own(limits: CompileLimits) -> Self {
        Self { program: THIS_PROGRAM.into(), limits }
    }

    /// Compiles a module that was looked at before; `code_bytes` is the size of its functions. Dropping the future kills the
    /// child.
    ///
    /// # Errors
    /// The outer error is the service's own; the inner one is the module's doing.
    pub async fn compile(&self, module: &Bytes, code_bytes: u64) -> Result<Result<Artefact, Failure>, CompileFault> {
        let units = code_bytes.div_ceil(CODE_UNIT_BYTES).max(1);
        let cpu_seconds = self.limits.cpu_seconds.saturating_mul(units);
        let fault = |cause| match is_for_want_of_means(&cause) {
            true => CompileFault::NoMeans(cause),
            false => CompileFault::Child { program: self.program.clone(), cause },
        };
        let patience = Duration::from_secs(cpu_seconds.max(1)) * PATIENCE;
        let ended = match tokio::time::timeout(patience, self.compiled(module, cpu_seconds)).await {
            Ok(ended) => ended.map_err(fault)?,
            Err(_) => return Err(CompileFault::Starved(patience)),
        };
        Ok(self.judge(ended, cpu_seconds))
    }

    async fn compiled(&self, module: &Bytes, cpu_seconds: u64) -> io::Result<Ended> {
        let idle = self.command(cpu_seconds, Priority::Idle).spawn()?;
        let id = idle.id();
        tokio::select! {
            ended = converse(idle, module) => return ended,
            () = starves(id) => tracing::debug!("the machine is never idle: compiling with a share of it"),
        }
        converse(self.command(cpu_seconds, Priority::Low).spawn()?, module).await
    }

    fn command(&self, cpu_seconds: u64, priority: Priority) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("compile")
            .args(["--cpu-seconds".to_owned(), cpu_seconds.to_string()])
            .args(["--memory-bytes".to_owned(), self.limits.memory_bytes.to_string()])
            .args(["--priority", priority.as_str()])
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        command
    }

    fn judge(&self, ended: Ended, cpu_seconds: u64) -> Result<Artefact, Failure> {
        let refused =
            |text: String| Err(Failure::new(FailureKind::ModuleRefused, format!("the module is refused: {text}")));
        let hungry = || {
            let bytes = self.limits.memory_bytes;
            refused(format!(
                "compiling it takes more than {bytes} bytes of memory (the service's --compile-memory-bytes)"
            ))
        };
        match (ended.status.code(), ended.status.signal()) {
            (Some(0), _) if ended.artefact.len() as u64 <= ARTEFACT_BYTES_MAX => {
                Ok(Artefact::of_own_child(ended.artefact))
            }
            (Some(0), _) => refused(format!("compiled it has more than {ARTEFACT_BYTES_MAX} bytes")),
            (Some(code), _) if code == i32::from(child::REFUSED) => refused(ended.text),
            (Some(code), _) if code == i32::from(child::HUNGRY) => hungry(),
            (_, Some(signal)) if signal == Signal::XCPU.as_raw() => refused(format!(
                "compiling it takes more than the {cpu_seconds} s of CPU time that its size allows (the service's \
                     --compile-cpu-seconds)"
            )),
            (_, Some(signal)) if signal == Signal::ABORT.as_raw() && ended.text.contains("memory allocation") => {
                hungry()
            }
            (code, signal) => {
                let how = signal
                    .map_or_else(|| format!("status {}", code.unwrap_or(-1)), |signal| format!("signal {signal}"));
                tracing::error!(how, said = ended.text, "a compiling child died");
                refused(format!("the compiler died on it ({how})"))
            }
        }
    }
}

/// What passes when others have ended.
fn is_for_want_of_means(cause: &io::Error) -> bool {
    let short = [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM];
    Errno::from_io_error(cause).is_some_and(|code| short.contains(&code))
}

/// Ends when a child has been seen not to get on; never for one that does.
async fn starves(id: Option<u32>) {
    tokio::time::sleep(WATCHED).await;
    if id.and_then(cpu_time).is_some_and(|used| used >= STARVING) {
        std::future::pending::<()>().await;
    }
}

/// The CPU time of a process, as far as the kernel tells it.
fn cpu_time(id: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // After the name in parentheses; the time in the program and in the kernel are the 14th and 15th fields of all.
    let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u32>().ok();
    let ticks = ticks()?.saturating_add(ticks()?);
    let a_second = u32::try_from(rustix::param::clock_ticks_per_second()).ok()?;
    Some(Duration::from_secs(1) * ticks / a_second.max(1))
}

async fn converse(mut child: Child, module: &Bytes) -> io::Result<Ended> {
    let missing = || io::Error::other("a pipe is missing");
    let mut stdin = child.stdin.take().ok_or_else(missing)?;
    let stdout = child.stdout.take().ok_or_else(missing)?;
    let stderr = child.stderr.take().ok_or_else(missing)?;
    let (mut artefact, mut text) = (Vec::new(), Vec::new());
    let feed = async move {
        // A child that dies early is judged by how it died.
        let _broken_pipe = stdin.write_all(module).await;
        drop(stdin);
        Ok(())
    };
    let (mut stdout, mut stderr) = (stdout.take(ARTEFACT_BYTES_MAX + 1), stderr.take(TEXT_BYTES_MAX));
    tokio::try_join!(feed, stdout.read_to_end(&mut artefact), stderr.read_to_end(&mut text))?;
    // Whatever it still writes has no reader.
    drop((stdout, stderr));
    let status = child.wait().await?;
    Ok(Ended { status, artefact, text: String::from_utf8_lossy(&text).trim().to_owned() })
}
