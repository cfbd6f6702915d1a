//! One child: started in its own process group, fed, read within bounds, and killed with all that it started.

use std::{
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    process::{ChildStdin, Command},
};
use tokio_util::task::AbortOnDropHandle;

use super::{NativeFault, door::Place, doorway::Doorway, probe::NOBODY};
use crate::{
    jail::{SIGNAL_BASE, barrier::Barrier},
    json,
    outcome::{Failure, FailureKind},
};

/// Bytes of stderr that a failure's text repeats.
const STDERR_BYTES_MAX: usize = 2048;
/// The numbers of signals.
const SIGNALS: std::ops::RangeInclusive<i32> = 1..=64;
/// How long output may still come after the child ended; whoever holds the pipe longer has left the group.
const DRAIN: Duration = Duration::from_millis(200);
/// CPU time beyond the wall clock that is left, so that the deadline strikes first.
const CPU_GRACE: Duration = Duration::from_secs(2);

/// What a child is made of.
pub struct Child<'a> {
    /// The program that jails.
    pub jail: &'a Path,
    /// The blob.
    pub file: &'a Path,
    /// The working directory.
    pub directory: &'a Path,
    /// What it may read beside the system's own.
    pub read: &'a [PathBuf],
    /// The barriers around it.
    pub barriers: &'a [Barrier],
    /// Where the broker's door is, if it was granted egress.
    pub place: Option<&'a Place>,
    /// The whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Most bytes of output.
    pub output_bytes_max: usize,
    /// When it began to count as running.
    pub started: Instant,
    /// When it is killed.
    pub ends_at: Instant,
}

/// What came out of a child.
struct Ended {
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// The output went over its bound.
struct TooLarge;

impl Child<'_> {
    /// Runs the child on one line of input: compact JSON and a line feed, then the end of stdin.
    pub async fn run(&self, input: &str) -> Result<Result<String, Failure>, NativeFault> {
        let fault = |cause| NativeFault { what: "cannot start", path: self.jail.to_owned(), cause };
        let mut command = self.command();
        let doorway = match self.place.filter(|_| self.barriers.contains(&Barrier::PrivateDoor)) {
            Some(place) => {
                let (doorway, stdin) = Doorway::to(place.target.clone()).map_err(fault)?;
                command.stdin(stdin);
                Some(doorway)
            }
            None => None,
        };
        let mut child = command.spawn().map_err(fault)?;
        // It holds the jail's end of the doorway, which the jail alone is to have.
        drop(command);
        let group = Group::of(&child).map_err(fault)?;
        let finished = collect(&mut child, (&group, doorway), input, self.output_bytes_max);
        match tokio::time::timeout_at(self.ends_at.into(), finished).await {
            Err(_) => Ok(Err(Failure::timeout("native blob", self.ends_at.saturating_duration_since(self.started)))),
            Ok(Err(cause)) => Err(fault(cause)),
            Ok(Ok(Err(TooLarge))) => {
                let text = format!("native blob wrote more than the {} bytes of an output", self.output_bytes_max);
                Ok(Err(Failure::new(FailureKind::OutputTooLarge, text)))
            }
            Ok(Ok(Ok(ended))) => Ok(result(&ended)),
        }
    }

