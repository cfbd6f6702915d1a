//! Where definitions and plans are found by namespace and name. A copy of what the grains say: losing it loses nothing.

mod key;
mod summary;

use std::{path::Path, sync::Mutex};

use content_digest::Digest;
use sled::{Batch, Tree};

use super::{error::CatalogueError, files::Files, grain::Grain, ledger::Ledger};
use key::Key;

pub use summary::{DefinitionSummary, PlanSummary};

/// How many entries of the ledger the index holds: 8 bytes, big-endian.
const HELD: &[u8] = b"m";
/// Grains indexed between two notes of progress while the index is made anew.
const PROGRESS_EVERY: u64 = 10_000;

/// The index, in one tree.
#[derive(Debug)]
pub struct Index {
    tree: Tree,
    ledger: Mutex<Ledger>,
}

/// Some entries of a list, and where the next page begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The entries in order.
    pub items: Vec<T>,
    /// Pass it to get what comes after; `None` at the end.
    pub next: Option<Vec<u8>>,
}

/// The place to go on from belongs to no list of this namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForeignPlace;

impl Index {
    /// Opens the index and makes it whole: from the ledger's tail, or from all grains when there is no ledger, or one that
    /// is shorter than what the index holds.
    pub fn open(tree: Tree, ledger: &Path, grains: &Files) -> Result<Self, CatalogueError> {
        let held = tree.get(HELD)?.and_then(|bytes| bytes.as_ref().try_into().ok()).map_or(0, u64::from_be_bytes);
        let (mut ledger, held) = match Ledger::open(ledger)? {
            Some(ledger) if held <= ledger.entries() => (ledger, held),
            Some(_) | None => {
                tree.clear()?;
                (Ledger::create(ledger, &grains.addresses()?)?, 0)
            }
        };
        if held < ledger.entries() {
            tracing::info!(held, entries = ledger.entries(), "indexing grains");
        }
        let mut at = held;
        ledger.replay(held, |hash| {
            at += 1;
            take_in(&tree, hash, at, grains)
        })?;
        tree.insert(HELD, &ledger.entries().to_be_bytes())?;
        Ok(Self { tree, ledger: Mutex::new(ledger) })
    }

    /// Adds a grain whose bytes are on disk, if it is a definition or a plan. Adding it twice changes nothing.
    pub fn add(&self, grain: &Grain) -> Result<(), CatalogueError> {
        let Some(key) = Key::of(grain) else { return Ok(()) };
        let mut ledger = self.ledger();
        if self.tree.contains_key(&key)? {
            return Ok(());
        }
        ledger.append(grain.hash())?;
        insert(&self.tree, &key, grain, ledger.entries())
    }

    /// Whether the grain has an entry.
    pub fn holds(&self, grain: &Grain) -> Result<bool, CatalogueError> {
        Key::of(grain).map_or(Ok(false), |key| Ok(self.tree.contains_key(&key)?))
    }

    /// The newest definition of a name: by time of authoring, then by hash.
    pub fn newest_definition(&self, namespace: &str, tool_name: &str) -> Result<Option<Digest>, CatalogueError> {
        let Some(prefix) = key::definitions_named(namespace, tool_name) else { return Ok(None) };
        let first = self.tree.scan_prefix(prefix).keys().next().transpose()?;
        Ok(first.and_then(|key| key::hash(&key)))
    }

    /// A namespace's definitions by name, the newest of a name first.
    pub fn definitions(
        &self,
        namespace: &str,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Result<Page<DefinitionSummary>, ForeignPlace>, CatalogueError> {
        self.page(&key::definitions(namespace), after, limit, DefinitionSummary::read)
    }

    /// A namespace's plans, newest first.
    pub fn plans(
        &self,
        namespace: &str,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Result<Page<PlanSummary>, ForeignPlace>, CatalogueError> {
        self.page(&key::plans(namespace), after, limit, PlanSummary::read)
    }

    fn page<T>(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
        read: fn(Digest, &[u8]) -> Option<T>,
    ) -> Result<Result<Page<T>, ForeignPlace>, CatalogueError> {
        if after.is_some_and(|key| !key.starts_with(prefix)) {
            return Ok(Err(ForeignPlace));
        }
        // Just behind the last key of the page before: the least key that is greater.
        let start = after.map_or_else(|| prefix.to_vec(), |key| [key, &[0]].concat());
        let mut page = Page { items: Vec::new(), next: None };
        let mut last = None;
        for entry in self.tree.range(start..) {
            let (key, value) = entry?;
            if !key.starts_with(prefix) {
                break;
            }
            if page.items.len() == limit {
                page.next = last;
                break;
            }
            page.items.extend(key::hash(&key).and_then(|hash| read(hash, &value)));
            last = Some(key.to_vec());
        }
        Ok(Ok(page))
    }

    fn ledger(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Indexes a grain that the ledger names. One that cannot be read is left out: storing it again puts it in.
fn take_in(tree: &Tree, hash: Digest, entries: u64, grains: &Files) -> Result<(), CatalogueError> {
    if entries.is_multiple_of(PROGRESS_EVERY) {
        tracing::info!(entries, "indexing grains");
    }
    let Some(grain) = readable(hash, grains)? else { return Ok(()) };
    Key::of(&grain).map_or(Ok(()), |key| insert(tree, &key, &grain, entries))
}

/// Entry and progress in one batch: after a crash the index holds both or neither.
fn insert(tree: &Tree, key: &Key, grain: &Grain, entries: u64) -> Result<(), CatalogueError> {
    let mut batch = Batch::default();
    batch.insert(key.as_ref(), summary::write(grain));
    batch.insert(HELD, &entries.to_be_bytes());
    Ok(tree.apply_batch(batch)?)
}

/// A grain that is whole. A damaged or absent one is named in the log and does not stop the start.
fn readable(hash: Digest, grains: &Files) -> Result<Option<Grain>, CatalogueError> {
    let cause = match grains.read(&hash) {
        Ok(Some(bytes)) => match Grain::decode(bytes) {
            Ok(grain) => return Ok(Some(grain)),
            Err(cause) => cause.to_string(),
        },
        Ok(None) => "its file is absent".to_owned(),
        Err(cause @ CatalogueError::Damaged { .. }) => cause.to_string(),
        Err(other) => return Err(other),
    };
    tracing::error!(grain = %hash, cause, "a grain cannot be indexed");
    Ok(None)
}
