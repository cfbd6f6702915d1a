//! What plans are made of: grains and blobs, both immutable and addressed by their SHA-256.

pub mod authored;
mod error;
mod files;
pub mod grain;
mod index;
mod ledger;
mod lookup;

use std::{path::Path, sync::Arc};

use content_digest::Digest;

pub use error::CatalogueError;
pub use files::{Content, Files, Upload};
pub use index::{DefinitionSummary, ForeignPlace, Page, PlanSummary};
pub use lookup::Lookup;

use grain::{GRAIN_BYTES_MAX, Grain, author};
use index::Index;

/// Largest blob, in bytes.
pub const BLOB_BYTES_MAX: u64 = 64 << 20;

/// Grains and blobs as files, and an index of definitions and plans. All calls block on the disk.
///
/// The files are the truth and are on disk before a call returns; the index is made whole from them when the catalogue opens.
#[derive(Debug)]
pub struct Catalogue {
    blobs: Arc<Files>,
    grains: Arc<Files>,
    index: Index,
}

impl Catalogue {
    /// Opens the catalogue in the runner's data directory: `blobs/`, `grains/`, `grains/ledger`, and a tree of its own.
    pub fn open(data_dir: &Path, tree: sled::Tree) -> Result<Self, CatalogueError> {
        let blobs = Files::open(&data_dir.join("blobs"), BLOB_BYTES_MAX)?;
        let grains = Files::open(&data_dir.join("grains"), GRAIN_BYTES_MAX as u64)?;
        let index = Index::open(tree, &data_dir.join("grains").join("ledger"), &grains)?;
        Ok(Self { blobs, grains, index })
    }

    /// The blobs.
    pub fn blobs(&self) -> &Arc<Files> {
        &self.blobs
    }

    /// Stores a grain. Storing it again mends its file if it was damaged, and changes nothing else.
    pub fn put_grain(&self, grain: &Grain) -> Result<(), CatalogueError> {
        author::check_namespace_spelling(grain.namespace())?;
        let is_stored = self.index.holds(grain)? && matches!(self.grains.read(&grain.hash()), Ok(Some(_)));
        if is_stored {
            return Ok(());
        }
        self.grains.put(grain.bytes())?;
        self.index.add(grain)
    }

    /// A grain by its address.
    pub fn grain(&self, hash: &Digest) -> Result<Option<Grain>, CatalogueError> {
        let Some(bytes) = self.grains.read(hash)? else { return Ok(None) };
        // Only grains that were read are stored, so this is the store's fault and not the caller's.
        Grain::decode(bytes).map(Some).map_err(|_| CatalogueError::Damaged { digest: *hash })
    }

    /// The newest definition of a tool's name in a namespace: by time of authoring, then by address.
    pub fn newest_definition(&self, namespace: &str, tool_name: &str) -> Result<Option<Digest>, CatalogueError> {
        self.index.newest_definition(namespace, tool_name)
    }

    /// A namespace's definitions by name, the newest of a name first. `after` is a page's `next`.
    pub fn definitions(
        &self,
        namespace: &str,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Result<Page<DefinitionSummary>, ForeignPlace>, CatalogueError> {
        self.index.definitions(namespace, after, limit)
    }

    /// A namespace's plans, newest first. `after` is a page's `next`.
    pub fn plans(
        &self,
        namespace: &str,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Result<Page<PlanSummary>, ForeignPlace>, CatalogueError> {
        self.index.plans(namespace, after, limit)
    }
}
