//! The port to what keeps the bytes: ordered keys, atomic batches, and a sync that means the disk has them.

use std::ops::ControlFlow;

use super::{error::Storage, heads::Noted};

/// Keeps values by key. Two implementations: sled ([`super::sled_shelf`]) and memory ([`super::memory`]).
///
/// One thread writes (`apply`, `sync`, `note`, `reopen`); any number read meanwhile.
pub(super) trait Shelf: Send + Sync {
    /// Reads one value.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Storage>;

    /// Shows the entries between two keys (both included) in order, until `visit` breaks. `visit` must not come back here.
    fn scan(&self, span: Span<'_>, visit: &mut Visit<'_>) -> Result<(), Storage>;

    /// Makes all of a batch visible at once. After a crash all of it is there or nothing.
    fn apply(&self, batch: Batch) -> Result<(), Storage>;

    /// Returns when everything applied before would survive what the store is to survive. After an error the store must be
    /// reopened: what was applied may or may not be there.
    fn sync(&self) -> Result<(), Storage>;

    /// Notes beside the store what a sync made durable.
    fn note(&self, noted: &Noted);

    /// Tries to get back to a working state from what is on the disk. Afterwards everything that can be read is durable.
    fn reopen(&self) -> Result<(), Storage>;

    /// How much room there is, and whether the reserve for ending runs is untouched.
    fn room(&self) -> Room;
}

/// What [`Shelf::scan`] calls with each key and value.
pub(super) type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// Where to scan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span<'a> {
    /// Smallest key, included.
    pub from: &'a [u8],
    /// Largest key, included.
    pub to: &'a [u8],
    /// From the largest to the smallest.
    pub backwards: bool,
}

/// Whether there is room to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// Enough.
    Enough,
    /// So little that only the ends of runs are written.
    Scarce,
}

/// Writes that become visible together; a later one of the same key replaces an earlier one.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Key and new value, or `None` to remove it.
    pub(super) writes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Bytes of keys and values.
    pub(super) bytes: usize,
}

impl Batch {
    /// Sets a value.
    pub(super) fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.bytes += key.len() + value.len();
        self.writes.push((key, Some(value)));
    }

    /// Removes a value.
    pub(super) fn remove(&mut self, key: Vec<u8>) {
        self.bytes += key.len();
        self.writes.push((key, None));
    }

    /// Whether nothing would change.
    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }
}
