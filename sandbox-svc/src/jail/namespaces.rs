//! Namespaces of a native child: it sees, signals and reaches nothing but its own.

use std::{fs, io};

use rustix::{
    process::{getgid, getuid},
    thread::UnshareFlags,
};

/// Moves this process into new namespaces; its children are in the new process namespace. It stays the user that it is.
#[expect(deprecated, reason = "its successor is unsafe for the sake of the flag FILES, which is not given here")]
pub fn enter(without_network: bool) -> io::Result<()> {
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    let mut flags = UnshareFlags::NEWUSER
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWNS;
    if without_network {
        flags |= UnshareFlags::NEWNET;
    }
    rustix::thread::unshare(flags)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}
