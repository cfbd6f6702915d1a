//! Where texts go that are too large for the store: files by digest, durable before the event that names them.

use std::io;

use content_digest::Digest;

/// Keeps large texts by digest. Calls block; the journal makes them off the async threads.
pub trait PayloadFiles: Send + Sync {
    /// Returns when the bytes are on the disk under their digest, file and folder synced. Idempotent.
    fn put(&self, digest: &Digest, bytes: &[u8]) -> io::Result<()>;

    /// Reads the bytes; the journal checks them against the digest.
    fn get(&self, digest: &Digest) -> io::Result<Vec<u8>>;
}
