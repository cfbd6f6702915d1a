//! The inside of a native child: this program bounds itself, then becomes the blob. Whatever cannot be bounded stops it.

use std::{
    io::{self, Read as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    thread,
    time::Duration,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Bytes of one file that a child writes.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Bytes of private memory.
const DATA_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// Open files.
const FILES_MAX: u64 = 256;
/// Processes and threads of the service's user, the service's own included.
const PROCESSES_MAX: u64 = 4096;
/// A file that was just written can be busy while another thread forks: try again so often and so long.
const BUSY_TRIES: u32 = 100;
const BUSY_WAIT: Duration = Duration::from_millis(10);
/// Exit status of a jail that could not become the blob, as a shell has it.
const CANNOT_EXECUTE: u8 = 126;

/// What the jail is told.
#[derive(Debug, clap::Args)]
pub struct JailArgs {
    /// CPU time of the child, in seconds
    #[arg(long)]
    cpu_seconds: u64,
    /// The blob to become
    file: PathBuf,
}

/// Becomes the blob, or ends with a status and a text on stderr. Never returns when all is well.
pub fn enter(args: &JailArgs) -> ExitCode {
    let cause = match bound(args.cpu_seconds).and_then(|()| check(&args.file)) {
        Ok(()) => become_blob(&args.file),
        Err(cause) => cause,
    };
    let text = format!("cannot execute the blob: {cause}\n");
    let _nobody_reads = io::Write::write_all(&mut io::stderr(), text.as_bytes());
    ExitCode::from(CANNOT_EXECUTE)
}

fn bound(cpu_seconds: u64) -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let limits = [
        (Resource::Core, 0),
        (Resource::Cpu, cpu_seconds),
        (Resource::Fsize, FILE_BYTES_MAX),
        (Resource::Data, DATA_BYTES_MAX),
        (Resource::Nofile, FILES_MAX),
        (Resource::Nproc, PROCESSES_MAX),
    ];
    for (resource, value) in limits {
        let value = getrlimit(resource).maximum.map_or(value, |hard| hard.min(value));
        setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })?;
    }
    Ok(())
}

/// The C library would hand a file that the kernel does not know to a shell: such a file is refused instead.
fn check(file: &Path) -> io::Result<()> {
    let mut beginning = Vec::new();
    std::fs::File::open(file)?.take(4).read_to_end(&mut beginning)?;
    if beginning.starts_with(b"#!") || beginning == b"\x7fELF" {
        return Ok(());
    }
    Err(io::Error::other("it is neither an ELF file nor a script that begins with #!"))
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
