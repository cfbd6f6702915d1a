//! The sandbox's own record of its calls, by digest: how often, and the last one. No input, no output, no token.

use std::num::NonZeroUsize;

use content_digest::Digest;
use lru::LruCache;
use parking_lot::Mutex;

use crate::{effect::EffectKey, limits::Limits, outcome::FailureKind, runtime::Runtime};

/// Digests that are remembered.
const DIGESTS_MAX: NonZeroUsize = NonZeroUsize::new(4096).expect("it is not zero");

/// The records.
#[derive(Debug)]
pub struct Executions(Mutex<LruCache<Digest, Executed>>);

/// What is known of one digest's calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executed {
    /// Calls since the service started.
    pub count: u64,
    /// The last one.
    pub last: Execution,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    /// The runtime asked for.
    pub runtime: Runtime,
    /// The limits in force.
    pub limits: Limits,
    /// Whether `areev::fetch` was linked.
    pub fetch_linked: bool,
    /// Which effect.
    pub key: EffectKey,
    /// How it ended; absent for a completed one.
    pub failure: Option<FailureKind>,
}

impl Default for Executions {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(DIGESTS_MAX)))
    }
}

impl Executions {
    /// Records one call.
    pub fn record(&self, digest: Digest, last: Execution) {
        let mut records = self.0.lock();
        let count = records.get(&digest).map_or(0, |executed| executed.count) + 1;
        records.put(digest, Executed { count, last });
    }

    /// What is known of a digest.
    pub fn of(&self, digest: &Digest) -> Option<Executed> {
        self.0.lock().peek(digest).cloned()
    }
}
