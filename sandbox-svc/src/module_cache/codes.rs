//! Code in memory by digest, bounded by its bytes; and, apart from it, what was refused: modules that are refused push out no
//! code that runs.

use std::{num::NonZeroUsize, sync::Arc};

use content_digest::Digest;
use futures::future::{BoxFuture, Shared};
use lru::LruCache;

use super::{Code, CodeFault};

/// Modules whose code is kept, whatever its size.
const CODES_MAX: NonZeroUsize = NonZeroUsize::new(4096).expect("it is not zero");
/// Refusals that are remembered; each is a text of some KiB at most.
const REFUSED_MAX: NonZeroUsize = NonZeroUsize::new(4096).expect("it is not zero");

/// Code that is there or is being made; however many wait, it is made once.
pub type Making = Shared<BoxFuture<'static, Result<Arc<Code>, CodeFault>>>;

/// What is in memory.
pub struct Codes {
    by_digest: LruCache<Digest, Entry>,
    refused: LruCache<Digest, Arc<Code>>,
    bytes: u64,
    bytes_max: u64,
}

struct Entry {
    making: Making,
    /// Bytes of its image once it is there, 0 before.
    bytes: u64,
}

impl Codes {
    /// Nothing, with room for so many bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self { by_digest: LruCache::new(CODES_MAX), refused: LruCache::new(REFUSED_MAX), bytes: 0, bytes_max }
    }

    /// The refusal of a digest.
    pub fn refused(&mut self, digest: &Digest) -> Option<Arc<Code>> {
        self.refused.get(digest).cloned()
    }

    /// Whether a digest is known as refused, without touching its age.
    pub fn is_refused(&self, digest: &Digest) -> bool {
        self.refused.contains(digest)
    }

    /// The code of a digest, there or on its way.
    pub fn get(&mut self, digest: &Digest) -> Option<Making> {
        self.by_digest.get(digest).map(|entry| entry.making.clone())
    }

    /// Keeps what is being made.
    pub fn begin(&mut self, digest: Digest, making: Making) {
        if let Some((_, pushed_out)) = self.by_digest.push(digest, Entry { making, bytes: 0 }) {
            self.bytes -= pushed_out.bytes;
        }
    }

    /// Counts what was made and makes room. A refusal goes to the refusals; a fault is not remembered.
    pub fn settle(&mut self, digest: &Digest, made: &Result<Arc<Code>, CodeFault>) {
        match made {
            Ok(code) if code.is_refused() => {
                self.drop_entry(digest);
                self.refused.put(*digest, Arc::clone(code));
            }
            Err(_) => self.drop_entry(digest),
            Ok(code) => {
                // Pushed out while it was made: whoever waits has it, the cache does not.
                if let Some(entry) = self.by_digest.peek_mut(digest) {
                    self.bytes += code.image_bytes - entry.bytes;
                    entry.bytes = code.image_bytes;
                }
            }
        }
        while self.bytes > self.bytes_max && self.by_digest.len() > 1 {
            let Some((_, oldest)) = self.by_digest.pop_lru() else { break };
            self.bytes -= oldest.bytes;
        }
    }

    fn drop_entry(&mut self, digest: &Digest) {
        if let Some(entry) = self.by_digest.pop(digest) {
            self.bytes -= entry.bytes;
        }
    }

    /// Whether its code is there, without touching its age.
    pub fn is_compiled(&self, digest: &Digest) -> bool {
        self.by_digest.peek(digest).is_some_and(|entry| entry.bytes > 0)
    }
}
