//! Who may run now: a fixed number of slots, a bounded queue before them in which tenants take turns, and a bound on the bytes
//! that all calls hold together.

mod turns;

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use turns::Turns;

/// Bytes of input that all calls together may hold.
const HELD_BYTES_MAX: usize = 256 * 1024 * 1024;
/// The unit in which they are counted.
const HELD_UNIT_BYTES: usize = 4096;

/// How much there is, and how much of it one tenant may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Guests that run at once.
    pub slots: usize,
    /// Calls that may wait for a slot.
    pub queue: usize,
    /// The part of either that calls of one named tenant may take, in percent; at least one slot.
    pub tenant_percent: u8,
}

/// Slots and queue.
#[derive(Debug)]
pub struct Admission {
    turns: Arc<Mutex<Turns<Granted>>>,
    held: Arc<Semaphore>,
    capacity: Capacity,
}

/// A place in the queue or in a slot; given back when dropped.
#[derive(Debug)]
pub struct Place {
    turns: Arc<Mutex<Turns<Granted>>>,
    tenant: Arc<str>,
    _held: OwnedSemaphorePermit,
}

/// The right to run; given back when dropped, and then its place.
#[derive(Debug)]
pub struct Slot {
    _granted: Granted,
    _place: Place,
}

/// A slot that is counted as taken.
#[derive(Debug)]
struct Granted {
    turns: Arc<Mutex<Turns<Granted>>>,
    tenant: Arc<str>,
}

/// What there is no more of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// Slots and queue.
    All,
    /// The tenant's part of them.
    Tenant,
    /// Bytes that calls may hold.
    Bytes,
}

impl Admission {
    /// All free.
    pub fn new(capacity: Capacity) -> Self {
        Self {
            turns: Arc::new(Mutex::new(Turns::new(capacity))),
            held: Arc::new(Semaphore::new(HELD_BYTES_MAX / HELD_UNIT_BYTES)),
            capacity,
        }
    }

    /// Takes a place for a call that holds so many bytes, or says at once that there is none. Calls without a tenant's name
    /// take their turn together, and may take all there is.
    pub fn enter(&self, tenant: &str, bytes: usize) -> Result<Place, Full> {
        let units = u32::try_from(bytes.div_ceil(HELD_UNIT_BYTES)).map_err(|_| Full::Bytes)?;
        let held = Arc::clone(&self.held).try_acquire_many_owned(units).map_err(|_| Full::Bytes)?;
        let tenant = self.turns.lock().enter(tenant)?;
        Ok(Place { turns: Arc::clone(&self.turns), tenant, _held: held })
    }

    /// Slots in use.
    pub fn running(&self) -> usize {
        self.turns.lock().running()
    }

    /// Places taken without a slot.
    pub fn queued(&self) -> usize {
        self.turns.lock().queued()
    }

    /// How much there is.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }
}

impl Place {
    /// Waits for a slot: first come first served within a tenant, and tenants take turns.
    pub async fn slot(self) -> Slot {
        let (wake, woken) = oneshot::channel();
        let number = self.turns.lock().wait(&self.tenant, wake);
        let waiting = Waiting { place: &self, number };
        grant(&self.turns);
        let granted = woken.await.expect("a waiter is woken or takes itself out of the queue");
        drop(waiting);
        Slot { _granted: granted, _place: self }
    }
}

/// Hands free slots to those whose turn it is. They are handed over outside the lock: one that nobody takes any more comes
/// back through it.
fn grant(turns: &Arc<Mutex<Turns<Granted>>>) {
    loop {
        let Some((tenant, wake)) = turns.lock().next() else { return };
        let _came_back = wake.send(Granted { turns: Arc::clone(turns), tenant });
    }
}

/// A call in the queue, taken out of it when dropped.
struct Waiting<'a> {
    place: &'a Place,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.place.turns.lock().give_up(&self.place.tenant, self.number);
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        self.turns.lock().release(&self.tenant);
        grant(&self.turns);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.turns.lock().leave(&self.tenant);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn admission(slots: usize, queue: usize) -> Admission {
        Admission::new(Capacity { slots, queue, tenant_percent: 75 })
    }

    #[tokio::test]
    async fn the_queue_is_bounded_and_a_dropped_slot_is_free_at_once() {
        let admission = admission(1, 1);
        let first = admission.enter("", 1).unwrap().slot().await;
        let two = admission.enter("", 1).unwrap();
        assert_eq!((admission.running(), admission.queued()), (1, 1));
        assert_eq!(admission.enter("", 1).unwrap_err(), Full::All);
        drop(first);
        let second = two.slot().await;
        assert_eq!((admission.running(), admission.queued()), (1, 0));
        drop(second);
        assert_eq!((admission.running(), admission.queued()), (0, 0));
    }

    #[test]
    fn what_all_calls_hold_together_is_bounded() {
        let admission = admission(10, 10);
        let most = admission.enter("", HELD_BYTES_MAX - HELD_UNIT_BYTES).unwrap();
        let little = admission.enter("", 1).unwrap();
        assert_eq!(admission.enter("", 1).unwrap_err(), Full::Bytes);
        drop(most);
        assert!(admission.enter("", HELD_BYTES_MAX / 2).is_ok());
        drop(little);
    }

    #[tokio::test]
    async fn one_tenant_never_has_all_slots_nor_all_of_the_queue() {
        let admission = admission(4, 4);
        let mut waiting: Vec<_> = (0..6).map(|_| Box::pin(admission.enter("a", 1).unwrap().slot())).collect();
        assert_eq!(admission.enter("a", 1).unwrap_err(), Full::Tenant);
        let running: Vec<_> = waiting.iter_mut().filter_map(|slot| slot.as_mut().now_or_never()).collect();
        assert_eq!((running.len(), admission.running(), admission.queued()), (3, 3, 3));
        let other = admission.enter("b", 1).unwrap();
        assert!(other.slot().now_or_never().is_some(), "the other tenant runs at once");
    }

    #[tokio::test]
    async fn tenants_take_turns_whoever_came_first() {
        let admission = admission(1, 8);
        let slot = admission.enter("", 1).unwrap().slot().await;
        let tenants = ["a", "a", "a", "b", "c"].iter();
        let mut waiting: Vec<_> =
            tenants.map(|tenant| Some(Box::pin(admission.enter(tenant, 1).unwrap().slot()))).collect();
        for future in waiting.iter_mut().flatten() {
            assert!(future.as_mut().now_or_never().is_none());
        }
        drop(slot);
        let mut order = Vec::new();
        for _ in 0..waiting.len() {
            for (number, place) in waiting.iter_mut().enumerate() {
                let Some(slot) = place.as_mut().and_then(|future| future.as_mut().now_or_never()) else { continue };
                *place = None;
                order.push(number);
                drop(slot);
            }
        }
        assert_eq!(order.iter().position(|number| *number == 3), Some(1), "b comes after one of a's: {order:?}");
        assert_eq!((admission.running(), order.len()), (0, 5));
    }

    #[tokio::test]
    async fn a_call_that_gives_up_while_it_waits_or_as_it_is_woken_loses_no_slot() {
        let admission = admission(1, 4);
        let slot = admission.enter("", 1).unwrap().slot().await;
        let mut second = Box::pin(admission.enter("a", 1).unwrap().slot());
        let mut third = Box::pin(admission.enter("b", 1).unwrap().slot());
        assert!(second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
        drop(slot);
        drop(second);
        assert!(third.now_or_never().is_some(), "the slot that was handed to the one goes to the other");
        assert_eq!((admission.running(), admission.queued()), (0, 0));
    }
}
