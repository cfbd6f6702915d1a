//! How many commits were acknowledged, noted beside the store: a store that lost its end is told from one that never had it.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

/// Name of the file in the data directory.
pub(super) const NAME: &str = "acknowledged";
const BYTES: usize = 8 + 4;

/// The note. It is written after each commit and never synced: it may lag behind the store, and is never ahead of it.
pub(super) struct Watermark {
    path: PathBuf,
    file: File,
}

impl Watermark {
    /// Opens or makes the note.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let path = dir.join(NAME);
        let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(&path)?;
        Ok(Self { path, file })
    }

    /// Removes the note of a store that does not promise to keep its end.
    pub(super) fn remove(dir: &Path) -> io::Result<()> {
        match fs::remove_file(dir.join(NAME)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// What was noted; 0 when there is no note that can be read.
    pub(super) fn commits(&self) -> u64 {
        let mut bytes = [0; BYTES];
        if self.file.read_exact_at(&mut bytes, 0).is_err() {
            return 0;
        }
        let (count, sum) = bytes.split_at(8);
        if crc32fast::hash(count).to_be_bytes() != *sum {
            return 0;
        }
        count.try_into().map_or(0, u64::from_be_bytes)
    }

    /// Notes that so many commits are durable. A note that cannot be written is one that lags.
    pub(super) fn note(&self, commits: u64) {
        let count = commits.to_be_bytes();
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&count);
        bytes[8..].copy_from_slice(&crc32fast::hash(&count).to_be_bytes());
        if let Err(error) = self.file.write_all_at(&bytes, 0) {
            tracing::warn!(path = %self.path.display(), %error, "cannot note what was acknowledged");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_outlives_its_writer_and_a_torn_one_counts_as_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Watermark::open(dir.path()).unwrap().commits(), 0);
        Watermark::open(dir.path()).unwrap().note(7);
        assert_eq!(Watermark::open(dir.path()).unwrap().commits(), 7);
        fs::write(dir.path().join(NAME), [1; BYTES]).unwrap();
        assert_eq!(Watermark::open(dir.path()).unwrap().commits(), 0);
        Watermark::remove(dir.path()).unwrap();
        Watermark::remove(dir.path()).unwrap();
    }
}
