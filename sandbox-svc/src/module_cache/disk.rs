//! Compiled code on disk: so that a restart compiles nothing again. Bounded by bytes, least recently used goes first.
//!
//! A file counts only when it is plainly this service's own and its seal is right; whatever else lies there is counted, removed
//! and compiled again. Nothing that is written here is needed: a cache that fails makes the service slower, not wrong.

mod directory;
mod key;
mod seal;

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use content_digest::Digest;
use lru::LruCache;
use parking_lot::Mutex;

pub use directory::Rejection;

use super::Checked;
use crate::{artefact::Artefact, engine::Engine};
use directory::Directory;
use seal::{Context, Seal};

/// Files that are remembered, whatever their size.
const FILES_MAX: usize = 65_536;
/// How files of this cache end.
const SUFFIX: &str = ".code";

/// Where and how much.
#[derive(Debug, Clone)]
pub struct DiskSettings {
    /// The directory; the cache makes a private one in it.
    pub dir: PathBuf,
    /// File with the key that seals; absent for one that the cache makes for itself, beside what it seals.
    pub key_file: Option<PathBuf>,
    /// Bytes of all files.
    pub bytes_max: u64,
}

/// The cache cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{what} {path}: {cause}", path = path.display())]
pub struct DiskFault {
    what: &'static str,
    path: PathBuf,
    cause: std::io::Error,
}

/// Tries a given key.
///
/// # Errors
/// When it cannot be read, or is too short or too long.
pub fn check_key(file: &Path) -> Result<(), DiskFault> {
    key::given(file).map(drop)
}

/// The cache on disk.
pub struct DiskCache {
    directory: Directory,
    seal: Seal,
    bytes_max: u64,
    files: Mutex<Files>,
    loads: AtomicU64,
    rejections: AtomicU64,
}

/// What lies there, by name, as far as this process knows.
struct Files {
    by_name: LruCache<String, u64>,
    bytes: u64,
}

impl DiskCache {
    /// Opens the directory, or makes it; takes the key, or makes one; looks at what is there.
    ///
    /// # Errors
    /// When the directory cannot be made, read or written, belongs to somebody else, or the given key cannot be read.
    pub fn open(settings: &DiskSettings, engine: &Engine, pages_max: u64) -> Result<Self, DiskFault> {
        let directory = Directory::open(&settings.dir)?;
        let key = match &settings.key_file {
            Some(file) => key::given(file)?,
            None => key::own(&directory)?,
        };
        let seal = Seal::new(&key, Context::of(engine, pages_max));
        let mut files = Files { by_name: LruCache::unbounded(), bytes: 0 };
        for (name, size) in directory.oldest_first(SUFFIX)? {
            files.add(name, size);
        }
        let cache = Self {
            directory,
            seal,
            bytes_max: settings.bytes_max,
            files: Mutex::new(files),
            loads: AtomicU64::new(0),
            rejections: AtomicU64::new(0),
        };
        cache.make_room(0);
        Ok(cache)
    }

    /// Whether code of a digest seems to be there.
    pub fn contains(&self, digest: &Digest) -> bool {
        self.files.lock().by_name.contains(&self.name(digest))
    }

    /// Files, and their bytes.
    pub fn held(&self) -> (usize, u64) {
        let files = self.files.lock();
        (files.by_name.len(), files.bytes)
    }

    /// Files that were loaded since the start.
    pub fn loads(&self) -> u64 {
        self.loads.load(Ordering::Relaxed)
    }

    /// Files that were not what they should be, since the start.
    pub fn rejections(&self) -> u64 {
        self.rejections.load(Ordering::Relaxed)
    }

    /// Reads code of a digest. Whatever is wrong with its file, the file goes. Blocks.
    pub fn load(&self, digest: &Digest) -> Option<(Checked, Artefact)> {
        let name = self.name(digest);
        let read = self.directory.read(&name, self.bytes_max);
        match read.and_then(|bytes| self.seal.open(digest, bytes)) {
            Ok(found) => {
                self.files.lock().by_name.promote(&name);
                self.loads.fetch_add(1, Ordering::Relaxed);
                metrics::counter!("areev_sandbox_cache_loads_total").increment(1);
                Some(found)
            }
            Err(Rejection::Absent) => {
                self.files.lock().remove(&name);
                None
            }
            Err(rejection) => {
                tracing::warn!(%digest, why = %rejection, "rejected cached code; compiling again");
                self.rejections.fetch_add(1, Ordering::Relaxed);
                metrics::counter!("areev_sandbox_cache_rejections_total", "why" => rejection.name()).increment(1);
                self.files.lock().remove(&name);
                self.directory.remove(&name);
                None
            }
        }
    }

    /// Writes code of a digest; older files make room. Failing to is logged and nothing more. Blocks.
    pub fn store(&self, digest: &Digest, checked: &Checked, artefact: &Artefact) {
        let name = self.name(digest);
        let sealed = self.seal.close(digest, checked, artefact);
        let size = sealed.len() as u64;
        if size > self.bytes_max {
            return;
        }
        self.make_room(size);
        match self.directory.write(&name, &sealed) {
            Ok(()) => self.files.lock().add(name, size),
            Err(cause) => {
                metrics::counter!("areev_sandbox_cache_write_failures_total").increment(1);
                tracing::warn!(%digest, %cause, "cannot keep compiled code on disk");
            }
        }
    }

    fn make_room(&self, size: u64) {
        loop {
            let oldest = {
                let mut files = self.files.lock();
                if files.bytes + size <= self.bytes_max && files.by_name.len() < FILES_MAX {
                    return;
                }
                let Some((name, size)) = files.by_name.pop_lru() else { return };
                files.bytes -= size;
                name
            };
            self.directory.remove(&oldest);
        }
    }

    fn name(&self, digest: &Digest) -> String {
        format!("{}-{}{SUFFIX}", digest.to_hex(), self.seal.context().short())
    }
}

impl Files {
    fn add(&mut self, name: String, size: u64) {
        self.bytes += size;
        if let Some(before) = self.by_name.put(name, size) {
            self.bytes -= before;
        }
    }

    fn remove(&mut self, name: &str) {
        if let Some(size) = self.by_name.pop(name) {
            self.bytes -= size;
        }
    }
}
