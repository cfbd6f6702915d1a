//! Who may run now: a fixed number of slots, a bounded queue before them, and a bound on the bytes that all of them hold.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of input that all calls together may hold.
const HELD_BYTES_MAX: usize = 256 * 1024 * 1024;
/// The unit in which they are counted.
const HELD_UNIT_BYTES: usize = 4096;

/// Slots and queue.
#[derive(Debug)]
pub struct Admission {
    slots: Arc<Semaphore>,
    places: Arc<Semaphore>,
    held: Arc<Semaphore>,
    slots_max: usize,
    places_max: usize,
}

/// A place in the queue or in a slot; given back when dropped.
#[derive(Debug)]
pub struct Place {
    slots: Arc<Semaphore>,
    _place: OwnedSemaphorePermit,
    _held: OwnedSemaphorePermit,
}

/// The right to run; given back when dropped.
#[derive(Debug)]
pub struct Slot {
    _slot: OwnedSemaphorePermit,
    _place: Place,
}

/// All slots and all of the queue are taken, or what they hold is over its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl Admission {
    /// `slots` that run at once, and `queue` more that may wait.
    pub fn new(slots: usize, queue: usize) -> Self {
        let places_max = slots + queue;
        Self {
            slots: Arc::new(Semaphore::new(slots)),
            places: Arc::new(Semaphore::new(places_max)),
            held: Arc::new(Semaphore::new(HELD_BYTES_MAX / HELD_UNIT_BYTES)),
            slots_max: slots,
            places_max,
        }
    }

    /// Takes a place for a call that holds so many bytes, or says at once that there is none.
    pub fn enter(&self, bytes: usize) -> Result<Place, Full> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| Full)?;
        let units = u32::try_from(bytes.div_ceil(HELD_UNIT_BYTES)).map_err(|_| Full)?;
        let held = Arc::clone(&self.held).try_acquire_many_owned(units).map_err(|_| Full)?;
        Ok(Place { slots: Arc::clone(&self.slots), _place: place, _held: held })
    }

    /// Slots in use.
    pub fn running(&self) -> usize {
        self.slots_max - self.slots.available_permits()
    }

    /// Places taken without a slot.
    pub fn queued(&self) -> usize {
        (self.places_max - self.places.available_permits()).saturating_sub(self.running())
    }

    /// Slots in all.
    pub fn slots(&self) -> usize {
        self.slots_max
    }
}

impl Place {
    /// Waits for a slot, first come first served.
    pub async fn slot(self) -> Slot {
        let slot = Arc::clone(&self.slots).acquire_owned().await.expect("the semaphore is never closed");
        Slot { _slot: slot, _place: self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_queue_is_bounded_and_a_dropped_slot_is_free_at_once() {
        let admission = Admission::new(1, 1);
        let first = admission.enter(1).unwrap().slot().await;
        let second = admission.enter(1).unwrap();
        assert_eq!((admission.running(), admission.queued()), (1, 1));
        assert_eq!(admission.enter(1).unwrap_err(), Full);
        drop(first);
        let second = second.slot().await;
        assert_eq!((admission.running(), admission.queued()), (1, 0));
        drop(second);
        assert_eq!((admission.running(), admission.queued()), (0, 0));
    }

    #[test]
    fn what_all_calls_hold_together_is_bounded() {
        let admission = Admission::new(10, 10);
        let most = admission.enter(HELD_BYTES_MAX - HELD_UNIT_BYTES).unwrap();
        let little = admission.enter(1).unwrap();
        assert_eq!(admission.enter(1).unwrap_err(), Full);
        drop(most);
        assert!(admission.enter(HELD_BYTES_MAX / 2).is_ok());
        drop(little);
    }
}
