//! A data directory that no service uses, opened by a command.

use std::{path::Path, sync::Arc};

use content_digest::Digest;

use crate::{
    catalogue::{BLOB_BYTES_MAX, Files},
    journal::{Durability, Journal, Mended, Options, PayloadFiles, RealDisk},
};

/// Memory for the store's cache, in bytes.
const CACHE_BYTES: u64 = 64 * 1024 * 1024;

/// Store and blobs.
pub struct Store {
    /// The store.
    pub journal: Journal,
    /// The blobs.
    pub blobs: Arc<Files>,
    /// What was done about a damaged file of the store.
    pub mended: Option<Mended>,
}

/// What is done about a store that is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// It is refused.
    Refuse,
    /// It is written anew from what can be read, and what is lost is accepted.
    Mend,
}

/// Opens both. The directory has to be one already.
pub fn open(dir: &Path, damage: Damage) -> anyhow::Result<Store> {
    anyhow::ensure!(dir.join("journal").is_dir(), "{} is no data directory: it has no journal", dir.display());
    let blobs = Files::open(&dir.join("blobs"), BLOB_BYTES_MAX)?;
    let files = Arc::new(Blobs(Arc::clone(&blobs)));
    let (durability, disk, cache_bytes) = (Durability::PowerLoss, Arc::new(RealDisk), CACHE_BYTES);
    let options = Options { durability, files, disk, cache_bytes };
    let (journal, mended) = match damage {
        Damage::Refuse => (Journal::open_whole(dir, options)?, None),
        Damage::Mend => Journal::open_mending(dir, options, true)?,
    };
    Ok(Store { journal, blobs, mended })
}

/// Large texts, to be read only.
struct Blobs(Arc<Files>);

impl PayloadFiles for Blobs {
    fn put(&self, _digest: &Digest, _bytes: &[u8]) -> std::io::Result<()> {
        Err(std::io::Error::other("a command writes no texts"))
    }

    fn get(&self, digest: &Digest) -> std::io::Result<Vec<u8>> {
        let invalid = |error| std::io::Error::new(std::io::ErrorKind::InvalidData, error);
        let found = self.0.read(digest).map_err(invalid)?;
        found.ok_or_else(|| std::io::Error::new(std::io::ErrorKind::NotFound, format!("blob {digest} is missing")))
    }
}
