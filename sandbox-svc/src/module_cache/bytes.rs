//! Uploaded bytes by digest, bounded by their sum and by their number.

use bytes::Bytes;
use content_digest::Digest;
use lru::LruCache;

/// Most entries: small ones cost more than their bytes.
pub const ENTRIES_MAX: usize = 4096;

/// Bytes, least recently used out first.
pub struct ByteCache {
    by_digest: LruCache<Digest, Bytes>,
    bytes: u64,
    bytes_max: u64,
    entries_max: usize,
}

impl ByteCache {
    /// An empty cache of at most `bytes_max` in at most `entries_max` entries.
    pub fn new(bytes_max: u64, entries_max: usize) -> Self {
        Self { by_digest: LruCache::unbounded(), bytes: 0, bytes_max, entries_max }
    }

    /// Keeps bytes; older ones make room. The newest stay even when they alone are over the bound.
    pub fn put(&mut self, digest: Digest, bytes: Bytes) {
        self.bytes += bytes.len() as u64;
        if let Some(same) = self.by_digest.put(digest, bytes) {
            self.bytes -= same.len() as u64;
        }
        while (self.bytes > self.bytes_max || self.by_digest.len() > self.entries_max) && self.by_digest.len() > 1 {
            let Some((_, oldest)) = self.by_digest.pop_lru() else { break };
            self.bytes -= oldest.len() as u64;
        }
    }

    /// Lets go of the bytes of a digest, when they may go.
    pub fn remove_if(&mut self, digest: &Digest, may_go: impl FnOnce(&[u8]) -> bool) {
        if self.by_digest.peek(digest).is_some_and(|bytes| may_go(bytes)) {
            self.bytes -= self.by_digest.pop(digest).map_or(0, |bytes| bytes.len() as u64);
        }
    }

    /// The bytes of a digest.
    pub fn get(&mut self, digest: &Digest) -> Option<Bytes> {
        self.by_digest.get(digest).cloned()
    }

    /// The size of a digest's bytes.
    pub fn size(&self, digest: &Digest) -> Option<u64> {
        self.by_digest.peek(digest).map(|bytes| bytes.len() as u64)
    }

    /// How many there are and their sum.
    pub fn held(&self) -> (usize, u64) {
        (self.by_digest.len(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_bytes_make_room() {
        let mut cache = ByteCache::new(8, 9);
        let put = |cache: &mut ByteCache, bytes: &'static [u8]| {
            let digest = Digest::of(bytes);
            cache.put(digest, Bytes::from_static(bytes));
            digest
        };
        let (one, two) = (put(&mut cache, b"1111"), put(&mut cache, b"2222"));
        assert!(cache.get(&one).is_some());
        let three = put(&mut cache, b"3333");
        assert_eq!((cache.size(&one), cache.size(&two), cache.size(&three)), (Some(4), None, Some(4)));
        put(&mut cache, b"3333");
        assert_eq!(cache.held(), (2, 8));
    }

    #[test]
    fn many_small_entries_make_room_for_each_other() {
        let mut cache = ByteCache::new(1024, 2);
        let digests: Vec<_> = (0..3u8).map(|byte| (Digest::of([byte]), Bytes::from(vec![byte]))).collect();
        for (digest, bytes) in &digests {
            cache.put(*digest, bytes.clone());
        }
        assert_eq!((cache.held(), cache.size(&digests[0].0)), ((2, 2), None));
        let mut empty = ByteCache::new(1024, 2);
        empty.put(digests[0].0, Bytes::new());
        assert_eq!(empty.held(), (1, 0));
    }
}
