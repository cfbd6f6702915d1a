//! A copy of the data directory while the service runs: the store, then the files that its records name.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::receipt::KEY_FILE;
use crate::journal::{CopyError, Journal};

/// Folders whose files are named by what is in them: they never change, so that they can be copied at any time.
const FOLDERS: [&str; 2] = ["blobs", "grains"];
/// Files of these folders that are not finished.
const UNFINISHED: &str = "tmp";

/// What was copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backup {
    /// Where it is: use it as --data-dir, or copy it back.
    pub folder: PathBuf,
    /// Runs.
    pub runs: u64,
    /// Files of blobs and grains.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Why there is no backup. What was begun is left for a person to remove.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The store.
    #[error(transparent)]
    Journal(#[from] CopyError),
    /// A file.
    #[error("cannot copy {path}: {cause}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
}

/// Copies the data directory to a folder that is new or empty. All of it is on the disk when this returns.
///
/// # Errors
/// Something cannot be read or written.
pub async fn backup(journal: &Journal, data_dir: &Path, dest: &Path) -> Result<Backup, BackupError> {
    let copied = journal.copy_to(dest).await?;
    let mut backup = Backup { folder: dest.to_owned(), runs: copied.runs, files: 0, bytes: 0 };
    // The records come first: every file that one of them names was there before it.
    let (data_dir, dest) = (data_dir.to_owned(), dest.to_owned());
    let copying = tokio::task::spawn_blocking(move || {
        for folder in FOLDERS {
            tree(&data_dir.join(folder), &dest.join(folder), &mut backup)?;
        }
        if data_dir.join(KEY_FILE).exists() {
            file(&data_dir.join(KEY_FILE), &dest.join(KEY_FILE), &mut backup)?;
        }
        sync(&dest)?;
        Ok(backup)
    });
    copying.await.unwrap_or_else(|panic| {
        Err(BackupError::File { path: PathBuf::new(), cause: io::Error::other(panic.to_string()) })
    })
}

fn tree(from: &Path, to: &Path, backup: &mut Backup) -> Result<(), BackupError> {
    DirBuilder::new().recursive(true).mode(0o700).create(to).map_err(failed(to))?;
    for entry in fs::read_dir(from).map_err(failed(from))? {
        let entry = entry.map_err(failed(from))?;
        let (path, name) = (entry.path(), entry.file_name());
        if name == UNFINISHED {
            continue;
        }
        if entry.file_type().map_err(failed(&path))?.is_dir() {
            tree(&path, &to.join(name), backup)?;
        } else {
            file(&path, &to.join(name), backup)?;
        }
    }
    sync(to)
}

fn file(from: &Path, to: &Path, backup: &mut Backup) -> Result<(), BackupError> {
    // Copies the mode too: the key stays its owner's alone.
    backup.bytes += fs::copy(from, to).map_err(failed(from))?;
    backup.files += 1;
    sync(to)
}

fn sync(path: &Path) -> Result<(), BackupError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(failed(path))
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> BackupError + '_ {
    |cause| BackupError::File { path: path.to_owned(), cause }
}
