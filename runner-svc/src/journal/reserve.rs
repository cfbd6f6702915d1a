//! Room that is kept on the disk so that runs can be ended when it is full.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use rustix::fs::FallocateFlags;

/// Bytes kept in a file and given up when the disk is full.
pub const RESERVE_BYTES: u64 = 8 * 1024 * 1024;
/// Free bytes below which only the ends of runs are written.
pub const FREE_BYTES_MIN: u64 = 8 * 1024 * 1024;
/// Free bytes, beside the reserve, from which work is written again.
pub const FREE_BYTES_AGAIN: u64 = 2 * FREE_BYTES_MIN;

const NAME: &str = "reserve";

/// The file that keeps the room.
pub(super) struct Reserve(PathBuf);

impl Reserve {
    pub(super) fn in_dir(dir: &Path) -> Self {
        Self(dir.join(NAME))
    }

    /// Whether the room is there.
    pub(super) fn is_whole(&self) -> bool {
        fs::metadata(&self.0).is_ok_and(|metadata| metadata.len() == RESERVE_BYTES)
    }

    /// Takes the room; nothing is left of the file when there is too little.
    pub(super) fn take(&self) -> io::Result<()> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&self.0)?;
        let taken = match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES) {
            // A file system that cannot promise room still gets the watermark of free bytes.
            Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(RESERVE_BYTES),
            other => other.map_err(io::Error::from),
        };
        if taken.is_err() {
            self.give_up()?;
        }
        taken
    }

    /// Gives the room back to the disk.
    pub(super) fn give_up(&self) -> io::Result<()> {
        match fs::remove_file(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn the_room_is_really_taken_and_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = Reserve::in_dir(dir.path());
        assert!(!reserve.is_whole());
        reserve.take().unwrap();
        assert!(reserve.is_whole());
        assert!(fs::metadata(dir.path().join(NAME)).unwrap().blocks() * 512 >= RESERVE_BYTES);
        reserve.give_up().unwrap();
        reserve.give_up().unwrap();
        assert!(!reserve.is_whole());
    }
}
