//! The seam to the disk: where durability is made, so that a test can count it, hold it and let it fail.

use std::{fs::File, io, path::Path};

/// What the journal asks of the disk beside reading and writing. Calls block.
pub trait Disk: Send + Sync {
    /// Called before the store hands its buffers to the kernel; an error stands for one of the kernel's.
    fn before_flush(&self) -> io::Result<()> {
        Ok(())
    }

    /// Returns when the log's data would survive the loss of power.
    fn sync_log(&self, log: &File) -> io::Result<()>;

    /// Bytes free for this process on the disk of a directory.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;
}

/// The kernel's.
#[derive(Debug, Default, Clone, Copy)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn sync_log(&self, log: &File) -> io::Result<()> {
        log.sync_data()
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}
