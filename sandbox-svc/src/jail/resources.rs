//! Resource limits of a native child.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Bytes of one file that a child writes.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Bytes of private memory.
const DATA_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// Open files.
const FILES_MAX: u64 = 256;
/// Processes and threads of one call, where its user namespace counts them alone.
const PROCESSES_MAX: u64 = 256;
/// Processes and threads of the service's user, the service's own included, where nothing else can be counted.
const USER_PROCESSES_MAX: u64 = 4096;

/// Sets the limits; they hold for everything that the child starts.
pub fn bound(cpu_seconds: u64, counted_alone: bool) -> io::Result<()> {
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let limits = [
        (Resource::Core, 0),
        (Resource::Cpu, cpu_seconds),
        (Resource::Fsize, FILE_BYTES_MAX),
        (Resource::Data, DATA_BYTES_MAX),
        (Resource::Nofile, FILES_MAX),
        (Resource::Nproc, if counted_alone { PROCESSES_MAX } else { USER_PROCESSES_MAX }),
    ];
    for (resource, value) in limits {
        let value = getrlimit(resource).maximum.map_or(value, |hard| hard.min(value));
        setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })?;
    }
    Ok(())
}
