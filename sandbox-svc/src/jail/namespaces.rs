//! Namespaces of a native child: it sees, signals and reaches nothing but its own.

use std::{fs, io};

use rustix::{
    process::{getgid, getuid},
    thread::{
        CapabilitySet, CapabilitySets, UnshareFlags, capabilities, clear_ambient_capability_set,
        configure_capability_in_ambient_set, set_capabilities,
    },
};

/// Moves this process into new namespaces, of the network too if it shall have its own; its children are in the new process
/// namespace. It stays the user that it is.
#[expect(deprecated, reason = "its successor is unsafe for the sake of the flag FILES, which is not given here")]
pub fn enter(own_network: bool) -> io::Result<()> {
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    let mut flags = UnshareFlags::NEWUSER
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWNS;
    if own_network {
        flags |= UnshareFlags::NEWNET;
    }
    rustix::thread::unshare(flags)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// Takes the right to mount, which is worth something in the new namespaces alone, along into the next stage: a program that is
/// executed by another user than the superuser has none of its rights otherwise.
pub fn keep_the_right_to_mount() -> io::Result<()> {
    let sets = capabilities(None)?;
    let inheritable = sets.inheritable | CapabilitySet::SYS_ADMIN;
    set_capabilities(None, CapabilitySets { inheritable, ..sets })?;
    Ok(configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, true)?)
}

/// Gives up every right in the new namespaces.
pub fn give_up_rights() -> io::Result<()> {
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}
