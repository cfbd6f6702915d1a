//! The first process of a new process namespace. When it ends, the kernel ends all that is left in there.

use std::{
    io,
    process::{Child, ExitCode},
};

use rustix::{
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    process::{Pid, WaitOptions, wait},
};

use super::{JailArgs, SIGNAL_BASE, Stage, barrier::Barrier, die_with_the_parent, door, during, namespaces};

/// Starts the last stage and waits for its end; whoever lost its parent meanwhile is waited for too.
pub fn run(args: &JailArgs) -> io::Result<ExitCode> {
    die_with_the_parent()?;
    let mut args = args.clone();
    args.attempt(Barrier::PrivateProc, |_| own_proc())?;
    if let Some(name) = args.door_name.as_ref().filter(|_| args.has(Barrier::PrivateDoor)) {
        own_mounts().and_then(|()| door::call_it(name)).map_err(|cause| during("naming the broker's door", &cause))?;
    }
    namespaces::give_up_rights()?;
    let blob = pid_of(&args.next(Stage::Blob).spawn()?)?;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == blob => {
                let signal = status.terminating_signal().map(|signal| SIGNAL_BASE + signal);
                let code = status.exit_status().or(signal).and_then(|code| u8::try_from(code).ok());
                return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(cause) => return Err(cause.into()),
        }
    }
}

/// A `/proc` of the new process namespace, in place of one that shows every process.
fn own_proc() -> io::Result<()> {
    own_mounts()?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount("proc", "/proc", "proc", flags, None)?)
}

/// Nobody else sees what is mounted from now on.
fn own_mounts() -> io::Result<()> {
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

fn pid_of(child: &Child) -> io::Result<Pid> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::other("the child has no process id"))
}
