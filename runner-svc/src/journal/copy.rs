//! A copy of a store that is in use: bookkeeping while nothing is written, then the records, which never change.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File},
    io,
    ops::ControlFlow,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use content_digest::Digest;

use super::{
    error::{Storage, Trouble},
    frame,
    heads::{self, Heads},
    key::{Key as _, Meta, Part, RunName, State},
    shelf::{Shelf, Span},
    state::RunState,
    watermark::{self, Watermark},
};

/// Bytes that are read before they are written.
const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Larger than any key.
const LAST: [u8; 80] = [0xff; 80];
/// Memory for the copy's cache, in bytes.
const CACHE_BYTES: u64 = 16 * 1024 * 1024;

/// What was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Copied {
    /// Runs.
    pub runs: u64,
    /// Values of every kind.
    pub values: u64,
}

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The place to copy to.
    #[error("cannot copy to {path}: {cause}", path = path.display())]
    Dest {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        cause: String,
    },
    /// The store that is copied.
    #[error(transparent)]
    Storage(#[from] Storage),
}

/// A copy that is being made.
pub(super) struct Copy {
    dest: PathBuf,
    store: sled::Db,
    /// Each run's next sequence number: what is written after it is not copied.
    heads: BTreeMap<u64, u64>,
    /// Digests of the ids of runs.
    names: BTreeMap<u64, Digest>,
    /// The number of the last commit.
    commits: Option<u64>,
    copied: Copied,
}

impl Copy {
    /// Makes the folder `journal` in a folder that is new or empty.
    pub(super) fn begin(dest: &Path) -> Result<Self, CopyError> {
        let refused = |cause: String| CopyError::Dest { path: dest.to_owned(), cause };
        DirBuilder::new().recursive(true).mode(0o700).create(dest).map_err(|error| refused(error.to_string()))?;
        let mut entries = fs::read_dir(dest).map_err(|error| refused(error.to_string()))?;
        if entries.next().is_some() {
            return Err(refused("it is not empty: name a new folder".to_owned()));
        }
        let config = sled::Config::new().path(dest.join("journal")).cache_capacity(CACHE_BYTES).flush_every_ms(None);
        let store = config.open().map_err(|error| refused(error.to_string()))?;
        let (heads, names) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { dest: dest.to_owned(), store, heads, names, commits: None, copied: Copied::default() })
    }

    /// Everything but records. Nothing is written to the store meanwhile.
    pub(super) fn bookkeeping(&mut self, shelf: &dyn Shelf) -> Result<(), Storage> {
        self.span(shelf, vec![0], vec![Part::KIND - 1, 0xff])?;
        self.span(shelf, vec![Part::KIND + 1], LAST.to_vec())
    }

    /// The records of the runs as they stood then, and the end.
    pub(super) fn records(&mut self, shelf: &dyn Shelf) -> Result<Copied, CopyError> {
        self.span(shelf, vec![Part::KIND], vec![Part::KIND, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])?;
        self.end()?;
        let failed =
            |cause: &dyn std::fmt::Display| CopyError::Dest { path: self.dest.clone(), cause: cause.to_string() };
        self.note().map_err(|error| failed(&error))?;
        let notes = [heads::NAME, watermark::NAME].map(|name| self.dest.join(name));
        let files = fs::read_dir(self.dest.join("journal")).map_err(|error| failed(&error))?;
        let files = files.map(|entry| entry.map(|entry| entry.path()));
        for path in files.chain(notes.into_iter().filter(|note| note.exists()).map(Ok)) {
            let path = path.map_err(|error| failed(&error))?;
            File::open(&path).and_then(|file| file.sync_all()).map_err(|error| failed(&error))?;
        }
        for folder in [self.dest.join("journal"), self.dest.clone()] {
            File::open(&folder).and_then(|folder| folder.sync_all()).map_err(|error| failed(&error))?;
        }
        self.copied.runs = self.heads.len() as u64;
        Ok(self.copied)
    }

    /// The number of commits once more behind all records: damage before it is seen as such, not taken for a torn end. By
    /// way of another number, since sled writes nothing that is there already; damage to either is none to what is before.
    fn end(&self) -> Result<(), Storage> {
        let Some(commits) = self.commits else { return Ok(()) };
        for commits in [commits.saturating_add(1), commits] {
            let key = Meta::Commits.encode();
            let sealed = frame::seal(&key, &commits.to_be_bytes());
            let mut batch = sled::Batch::default();
            batch.insert(key, sealed);
            self.apply(batch)?;
            self.store.flush().map_err(write_failed)?;
        }
        Ok(())
    }

    /// What a store notes beside itself: how far each run goes, and how many commits there are.
    fn note(&self) -> io::Result<()> {
        let known = self.heads.iter().filter(|(_, head)| **head != u64::MAX).map(|(run, head)| (*run, *head));
        Heads::open(&self.dest)?.write(&heads::Noted { heads: known.collect(), names: self.names.clone() })?;
        if let Some(commits) = self.commits {
            let length = fs::metadata(self.dest.join("journal/db"))?.len();
            Watermark::open(&self.dest)?.note(commits, length);
        }
        Ok(())
    }

    fn apply(&self, batch: sled::Batch) -> Result<(), Storage> {
        self.store.apply_batch(batch).map_err(write_failed)
    }

    fn span(&mut self, shelf: &dyn Shelf, mut from: Vec<u8>, to: Vec<u8>) -> Result<(), Storage> {
        loop {
            let (mut page, mut bytes) = (Vec::new(), 0);
            shelf.scan(Span { from: &from, to: &to, backwards: false }, &mut |key, value| {
                bytes += key.len() + value.len();
                page.push((key.to_vec(), value.to_vec()));
                if bytes < PAGE_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            // The key behind another one is the key and one byte more.
            from = [last.as_slice(), &[0]].concat();
            // Records of two runs never share a batch: sled gives up all of one that does not read.
            let (mut batch, mut of) = (sled::Batch::default(), None);
            for (key, value) in page {
                let run = Part::decode(&key).map(|part| part.run);
                if std::mem::replace(&mut of, run) != run {
                    self.apply(std::mem::take(&mut batch))?;
                }
                if self.belongs(&key, &value) {
                    self.copied.values += 1;
                    batch.insert(key, value);
                }
            }
            self.apply(batch)?;
            self.store.flush().map_err(write_failed)?;
        }
    }

    /// Records that were added since the bookkeeping was copied do not belong to it.
    fn belongs(&mut self, key: &[u8], value: &[u8]) -> bool {
        if let Some(State(run)) = State::decode(key) {
            let state = frame::unseal(key, value).ok().and_then(RunState::decode);
            // One that is damaged is copied as it is.
            self.heads.insert(run, state.map_or(u64::MAX, |state| state.next_sequence));
        }
        let number = || Some(u64::from_be_bytes(frame::unseal(key, value).ok()?.try_into().ok()?));
        if let Some((RunName(name), run)) = RunName::decode(key).zip(number()) {
            self.names.insert(run, name);
        }
        if Meta::decode(key) == Some(Meta::Commits) {
            self.commits = number();
        }
        match Part::decode(key) {
            Some(part) => self.heads.get(&part.run).is_some_and(|head| part.sequence < *head),
            None => true,
        }
    }
}

fn write_failed(error: sled::Error) -> Storage {
    Storage::new(Trouble::Write, format!("the copy: {error}"))
}
