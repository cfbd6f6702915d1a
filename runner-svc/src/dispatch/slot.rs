//! One of `--workers`: held by an effect while somebody executes it, given back while it waits for a service.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A place among the effects in flight.
pub struct Slot {
    workers: Arc<Semaphore>,
    held: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Slot {
    /// None is held yet.
    pub fn of(workers: &Arc<Semaphore>) -> Self {
        Self { workers: Arc::clone(workers), held: Mutex::new(None) }
    }

    /// Whether taking it means waiting.
    pub fn is_scarce(&self) -> bool {
        self.held.lock().is_none() && self.workers.available_permits() == 0
    }

    /// Takes it, unless it is held already. Waits for one.
    pub async fn take(&self) {
        if self.held.lock().is_some() {
            return;
        }
        // The semaphore is never closed.
        let permit = Arc::clone(&self.workers).acquire_owned().await.ok();
        *self.held.lock() = permit;
    }

    /// Gives it back.
    pub fn give_back(&self) {
        self.held.lock().take();
    }
}
