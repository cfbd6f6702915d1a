//! Blobs of the runner's catalogue, by their digest.

use alloc::vec::Vec;

use crate::{CallError, abi, fetch::Reply};

/// Reads one blob: `digest` is `cas://sha256:<64 lower-case hex digits>`. Whoever answers has hashed the bytes.
///
/// # Errors
/// There is no such blob, it is longer than the definition's `max_blob_bytes`, or 64 were read: [`CallError::Refused`].
pub fn blob_get(digest: &str) -> Result<Vec<u8>, CallError> {
    Reply::read(&abi::blob_get(digest.as_bytes()).ok_or(CallError::NoReply)?)?.bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_wasm_there_is_no_blob() {
        assert_eq!(blob_get("cas://sha256:00"), Err(CallError::NoReply));
    }
}
