//! Whose turn it is: slots and places counted by tenant, and the order in which waiting tenants are served.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use tokio::sync::oneshot;

use super::{Capacity, Full};

/// The counts, and who waits. `S` is what a waiter is woken with.
#[derive(Debug)]
pub struct Turns<S> {
    capacity: Capacity,
    running: usize,
    places: usize,
    tenants: BTreeMap<Arc<str>, Share<S>>,
    /// Tenants with somebody waiting, next one first; each is in it once.
    order: VecDeque<Arc<str>>,
    next_number: u64,
}

/// What one tenant has.
#[derive(Debug)]
struct Share<S> {
    running: usize,
    places: usize,
    waiting: VecDeque<Waiter<S>>,
}

#[derive(Debug)]
struct Waiter<S> {
    number: u64,
    wake: oneshot::Sender<S>,
}

impl<S> Turns<S> {
    /// Nobody is here.
    pub fn new(capacity: Capacity) -> Self {
        Self { capacity, running: 0, places: 0, tenants: BTreeMap::new(), order: VecDeque::new(), next_number: 0 }
    }

    /// Slots in use.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Places taken without a slot.
    pub fn queued(&self) -> usize {
        self.places.saturating_sub(self.running)
    }

    /// Takes a place.
    pub fn enter(&mut self, tenant: &str) -> Result<Arc<str>, Full> {
        if self.places >= self.capacity.slots + self.capacity.queue {
            return Err(Full::All);
        }
        let places_max = self.slots_max(tenant) + self.part(tenant, self.capacity.queue);
        if let Some((name, share)) = self.tenants.get_key_value(tenant) {
            let name = Arc::clone(name);
            if share.places >= places_max {
                return Err(Full::Tenant);
            }
            self.share(&name).places += 1;
            self.places += 1;
            return Ok(name);
        }
        let name: Arc<str> = tenant.into();
        self.tenants.insert(Arc::clone(&name), Share { running: 0, places: 1, waiting: VecDeque::new() });
        self.places += 1;
        Ok(name)
    }

    /// Gives a place back.
    pub fn leave(&mut self, tenant: &Arc<str>) {
        self.places -= 1;
        let share = self.share(tenant);
        share.places -= 1;
        if share.places == 0 {
            self.tenants.remove(tenant);
            self.order.retain(|waiting| waiting != tenant);
        }
    }

    /// Waits for a slot; the number names the waiter.
    pub fn wait(&mut self, tenant: &Arc<str>, wake: oneshot::Sender<S>) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        let share = self.share(tenant);
        share.waiting.push_back(Waiter { number, wake });
        if share.waiting.len() == 1 {
            self.order.push_back(Arc::clone(tenant));
        }
        number
    }

    /// Takes a waiter out, if it is still in.
    pub fn give_up(&mut self, tenant: &Arc<str>, number: u64) {
        let share = self.share(tenant);
        share.waiting.retain(|waiter| waiter.number != number);
        if share.waiting.is_empty() {
            self.order.retain(|waiting| waiting != tenant);
        }
    }

    /// Takes the next one to run out of the queue and counts its slot, if there is a free one.
    pub fn next(&mut self) -> Option<(Arc<str>, oneshot::Sender<S>)> {
        if self.running >= self.capacity.slots {
            return None;
        }
        for _ in 0..self.order.len() {
            let tenant = self.order.pop_front()?;
            let slots_max = self.slots_max(&tenant);
            let share = self.share(&tenant);
            let waiter = if share.running < slots_max { share.waiting.pop_front() } else { None };
            share.running += usize::from(waiter.is_some());
            if !share.waiting.is_empty() {
                self.order.push_back(Arc::clone(&tenant));
            }
            if let Some(waiter) = waiter {
                self.running += 1;
                return Some((tenant, waiter.wake));
            }
        }
        None
    }

    /// Gives a slot back.
    pub fn release(&mut self, tenant: &Arc<str>) {
        self.running -= 1;
        self.share(tenant).running -= 1;
    }

    fn share(&mut self, tenant: &Arc<str>) -> &mut Share<S> {
        self.tenants.get_mut(tenant).expect("a tenant stays as long as one of its calls has a place")
    }

    fn slots_max(&self, tenant: &str) -> usize {
        self.part(tenant, self.capacity.slots).max(1)
    }

    /// A named tenant's part; whoever has no name is not held to one.
    fn part(&self, tenant: &str, whole: usize) -> usize {
        if tenant.is_empty() { whole } else { whole * usize::from(self.capacity.tenant_percent) / 100 }
    }
}
