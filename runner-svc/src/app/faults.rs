//! For tests of durability: a disk that kills this process at a chosen commit, or that fails while a file lies somewhere.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;

use crate::journal::{Disk, RealDisk};

/// SIGKILL right after the disk made this many commits durable, before anybody is told.
const AFTER_VARIABLE: &str = "AREEV_CRASH_AFTER_COMMITS";
/// SIGKILL right before this commit, counted from 1, leaves the process: nothing of it reaches the disk.
const BEFORE_VARIABLE: &str = "AREEV_CRASH_BEFORE_COMMIT";
/// Syncs fail with an I/O error while this file exists.
const FAILING_VARIABLE: &str = "AREEV_FAIL_SYNC_WHILE";

/// The disk, as the environment wants it.
///
/// # Errors
/// A variable is no number.
pub fn disk() -> anyhow::Result<Arc<dyn Disk>> {
    let (after, before) = (commits(AFTER_VARIABLE)?, commits(BEFORE_VARIABLE)?);
    let failing_while = std::env::var_os(FAILING_VARIABLE).map(PathBuf::from);
    if after.is_none() && before.is_none() && failing_while.is_none() {
        return Ok(Arc::new(RealDisk));
    }
    tracing::warn!(after, before, ?failing_while, "faults are asked for: this is no process to rely on");
    Ok(Arc::new(FaultyDisk { after: Countdown::of(after), before: Countdown::of(before), failing_while }))
}

fn commits(variable: &str) -> anyhow::Result<Option<u64>> {
    let Ok(text) = std::env::var(variable) else { return Ok(None) };
    let number = text.parse().map_err(|_| anyhow::anyhow!("{variable} is {text:?}: give a number"))?;
    Ok(Some(number))
}

struct FaultyDisk {
    after: Countdown,
    before: Countdown,
    failing_while: Option<PathBuf>,
}

/// Commits until the end.
struct Countdown(Mutex<Option<u64>>);

impl Countdown {
    fn of(commits: Option<u64>) -> Self {
        Self(Mutex::new(commits))
    }

    fn tick(&self) {
        let mut left = self.0.lock();
        let Some(left) = left.as_mut() else { return };
        *left = left.saturating_sub(1);
        if *left == 0 {
            // No destructor, no handler, no last word.
            let _never_returns =
                rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    }
}

impl Disk for FaultyDisk {
    fn before_flush(&self) -> io::Result<()> {
        self.before.tick();
        Ok(())
    }

    fn sync_log(&self, log: &File) -> io::Result<()> {
        if self.failing_while.as_ref().is_some_and(|file| file.exists()) {
            return Err(rustix::io::Errno::IO.into());
        }
        RealDisk.sync_log(log)?;
        self.after.tick();
        Ok(())
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        RealDisk.free_bytes(dir)
    }
}
