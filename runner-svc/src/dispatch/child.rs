//! One child process per call: its own process group, a cleared environment, bounded pipes, a sure end.

mod captured;
mod group;
mod roster;
mod variables;
mod verdict;

use std::{
    ffi::OsString,
    io,
    pin::pin,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::{
    process::{Child, Command},
    sync::Semaphore,
    time::{sleep_until, timeout},
};

use super::until::{Cut, Until};
use captured::{Captured, Flood};
use group::Group;
pub(super) use roster::Roster;
pub(super) use variables::variables;
pub(super) use verdict::Finished;

/// After the child's end: how long its pipes may be kept open by a process that left the group.
const PIPE_GRACE: Duration = Duration::from_secs(2);
/// How long a killed child may take to be gone before it is left to be reaped in the background.
const REAP_GRACE: Duration = Duration::from_secs(2);
/// What a child inherits of the service's environment; all else is its own.
const INHERITED: [&str; 6] = ["PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "TZ"];

/// Where children are started: how many at once, and who is there.
pub(super) struct Children {
    slots: Semaphore,
    roster: Roster,
}

impl Children {
    /// Ends what a former runner left behind in this folder.
    pub(super) fn new(max: usize, roster: Roster) -> Self {
        let ended = roster.sweep();
        if ended > 0 {
            tracing::info!(ended, "process groups that a killed runner left behind were ended");
        }
        Self { slots: Semaphore::new(max.min(Semaphore::MAX_PERMITS)), roster }
    }
}

/// What to start.
pub(super) struct ChildSpec {
    /// The program; a name without a slash is looked up in `PATH`.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Its variables, beside those that every child inherits.
    pub variables: Vec<(&'static str, String)>,
    /// What it reads before its input is closed.
    pub stdin: Vec<u8>,
}

/// How a child ended.
pub(super) enum ChildEnd {
    /// By itself, or by a signal from elsewhere.
    Exited(ExitStatus),
    /// Killed at the deadline.
    TimedOut,
    /// Killed because the driver canceled the effect.
    Canceled,
    /// Killed because it never stopped writing.
    Flooded,
}

/// Runs a child to its end, as soon as a slot is free. Whatever the end is, nothing of its process group is left; dropping
/// the future kills it too.
///
/// # Errors
/// The program cannot be started, or the system fails to say how it ended.
pub(super) async fn run(children: &Children, spec: ChildSpec, until: Until<'_>) -> io::Result<Finished> {
    let _slot = match until.first(children.slots.acquire()).await {
        Ok(slot) => slot.map_err(io::Error::other)?,
        Err(Cut::Canceled) => return Ok(Finished { end: ChildEnd::Canceled, captured: Captured::default() }),
        Err(Cut::Deadline) => return Ok(Finished { end: ChildEnd::TimedOut, captured: Captured::default() }),
    };
    let (mut child, mut group) = spawn(&spec)?;
    let _noted = children.roster.note(child.id(), &spec.variables);
    let mut captured = Captured::default();
    let pipes = captured.fill(&mut child, spec.stdin)?;
    let end = watch(&mut child, &mut group, pipes, until).await?;
    if !matches!(end, ChildEnd::Exited(_)) {
        let _left_to_the_reaper = timeout(REAP_GRACE, child.wait()).await;
    }
    Ok(Finished { end, captured })
}

/// Waits for the first of: its end, the deadline, the driver's word, a flood. Then kills what is left of the group.
async fn watch(
    child: &mut Child,
    group: &mut Group,
    pipes: impl Future<Output = Result<(), Flood>>,
    until: Until<'_>,
) -> io::Result<ChildEnd> {
    let mut pipes = pin!(pipes);
    let mut open = true;
    let end = loop {
        tokio::select! {
            biased;
            () = until.cancel.cancelled() => break ChildEnd::Canceled,
            () = sleep_until(until.deadline) => break ChildEnd::TimedOut,
            status = child.wait() => break ChildEnd::Exited(status?),
            filled = &mut pipes, if open => {
                open = false;
                if let Err(Flood) = filled {
                    break ChildEnd::Flooded;
                }
            }
        }
    };
    group.kill();
    if open {
        // The last words of a child that ended are still in the pipes.
        let _given_up = timeout(PIPE_GRACE, pipes).await;
    }
    Ok(end)
}

fn spawn(spec: &ChildSpec) -> io::Result<(Child, Group)> {
    let inherited = INHERITED.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
    let child = Command::new(&spec.program)
        .args(&spec.arguments)
        .env_clear()
        .envs(inherited)
        .envs(spec.variables.iter().map(|(name, value)| (*name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let group = Group::led_by(&child);
    Ok((child, group))
}
