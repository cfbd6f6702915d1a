//! Bytes on their way to a file: written aside, synced, renamed to their address, and the name synced too.

use std::{fs, io::Write as _, path::PathBuf, sync::Arc};

use content_digest::{Digest, Hasher};

use super::{Files, sync_directory};
use crate::catalogue::error::{CatalogueError, storage};

/// An unfinished file. Dropped before it is finished, it is removed.
pub struct Upload {
    files: Arc<Files>,
    path: PathBuf,
    file: fs::File,
    hasher: Hasher,
    size: u64,
}

impl Upload {
    pub(super) fn begin(files: Arc<Files>, path: PathBuf) -> Result<Self, CatalogueError> {
        let file = fs::File::create_new(&path).map_err(storage("create", &path))?;
        Ok(Self { files, path, file, hasher: Hasher::new(), size: 0 })
    }

    /// Takes the next piece. After an error the upload is of no more use.
    pub fn write(&mut self, piece: &[u8]) -> Result<(), CatalogueError> {
        let size = self.size.saturating_add(piece.len() as u64);
        if size > self.files.bytes_max {
            return Err(CatalogueError::TooLarge { bytes_max: self.files.bytes_max });
        }
        self.file.write_all(piece).map_err(storage("write", &self.path))?;
        self.hasher.update(piece);
        self.size = size;
        Ok(())
    }

    /// Bytes taken so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Puts the bytes under their address, over whatever lies there: it is the same, or damaged. They are on disk when
    /// this returns.
    pub fn finish(mut self, expected: Option<Digest>) -> Result<Digest, CatalogueError> {
        let digest = std::mem::take(&mut self.hasher).finish();
        if let Some(expected) = expected.filter(|expected| *expected != digest) {
            return Err(CatalogueError::Mismatch { expected, found: digest });
        }
        self.file.sync_all().map_err(storage("sync", &self.path))?;
        let address = self.files.path(&digest);
        fs::rename(&self.path, &address).map_err(storage("rename", &self.path))?;
        sync_directory(address.parent().expect("an address lies in its shard's directory"))?;
        Ok(digest)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // After a rename there is nothing under the old name; what cannot be removed now is swept at the next start.
        let _ = fs::remove_file(&self.path);
    }
}
