//! Finds out which barriers this kernel, this user and this container offer: by raising them, around a jail that says so.

use std::{
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::Path,
    process::{Command, Output, Stdio},
};

use super::{NativeFault, files::Files};
use crate::jail::barrier::Barrier;

/// A door as one may be: at an address that is not this machine's, and at a port that only privileged processes open.
const DOOR: &str = "192.0.2.1:443";
/// CPU time of a probe, in seconds.
const CPU_SECONDS: &str = "5";
/// The user and group that own nothing.
pub const NOBODY: u32 = 65_534;

/// The barriers that are there, in their order. Tried are the strongest first.
pub fn barriers(jail: &Path, files: &Files) -> Result<Vec<Barrier>, NativeFault> {
    let superuser = rustix::process::geteuid().is_root();
    let candidates = [(superuser, true), (superuser, false), (false, true), (false, false)];
    let mut last = String::new();
    for (nobody, namespaces) in candidates {
        let probed = probe(jail, &files.probe_file(nobody)?, (nobody, namespaces));
        match probed.map(|output| read(&output)) {
            Ok(Ok(mut raised)) => {
                raised.extend(Barrier::ALWAYS);
                raised.extend(nobody.then_some(Barrier::UnprivilegedUser));
                raised.sort_unstable();
                return Ok(raised);
            }
            Ok(Err(said)) => last = said,
            Err(cause) => last = cause.to_string(),
        }
        tracing::info!(nobody, namespaces, cause = last, "native blobs cannot be isolated so");
    }
    Err(NativeFault { what: "cannot jail with", path: jail.to_owned(), cause: std::io::Error::other(last) })
}

fn probe(jail: &Path, file: &Path, (nobody, namespaces): (bool, bool)) -> std::io::Result<Output> {
    let tried = Barrier::NAMESPACES.iter().filter(|_| namespaces).chain(&Barrier::OWN);
    let names: Vec<_> = tried.map(|barrier| barrier.as_str()).collect();
    let mut command = Command::new(jail);
    command.args(["jail", "--probe", "--cpu-seconds", CPU_SECONDS, "--with", &names.join(",")]);
    command.args(["--door", DOOR, "--"]).arg(file);
    command.env_clear().current_dir(file.parent().unwrap_or(Path::new("/"))).process_group(0);
    // What a door is handed over by; nobody goes through it.
    let (_taken_by_nobody, jail) = UnixStream::pair()?;
    command.stdin(OwnedFd::from(jail)).stdout(Stdio::piped()).stderr(Stdio::piped());
    if nobody {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.output()
}

fn read(output: &Output) -> Result<Vec<Barrier>, String> {
    if !output.status.success() {
        return Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()));
    }
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    let known = |name: &str| Barrier::of(name).ok_or_else(|| format!("the jail names {name:?}"));
    names.split(',').filter(|name| !name.is_empty()).map(known).collect()
}
