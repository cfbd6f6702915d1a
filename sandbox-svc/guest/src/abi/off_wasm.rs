//! Off wasm there is no host.

use alloc::vec::Vec;

/// No reply.
pub fn fetch(_request: &[u8]) -> Option<Vec<u8>> {
    None
}

/// No reply.
pub fn blob_get(_request: &[u8]) -> Option<Vec<u8>> {
    None
}
