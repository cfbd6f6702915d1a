//! The inside of a native child: this program bounds itself, then becomes the blob. Whatever cannot be bounded stops it.
//!
//! It comes in three stages, each this program again, so that no code has to run between a fork and an exec: the outer one
//! enters the namespaces and opens the door there, if it was granted one; the first process of the new process namespace lends it an own `/proc` and ends all of it when the
//! blob has ended; the last one gives up files, system calls and resources, and becomes the blob.

pub mod barrier;
mod door;
mod files;
mod init;
mod namespaces;
mod program;
mod resources;
mod system_calls;

use std::{
    io::{self, Write as _},
    net::SocketAddr,
    os::{
        fd::OwnedFd,
        unix::process::{CommandExt as _, ExitStatusExt as _},
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode, ExitStatus},
    thread,
    time::Duration,
};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use barrier::Barrier;

/// This program, wherever it lies and whoever may look there.
pub const THIS_PROGRAM: &str = "/proc/self/exe";
/// A file that was just written can be busy while another thread forks: try again so often and so long.
const BUSY_TRIES: u32 = 100;
const BUSY_WAIT: Duration = Duration::from_millis(10);
/// Exit status of a jail that could not become the blob, as a shell has it.
const CANNOT_EXECUTE: u8 = 126;
/// How willingly the kernel ends it when memory runs out: before all others.
const OOM_SCORE: &str = "1000";
/// What a shell adds to the number of the signal that killed a child.
pub const SIGNAL_BASE: i32 = 128;

/// What the jail is told.
#[derive(Debug, Clone, clap::Args)]
pub struct JailArgs {
    /// How far the way to the blob is gone
    #[arg(long, value_enum, default_value_t = Stage::Outer)]
    stage: Stage,
    /// CPU time of the child, in seconds
    #[arg(long)]
    cpu_seconds: u64,
    /// The process whose end ends the child
    #[arg(long)]
    parent: Option<u32>,
    /// Barriers that the child must be behind
    #[arg(long, value_enum, value_delimiter = ',')]
    with: Vec<Barrier>,
    /// Directories and files that the child may read beside the system's
    #[arg(long)]
    read: Vec<PathBuf>,
    /// Where the broker's door is for the child; without it it has no network
    #[arg(long)]
    door: Option<SocketAddr>,
    /// The name that the door is called by
    #[arg(long)]
    door_name: Option<String>,
    /// Say which barriers stand, instead of becoming the blob
    #[arg(long)]
    probe: bool,
    /// The blob to become
    file: PathBuf,
}

/// How far the way to the blob is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Stage {
    /// Nothing was done.
    Outer,
    /// The first process of a new process namespace.
    Init,
    /// The process that becomes the blob.
    Blob,
}

/// Becomes the blob, or ends with a status and a text on stderr. Never returns when all is well.
pub fn enter(args: &JailArgs) -> ExitCode {
    let ended = match args.stage {
        Stage::Outer => outer(args.clone()),
        Stage::Init => init::run(args),
        Stage::Blob => blob(args.clone()),
    };
    ended.unwrap_or_else(|cause| {
        let text = format!("cannot execute the blob: {cause}\n");
        let _nobody_reads = io::stderr().write_all(text.as_bytes());
        ExitCode::from(CANNOT_EXECUTE)
    })
}

fn outer(mut args: JailArgs) -> io::Result<ExitCode> {
    die_with_the_parent()?;
    // Inherited by all that it starts: when memory runs out they end before the service.
    let _not_linux_enough = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    let parent = getppid().map(|pid| pid.as_raw_pid().cast_unsigned());
    if args.parent.is_some() && args.parent != parent {
        return Err(io::Error::other("the service is gone"));
    }
    if !args.has(Barrier::UserNamespace) {
        return blob(args);
    }
    let own_network = args.door.is_none() || args.has(Barrier::PrivateDoor);
    namespaces::enter(own_network).map_err(|cause| during("entering new namespaces", &cause))?;
    let stdin = args.open_the_door()?;
    if args.has(Barrier::PrivateProc) || args.door_name.is_some() {
        // Where it is refused the mount will be, and a probe says so.
        let _tried_by_the_mount = namespaces::keep_the_right_to_mount();
    }
    // Some changes of rights take this back.
    die_with_the_parent()?;
    let mut next = args.next(Stage::Init);
    if let Some(stdin) = stdin {
        next.stdin(stdin);
    }
    let mut init = next.spawn()?;
    // Its copies of what the next stage has.
    drop(next);
    Ok(ended_like(init.wait()?))
}

