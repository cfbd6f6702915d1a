//! What tells that a file is another than it was, without reading it. Links are followed to their end, so that the swap of a
//! link, by which Kubernetes renews what it mounts, is seen.

use std::{os::unix::fs::MetadataExt as _, path::Path};

/// A file's stamp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    inode: (u64, u64),
    bytes: u64,
    modified_ns: (i64, i64),
    changed_ns: (i64, i64),
}

impl Stamp {
    /// The stamp now; nothing for a file that is gone.
    pub fn of(path: &Path) -> Option<Self> {
        let meta = std::fs::metadata(path).ok()?;
        Some(Self {
            inode: (meta.dev(), meta.ino()),
            bytes: meta.len(),
            modified_ns: (meta.mtime(), meta.mtime_nsec()),
            changed_ns: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}
