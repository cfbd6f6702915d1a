//! How many commits were acknowledged, noted beside the store: a store that lost its end is told from one that never had it.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

/// Name of the file in the data directory.
pub(super) const NAME: &str = "acknowledged";
/// A number and its sum.
const BYTES: usize = 8 + 4;
/// Where the length of the store's file is noted; notes of older versions end before it.
const LENGTH_AT: u64 = BYTES as u64;

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
        self.number_at(0).unwrap_or(0)
    }

    /// How long the store's file was then, in bytes; none where that was not noted. sled cuts free room off its end, so a
    /// shorter one is only a reason to look.
    pub(super) fn length(&self) -> Option<u64> {
        self.number_at(LENGTH_AT)
    }

    fn number_at(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; BYTES];
        self.file.read_exact_at(&mut bytes, at).ok()?;
        let (number, sum) = bytes.split_first_chunk::<8>()?;
        (crc32fast::hash(number).to_be_bytes() == *sum).then_some(u64::from_be_bytes(*number))
    }

    /// Notes that so many commits are durable in a file of so many bytes. A note that cannot be written is one that lags.
    pub(super) fn note(&self, commits: u64, length: u64) {
        let mut bytes = Vec::with_capacity(2 * BYTES);
        for number in [commits, length] {
            bytes.extend(number.to_be_bytes());
            bytes.extend(crc32fast::hash(&number.to_be_bytes()).to_be_bytes());
        }
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
        Watermark::open(dir.path()).unwrap().note(7, 9);
        let noted = Watermark::open(dir.path()).unwrap();
        assert_eq!((noted.commits(), noted.length()), (7, Some(9)));
        fs::write(dir.path().join(NAME), [1; BYTES]).unwrap();
        assert_eq!(Watermark::open(dir.path()).unwrap().commits(), 0);
        Watermark::remove(dir.path()).unwrap();
        Watermark::remove(dir.path()).unwrap();
    }
}
