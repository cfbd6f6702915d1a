//! What a native child can do with files, ports and processes that are not its own: read the system's programs, write its
//! working directory, connect to the broker's door. By Landlock, so that it holds for whoever it starts.

use std::{
    io,
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, NetPort, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus,
    Scope, path_beneath_rules,
};

/// The newest version whose rules are asked for; of them the kernel gives those that it knows.
const ABI_KNOWN: ABI = ABI::V6;

/// Programs and what they are loaded with.
const SYSTEM: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc"];
/// What programs look up of the system: no passwords, no keys.
const LOOKED_UP: [&str; 18] = [
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/alternatives",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/resolv.conf",
    "/etc/protocols",
    "/etc/services",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
];
/// Devices that hold nothing.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Gives up everything else, for this process and all that it starts.
pub fn restrict(blob: &Path, more: &[PathBuf], port: Option<u16>) -> io::Result<()> {
    match ruleset(blob, more, port).map_err(io::Error::other)? {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        RulesetStatus::NotEnforced => Err(io::ErrorKind::Unsupported.into()),
    }
}

fn ruleset(blob: &Path, more: &[PathBuf], port: Option<u16>) -> Result<RulesetStatus, landlock::RulesetError> {
    let (read, all) = (AccessFs::from_read(ABI_KNOWN), AccessFs::from_all(ABI_KNOWN));
    let status = Ruleset::default()
        .handle_access(all)?
        .handle_access(AccessNet::from_all(ABI_KNOWN))?
        .scope(Scope::from_all(ABI_KNOWN))?
        .create()?
        .add_rules(path_beneath_rules(SYSTEM.iter().chain(&LOOKED_UP), read))?
        .add_rules(path_beneath_rules(more, read))?
        .add_rules(path_beneath_rules([blob], read))?
        .add_rules(path_beneath_rules(DEVICES, AccessFs::ReadFile | AccessFs::WriteFile))?
        .add_rules(path_beneath_rules(["."], all))?
        .add_rules(
            port.into_iter().map(|port| Ok::<_, landlock::RulesetError>(NetPort::new(port, AccessNet::ConnectTcp))),
        )?
        .restrict_self()?;
    Ok(status.ruleset)
}