/// The last stage: everything that binds the process itself, then the blob.
fn blob(mut args: JailArgs) -> io::Result<ExitCode> {
    resources::bound(args.cpu_seconds, args.has(Barrier::UserNamespace))
        .map_err(|cause| during("setting resource limits", &cause))?;
    rustix::thread::set_no_new_privs(true)?;
    args.attempt(Barrier::Landlock, |args| files::restrict(&args.file, &args.read, args.door.map(|door| door.port())))?;
    args.attempt(Barrier::Seccomp, |args| system_calls::restrict(args.door.is_some()))?;
    if args.probe {
        std::fs::File::open(&args.file)?;
        let names: Vec<_> = args.with.iter().map(|barrier| barrier.as_str()).collect();
        io::stdout().write_all(names.join(",").as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    program::check(&args.file)?;
    Err(become_blob(&args.file))
}

impl JailArgs {
    fn has(&self, barrier: Barrier) -> bool {
        self.with.contains(&barrier)
    }

    /// Raises a barrier. Without it there is no blob; a probe goes on and does not name it.
    fn attempt(&mut self, barrier: Barrier, raise: impl FnOnce(&Self) -> io::Result<()>) -> io::Result<()> {
        if !self.has(barrier) {
            return Ok(());
        }
        match raise(self) {
            Ok(()) => Ok(()),
            Err(_) if self.probe => {
                self.with.retain(|other| *other != barrier);
                Ok(())
            }
            Err(cause) => Err(during(barrier.as_str(), &cause)),
        }
    }

    /// Opens the door of the child's own network; what is answered is the child's stdin then.
    fn open_the_door(&mut self) -> io::Result<Option<OwnedFd>> {
        let (Some(address), mut stdin) = (self.door, None) else { return Ok(None) };
        self.attempt(Barrier::PrivateDoor, |_| {
            stdin = Some(door::open(address)?);
            Ok(())
        })?;
        Ok(stdin)
    }

    /// This program again, one stage further.
    fn next(&self, stage: Stage) -> Command {
        let mut command = Command::new(THIS_PROGRAM);
        command.arg("jail").arg("--stage").arg(match stage {
            Stage::Outer => "outer",
            Stage::Init => "init",
            Stage::Blob => "blob",
        });
        command.arg("--cpu-seconds").arg(self.cpu_seconds.to_string());
        let names: Vec<_> = self.with.iter().map(|barrier| barrier.as_str()).collect();
        command.arg("--with").arg(names.join(","));
        for path in &self.read {
            command.arg("--read").arg(path);
        }
        if let Some(door) = self.door {
            command.arg("--door").arg(door.to_string());
        }
        if let Some(name) = &self.door_name {
            command.arg("--door-name").arg(name);
        }
        if self.probe {
            command.arg("--probe");
        }
        command.arg("--").arg(&self.file);
        command
    }
}

/// Whoever started this process takes it along into its own end.
fn die_with_the_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// A child's end, said again by the one that waited for it.
fn ended_like(status: ExitStatus) -> ExitCode {
    let signal = status.signal().map(|signal| SIGNAL_BASE + signal);
    let code = status.code().or(signal).and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}

fn during(what: &str, cause: &io::Error) -> io::Error {
    io::Error::new(cause.kind(), format!("{what}: {cause}"))
}

fn become_blob(file: &Path) -> io::Error {
    let mut cause = Command::new(file).exec();
    for _ in 0..BUSY_TRIES {
        if cause.kind() != io::ErrorKind::ExecutableFileBusy {
            break;
        }
        thread::sleep(BUSY_WAIT);
        cause = Command::new(file).exec();
    }
    cause
}
