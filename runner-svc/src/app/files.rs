//! The catalogue's files, as the journal and the dispatcher know them.

use std::{io, sync::Arc, sync::OnceLock};

use content_digest::Digest;

use crate::{
    catalogue::{Catalogue, CatalogueError, Files},
    dispatch::{CodeSource, CodeUnreadable, SharedCode},
    journal::PayloadFiles,
};

/// Large texts of the journal, kept among the catalogue's blobs. The journal is opened first, so the blobs come later.
#[derive(Default)]
pub struct JournalFiles(OnceLock<Arc<Files>>);

impl JournalFiles {
    /// From here on texts can be kept.
    pub fn attach(&self, blobs: Arc<Files>) {
        let _only_once = self.0.set(blobs);
    }

    fn blobs(&self) -> io::Result<&Arc<Files>> {
        self.0.get().ok_or_else(|| io::Error::other("the catalogue is not open yet"))
    }
}

impl PayloadFiles for JournalFiles {
    fn put(&self, digest: &Digest, bytes: &[u8]) -> io::Result<()> {
        let blobs = self.blobs()?;
        if matches!(blobs.read(digest), Ok(Some(_))) {
            return Ok(());
        }
        let stored = blobs.put(bytes).map_err(io::Error::other)?;
        if stored == *digest { Ok(()) } else { Err(io::Error::other("a text does not hash to its digest")) }
    }

    fn get(&self, digest: &Digest) -> io::Result<Vec<u8>> {
        let found = self.blobs()?.read(digest).map_err(|error| io::Error::new(kind(&error), error))?;
        found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("blob {digest} is missing")))
    }
}

/// Bytes that are damaged stay so; what the disk refuses may pass.
fn kind(error: &CatalogueError) -> io::ErrorKind {
    match error {
        CatalogueError::Storage { source, .. } => source.kind(),
        CatalogueError::Damaged { .. } | CatalogueError::TooLarge { .. } => io::ErrorKind::InvalidData,
        CatalogueError::BadGrain(_) | CatalogueError::Mismatch { .. } | CatalogueError::Index(_) => {
            io::ErrorKind::Other
        }
    }
}

struct Blobs(Arc<Files>);

/// Code for executors that do not have it.
pub fn code(catalogue: &Catalogue) -> SharedCode {
    Arc::new(Blobs(Arc::clone(catalogue.blobs())))
}

/// For a look at the configuration: nothing is executed.
pub fn no_code() -> SharedCode {
    Arc::new(NoCode)
}

struct NoCode;

impl CodeSource for NoCode {
    fn read(&self, digest: &Digest) -> Result<Vec<u8>, CodeUnreadable> {
        Err(CodeUnreadable(format!("blob {} is not here", digest.to_uri())))
    }

    fn size(&self, _digest: &Digest) -> Result<Option<u64>, CodeUnreadable> {
        Ok(None)
    }
}

impl CodeSource for Blobs {
    fn read(&self, digest: &Digest) -> Result<Vec<u8>, CodeUnreadable> {
        match self.0.read(digest) {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => {
                Err(CodeUnreadable(format!("blob {} is not in the catalogue: store it with PutBlob", digest.to_uri())))
            }
            Err(error) => Err(CodeUnreadable(error.to_string())),
        }
    }

    fn size(&self, digest: &Digest) -> Result<Option<u64>, CodeUnreadable> {
        self.0.size(digest).map_err(|error| CodeUnreadable(error.to_string()))
    }
}
