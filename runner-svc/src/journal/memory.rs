//! The in-memory twin: the same layout over an ordered map, for tests and throwaway use.

use std::{collections::BTreeMap, io, ops::Bound};

use content_digest::Digest;
use parking_lot::{Mutex, RwLock};

use super::{
    error::Storage,
    heads::Noted,
    payload_files::PayloadFiles,
    shelf::{Batch, Room, Shelf, Span, Visit},
};

/// An ordered map. Nothing survives the process.
#[derive(Default)]
pub(super) struct MemoryShelf(RwLock<BTreeMap<Vec<u8>, Vec<u8>>>);

impl Shelf for MemoryShelf {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Storage> {
        Ok(self.0.read().get(key).cloned())
    }

    fn scan(&self, span: Span<'_>, visit: &mut Visit<'_>) -> Result<(), Storage> {
        if span.from > span.to {
            return Ok(());
        }
        let map = self.0.read();
        let mut range = map.range::<[u8], _>((Bound::Included(span.from), Bound::Included(span.to)));
        let mut next = || if span.backwards { range.next_back() } else { range.next() };
        while let Some((key, value)) = next() {
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn apply(&self, batch: Batch) -> Result<(), Storage> {
        let mut map = self.0.write();
        for (key, value) in batch.writes {
            match value {
                Some(value) => map.insert(key, value),
                None => map.remove(&key),
            };
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), Storage> {
        Ok(())
    }

    fn note(&self, _noted: &Noted) {}

    fn reopen(&self) -> Result<(), Storage> {
        Ok(())
    }

    fn room(&self) -> Room {
        Room::Enough
    }
}

/// Large texts in memory.
#[derive(Default)]
pub(super) struct MemoryFiles(Mutex<BTreeMap<Digest, Vec<u8>>>);

impl PayloadFiles for MemoryFiles {
    fn put(&self, digest: &Digest, bytes: &[u8]) -> io::Result<()> {
        self.0.lock().insert(*digest, bytes.to_vec());
        Ok(())
    }

    fn get(&self, digest: &Digest) -> io::Result<Vec<u8>> {
        self.0.lock().get(digest).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