    fn command(&self) -> Command {
        let left = self.ends_at.saturating_duration_since(Instant::now());
        let cpu_seconds = (left + CPU_GRACE).as_secs() + 1;
        let raised: Vec<_> = self.barriers.iter().map(|barrier| barrier.as_str()).collect();
        let mut command = Command::new(self.jail);
        command.arg("jail").arg("--cpu-seconds").arg(cpu_seconds.to_string());
        command.arg("--parent").arg(std::process::id().to_string()).arg("--with").arg(raised.join(","));
        for path in self.read {
            command.arg("--read").arg(path);
        }
        if let Some(place) = self.place {
            command.arg("--door").arg(place.address.to_string());
            if let Some(name) = &place.name {
                command.arg("--door-name").arg(name);
            }
        }
        if self.barriers.contains(&Barrier::UnprivilegedUser) {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
            .arg("--")
            .arg(self.file)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(self.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        command
    }
}

/// Feeds and reads until the child has ended; then kills what is left of its group, so that nobody holds its pipes.
async fn collect(
    child: &mut tokio::process::Child,
    (group, doorway): (&Group, Option<Doorway>),
    input: &str,
    output_bytes_max: usize,
) -> io::Result<Result<Ended, TooLarge>> {
    let missing = || io::Error::other("a pipe is missing");
    let stdin = child.stdin.take();
    let stdout = child.stdout.take().ok_or_else(missing)?;
    let stderr = child.stderr.take().ok_or_else(missing)?;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut pipes = Box::pin(async {
        tokio::try_join!(
            let_in(stdin, doorway, input),
            read(stdout, &mut out, output_bytes_max),
            tail(stderr, &mut err)
        )
    });
    let status = tokio::select! {
        read = &mut pipes => match read {
            Ok((_carried_until_its_end, (), ())) => child.wait().await?,
            Err(TooLarge) => return Ok(Err(TooLarge)),
        },
        status = child.wait() => {
            group.kill();
            if let Ok(Err(TooLarge)) = tokio::time::timeout(DRAIN, &mut pipes).await {
                return Ok(Err(TooLarge));
            }
            status?
        }
    };
    drop(pipes);
    Ok(Ok(Ended { status, stdout: out, stderr: err }))
}

/// Hands over the input, by the pipe that the jail has made where there is a doorway. What is answered carries the child's
/// connections as long as it is held.
async fn let_in(
    stdin: Option<ChildStdin>,
    doorway: Option<Doorway>,
    input: &str,
) -> Result<Option<AbortOnDropHandle<()>>, TooLarge> {
    if let Some(stdin) = stdin {
        feed(stdin, input).await;
    }
    let Some(doorway) = doorway else { return Ok(None) };
    // A jail that could not open it has said why, and has ended.
    let Ok((stdin, carrying)) = doorway.open().await else { return Ok(None) };
    feed(stdin, input).await;
    Ok(Some(carrying))
}

/// A child need not read its input.
async fn feed(mut stdin: impl AsyncWrite + Unpin, input: &str) {
    let fed = async {
        stdin.write_all(input.as_bytes()).await?;
        stdin.write_all(b"\n").await?;
        stdin.shutdown().await
    };
    let _closed_early = fed.await;
}

async fn read(mut stdout: impl AsyncRead + Unpin, out: &mut Vec<u8>, bytes_max: usize) -> Result<(), TooLarge> {
    let mut chunk = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = stdout.read(&mut chunk).await {
        if out.len() + count > bytes_max {
            return Err(TooLarge);
        }
        out.extend_from_slice(&chunk[..count]);
    }
    Ok(())
}

/// Keeps the last bytes of stderr: what a program says last tells most.
async fn tail(mut stderr: impl AsyncRead + Unpin, err: &mut Vec<u8>) -> Result<(), TooLarge> {
    let mut chunk = vec![0; 8 * 1024];
    while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
        err.extend_from_slice(&chunk[..count]);
        let surplus = err.len().saturating_sub(STDERR_BYTES_MAX);
        err.drain(..surplus);
    }
    Ok(())
}

fn result(ended: &Ended) -> Result<String, Failure> {
    if !ended.status.success() {
        let how = match (ended.status.code(), ended.status.signal()) {
            // As a shell says it, and as the jail does for the one that it waited for; a blob may end with such a status, too.
            (Some(code), _) if SIGNALS.contains(&(code - SIGNAL_BASE)) => {
                format!("ended with status {code}, as one that was killed by signal {}", code - SIGNAL_BASE)
            }
            (Some(code), _) => format!("ended with status {code}"),
            (None, Some(signal)) => format!("was killed by signal {signal}"),
            (None, None) => "ended without a status".to_owned(),
        };
        return Err(Failure::new(FailureKind::Exit, format!("native blob {how}{}", said(&ended.stderr))));
    }
    match json::check(&ended.stdout) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(why) => {
            let text = format!("native blob's output is not JSON: {why}{}", said(&ended.stderr));
            Err(Failure::new(FailureKind::BadOutput, text))
        }
    }
}

fn said(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let text = text.trim();
    if text.is_empty() { String::new() } else { format!("; stderr: {text}") }
}

/// A process group, killed when dropped.
struct Group(Pid);

impl Group {
    fn of(child: &tokio::process::Child) -> io::Result<Self> {
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        pid.map(Self).ok_or_else(|| io::Error::other("the child has no process id"))
    }

    fn kill(&self) {
        let _already_empty = rustix::process::kill_process_group(self.0, Signal::KILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
