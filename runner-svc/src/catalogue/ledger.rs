//! The order in which indexed grains were stored: 32 bytes each, appended and synced before a grain is acknowledged. From it
//! an index that lost its last entries is made whole without looking at every grain.

use std::{
    fs,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use content_digest::Digest;

use super::{
    error::{CatalogueError, storage},
    files::sync_directory,
};

/// Bytes of one entry.
const ENTRY_BYTES: u64 = 32;
/// Entries read at once.
const ENTRIES_AT_ONCE: u64 = 1024;

/// The ledger's file, open for appending.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    file: fs::File,
    entries: u64,
}

impl Ledger {
    /// Opens the ledger; `None` when there is none. A torn last entry, which was never acknowledged, is cut off.
    pub fn open(path: &Path) -> Result<Option<Self>, CatalogueError> {
        let file = match fs::OpenOptions::new().read(true).append(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(storage("open", path)(error)),
        };
        let length = file.metadata().map_err(storage("look at", path))?.len();
        let entries = length / ENTRY_BYTES;
        if length % ENTRY_BYTES != 0 {
            file.set_len(entries * ENTRY_BYTES).and_then(|()| file.sync_all()).map_err(storage("cut", path))?;
        }
        Ok(Some(Self { path: path.to_owned(), file, entries }))
    }

    /// Writes a ledger of these grains over whatever is there: whole, or after a crash not at all.
    pub fn create(path: &Path, grains: &[Digest]) -> Result<Self, CatalogueError> {
        let unfinished = path.with_extension("new");
        let entries: Vec<u8> = grains.iter().flat_map(|hash| *hash.as_bytes()).collect();
        let mut file = fs::File::create(&unfinished).map_err(storage("create", &unfinished))?;
        file.write_all(&entries).and_then(|()| file.sync_all()).map_err(storage("write", &unfinished))?;
        fs::rename(&unfinished, path).map_err(storage("rename", &unfinished))?;
        path.parent().map_or(Ok(()), sync_directory)?;
        let file = fs::OpenOptions::new().read(true).append(true).open(path).map_err(storage("open", path))?;
        Ok(Self { path: path.to_owned(), file, entries: grains.len() as u64 })
    }

    /// Number of entries.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Appends an entry. It is on disk when this returns. After a failure the file is cut back to what was acknowledged.
    pub fn append(&mut self, hash: Digest) -> Result<(), CatalogueError> {
        let written = self.file.write_all(hash.as_bytes()).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            // Best effort: an entry that stays behind names a grain that is on disk, so reading it does no harm, and a
            // torn one is cut off at the next start. Further appends fail until the length is right again.
            self.file.set_len(self.entries * ENTRY_BYTES).map_err(storage("cut", &self.path))?;
            return Err(storage("append to", &self.path)(error));
        }
        self.entries += 1;
        Ok(())
    }

    /// Calls for each entry from number `from` on, in order.
    pub fn replay(
        &mut self,
        from: u64,
        mut visit: impl FnMut(Digest) -> Result<(), CatalogueError>,
    ) -> Result<(), CatalogueError> {
        let mut at = from;
        while at < self.entries {
            let count = (self.entries - at).min(ENTRIES_AT_ONCE);
            let mut bytes = Vec::new();
            self.file.seek(SeekFrom::Start(at * ENTRY_BYTES)).map_err(storage("read", &self.path))?;
            let mut piece = (&self.file).take(count * ENTRY_BYTES);
            piece.read_to_end(&mut bytes).map_err(storage("read", &self.path))?;
            for entry in bytes.as_chunks::<32>().0 {
                visit(Digest::from_bytes(*entry))?;
            }
            at += count;
        }
        Ok(())
    }
}
