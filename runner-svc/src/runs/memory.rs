//! Room in memory for runs that are taken over at a start: all at once may be more than there is.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory for the states of runs that were taken over, in KiB.
const RECOVERED_KIB_MAX: u32 = 192 * 1024;
/// What a run takes at least, in KiB: its plan, its tasks, its driver.
const RUN_KIB_MIN: u64 = 32;
/// How often a text is held at once: in the state, in what is sent, and while it is read or written.
const COPIES: u64 = 3;

/// Room for runs that are taken over.
pub struct Memory {
    kib: Arc<Semaphore>,
}

impl Default for Memory {
    fn default() -> Self {
        Self { kib: Arc::new(Semaphore::new(RECOVERED_KIB_MAX as usize)) }
    }
}

impl Memory {
    /// Room for a run with so many bytes in the journal, if there is some now.
    pub fn try_take(&self, journal_bytes: u64) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.kib).try_acquire_many_owned(kib(journal_bytes)).ok()
    }

    /// Waits for room. A run that is larger than all of it is alone.
    pub async fn take(&self, journal_bytes: u64) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.kib).acquire_many_owned(kib(journal_bytes)).await.ok()
    }
}

fn kib(journal_bytes: u64) -> u32 {
    let kib = (journal_bytes.saturating_mul(COPIES) / 1024).saturating_add(RUN_KIB_MIN);
    u32::try_from(kib).unwrap_or(u32::MAX).min(RECOVERED_KIB_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_two_megabytes_share_the_room_and_one_that_is_too_large_is_alone() {
        let memory = Memory::default();
        let held: Vec<_> = std::iter::from_fn(|| memory.try_take(2_000_000)).collect();
        assert!(held.len() > 10 && held.len() < 64, "{}", held.len());
        assert!(memory.try_take(u64::MAX).is_none());
        drop(held);
        assert!(memory.try_take(u64::MAX).is_some());
    }
}
