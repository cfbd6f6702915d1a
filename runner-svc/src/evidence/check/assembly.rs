//! Puts pieces together again and checks what they make.

use std::collections::BTreeMap;

use content_digest::Digest;

/// Most bytes that are put together at once: what one event names, or one blob.
const BYTES_MAX: usize = 256 << 20;

/// A piece of something that is named by its digest.
pub struct Piece {
    /// SHA-256 of the whole.
    pub digest: Digest,
    /// Number of the piece, from 1.
    pub piece: u32,
    /// How many there are.
    pub pieces: u32,
    /// The piece.
    pub bytes: Vec<u8>,
}

/// What is whole, and the one thing that is not yet.
#[derive(Default)]
pub struct Assembly {
    whole: BTreeMap<Digest, Vec<u8>>,
    open: Option<(Digest, u32, Vec<u8>)>,
    bytes: usize,
}

impl Assembly {
    /// Takes the next piece; true when it was the last of its whole.
    ///
    /// # Errors
    /// What does not hold.
    pub fn push(&mut self, piece: Piece) -> Result<bool, String> {
        let Piece { digest, piece, pieces, bytes } = piece;
        let (open, next, mut whole) = self.open.take().unwrap_or((digest, 1, Vec::new()));
        if open != digest || piece != next || piece > pieces {
            return Err(format!("piece {next} of {open} is missing"));
        }
        self.bytes += bytes.len();
        if self.bytes > BYTES_MAX {
            return Err(format!("over {BYTES_MAX} bytes belong to one event"));
        }
        whole.extend_from_slice(&bytes);
        if piece < pieces {
            self.open = Some((digest, piece + 1, whole));
            return Ok(false);
        }
        let found = Digest::of(&whole);
        if found != digest {
            return Err(format!("{digest} has the digest {found} here: it was changed"));
        }
        self.whole.insert(digest, whole);
        Ok(true)
    }

    /// Something whole.
    pub fn get(&self, digest: &Digest) -> Option<&[u8]> {
        self.whole.get(digest).map(Vec::as_slice)
    }

    /// Takes something whole out.
    pub fn take(&mut self, digest: &Digest) -> Option<Vec<u8>> {
        let whole = self.whole.remove(digest)?;
        self.bytes -= whole.len();
        Some(whole)
    }

    /// Whether nothing was begun that is not used.
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.open.is_none()
    }
}
