//! Where the services' programs are: built once per process by cargo, in the profile of the program that asks.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use anyhow::{Context as _, Result, bail, ensure};

/// Names a directory with ready programs; nothing is built then.
pub const DIRECTORY_VARIABLE: &str = "AREEV_BIN_DIR";

/// The folder of the programs `runner-svc`, `sandbox-svc` and `broker-svc`, built when it has to be.
pub fn directory() -> Result<&'static Path> {
    static DIRECTORY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = DIRECTORY.get_or_init(|| find().map_err(|cause| format!("{cause:#}")));
    found.as_deref().map_err(|cause| anyhow::anyhow!(cause.clone()))
}

/// The root of the workspace.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate's folder lies in the workspace's")
}

/// What cargo is told after `build`, so that the programs land beside the one that asks.
pub fn build_arguments() -> Result<Vec<OsString>> {
    let directory = profile_directory()?;
    let target = directory.parent().context("the profile's folder lies in the target folder")?;
    let mut arguments: Vec<OsString> =
        vec!["--workspace".into(), "--bins".into(), "--target-dir".into(), target.into()];
    if directory.ends_with("release") {
        arguments.push("--release".into());
    }
    Ok(arguments)
}

fn find() -> Result<PathBuf> {
    if let Some(ready) = std::env::var_os(DIRECTORY_VARIABLE) {
        return Ok(ready.into());
    }
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.current_dir(workspace()).args(["build", "--quiet"]).args(build_arguments()?).stdin(Stdio::null());
    let built = build.output().context("cannot start cargo")?;
    ensure!(built.status.success(), "cannot build the services:\n{}", String::from_utf8_lossy(&built.stderr));
    profile_directory()
}

/// `…/target/debug`, read off the running program's own path: `…/target/debug[/deps]/name`.
fn profile_directory() -> Result<PathBuf> {
    let program = std::env::current_exe().context("the program's own path")?;
    let mut directory = program.parent().context("a program lies in a folder")?;
    if directory.ends_with("deps") {
        directory = directory.parent().context("deps lies in the profile's folder")?;
    }
    if !directory.is_dir() {
        bail!("{} is no folder: set {DIRECTORY_VARIABLE}", directory.display());
    }
    Ok(directory.to_owned())
}
