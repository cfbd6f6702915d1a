//! What can go wrong with the catalogue.

use std::{io, path::Path};

use content_digest::Digest;

use super::grain::BadGrain;

/// The catalogue refuses or fails.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// A grain's bytes or a document break the format.
    #[error(transparent)]
    BadGrain(#[from] BadGrain),
    /// Stored bytes no longer hash to their address. Storing them again mends it.
    #[error("the stored bytes of {digest} are damaged: store them again")]
    Damaged {
        /// The address.
        digest: Digest,
    },
    /// Bytes that were sent do not hash to what was expected.
    #[error("the bytes hash to {found}, not to {expected}")]
    Mismatch {
        /// What was expected.
        expected: Digest,
        /// What they hash to.
        found: Digest,
    },
    /// Bytes are over their bound.
    #[error("over {bytes_max} bytes")]
    TooLarge {
        /// The bound.
        bytes_max: u64,
    },
    /// The file system refuses; nothing was acknowledged.
    #[error("{action} {path}: {source}")]
    Storage {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The index refuses; nothing was acknowledged.
    #[error("index: {0}")]
    Index(#[from] sled::Error),
}

/// Names a file in an error of the file system.
pub(super) fn storage<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> CatalogueError + 'a {
    move |source| CatalogueError::Storage { action, path: path.display().to_string(), source }
}
