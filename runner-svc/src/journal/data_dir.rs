//! The data directory: made, locked for one process, and cleared of what stops the store from opening.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use super::error::OpenError;

/// Name of the lock file in the data directory.
const LOCK_NAME: &str = "lock";
/// Name of the store's folder in the data directory.
const STORE_NAME: &str = "journal";
/// Name of a store that is being written anew.
pub(super) const REBUILT_NAME: &str = "journal.rebuilt";
/// Longest pid read from a lock file.
const PID_BYTES_MAX: u64 = 20;

/// A data directory that this process has to itself until it is dropped.
#[derive(Debug)]
pub(super) struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Makes the directory (mode 0700) and takes its lock.
    pub(super) fn claim(path: &Path) -> Result<Self, OpenError> {
        let failed =
            |what: &str, error: &io::Error| OpenError::Io { dir: path.to_owned(), reason: format!("{what}: {error}") };
        let store = path.join(STORE_NAME);
        // A store was written anew, and the process ended between two renames: the new one was whole by then.
        if !store.exists() && path.join(REBUILT_NAME).exists() {
            fs::rename(path.join(REBUILT_NAME), &store)
                .map_err(|error| failed("putting the store that was written anew in place", &error))?;
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&store)
            .map_err(|error| failed("making the directory", &error))?;
        let name = path.join(LOCK_NAME);
        let lock = OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(name);
        let mut lock = lock.map_err(|error| failed("opening the lock file", &error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse { dir: path.to_owned(), pid: pid_in(&lock) });
            }
            Err(TryLockError::Error(error)) => return Err(failed("taking the lock", &error)),
        }
        lock.set_len(0)
            .and_then(|()| writeln!(lock, "{}", std::process::id()))
            .map_err(|error| failed("writing the lock file", &error))?;
        let dir = Self { path: path.to_owned(), _lock: lock };
        dir.remove_leftovers().map_err(|error| failed("removing an unfinished snapshot", &error))?;
        Ok(dir)
    }

    /// The directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The store's folder.
    pub(super) fn store(&self) -> PathBuf {
        self.path.join(STORE_NAME)
    }

    /// A crash while the store wrote a snapshot leaves a file that stops it from opening; it holds nothing of its own.
    pub(super) fn remove_leftovers(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.store())? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with("snap.") && name.ends_with(".generating") {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Makes the names of new files durable.
    pub(super) fn sync_names(&self) -> io::Result<()> {
        File::open(self.store())?.sync_all()?;
        File::open(&self.path)?.sync_all()
    }
}

fn pid_in(lock: &File) -> String {
    let mut text = String::new();
    let read = lock.take(PID_BYTES_MAX).read_to_string(&mut text);
    let digits = text.trim();
    if read.is_ok() && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        digits.to_owned()
    } else {
        "unknown".to_owned()
    }
}
