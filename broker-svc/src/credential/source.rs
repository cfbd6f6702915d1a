//! Reading a value from an environment variable or a file.

use std::{
    io::Read as _,
    os::unix::{ffi::OsStringExt as _, fs::MetadataExt as _},
    path::Path,
};

use zeroize::Zeroizing;

use super::{BadSecret, Secret};
use crate::policy::{Kind, Source};

/// Largest value, in bytes.
pub const SECRET_BYTES_MAX: u64 = 16 * 1024;

/// What tells that a file is another than it was, without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    inode: (u64, u64),
    bytes: u64,
    modified_ns: (i64, i64),
    changed_ns: (i64, i64),
}

/// Why there is no value.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The variable is not set.
    #[error("the environment variable is not set")]
    NotSet,
    /// The file cannot be read.
    #[error("the file cannot be read: {0}")]
    File(std::io::Error),
    /// The value is larger than any credential.
    #[error("the value is over {SECRET_BYTES_MAX} bytes")]
    TooLarge,
    /// The value is no credential.
    #[error(transparent)]
    Bad(#[from] BadSecret),
}

/// The file's stamp; nothing for an environment variable, which cannot change, or a file that is gone.
pub fn stamp(source: &Source) -> Option<Stamp> {
    let Source::File(path) = source else { return None };
    let meta = std::fs::metadata(path).ok()?;
    Some(Stamp {
        inode: (meta.dev(), meta.ino()),
        bytes: meta.len(),
        modified_ns: (meta.mtime(), meta.mtime_nsec()),
        changed_ns: (meta.ctime(), meta.ctime_nsec()),
    })
}

/// Reads and checks the value.
pub fn read(source: &Source, kind: &Kind) -> Result<Secret, Unreadable> {
    let bytes = match source {
        Source::Env(name) => Zeroizing::new(std::env::var_os(name).ok_or(Unreadable::NotSet)?.into_vec()),
        Source::File(path) => read_file(path).map_err(Unreadable::File)?,
    };
    if bytes.len() as u64 > SECRET_BYTES_MAX {
        return Err(Unreadable::TooLarge);
    }
    Ok(Secret::take(bytes, kind)?)
}

fn read_file(path: &Path) -> std::io::Result<Zeroizing<Vec<u8>>> {
    // The whole room at once: a growing vector would leave copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(SECRET_BYTES_MAX as usize + 1));
    let file = std::fs::File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    file.take(SECRET_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
