//! How many connections each address holds.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use parking_lot::Mutex;

/// Connections by address.
#[derive(Default)]
pub struct Peers(Mutex<BTreeMap<IpAddr, usize>>);

/// One connection of an address; it counts as long as this is held.
pub struct Counted {
    peers: Arc<Peers>,
    address: IpAddr,
}

impl Peers {
    /// Counts one more, unless the address has its most.
    pub fn count(self: &Arc<Self>, address: IpAddr, most: usize) -> Option<Counted> {
        let mut by_address = self.0.lock();
        let held = by_address.entry(address).or_default();
        if *held >= most {
            return None;
        }
        *held += 1;
        Some(Counted { peers: Arc::clone(self), address })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut by_address = self.peers.0.lock();
        if let Some(held) = by_address.get_mut(&self.address) {
            *held -= 1;
            if *held == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_holds_its_most_and_no_more_and_leaves_nothing_behind() {
        let (peers, one, other) = (Arc::new(Peers::default()), [127, 0, 0, 1].into(), [127, 0, 0, 2].into());
        let held = [peers.count(one, 2), peers.count(one, 2)];
        assert!(held.iter().all(Option::is_some) && peers.count(one, 2).is_none());
        assert!(peers.count(other, 2).is_some(), "another's are its own");
        drop(held);
        assert!(peers.0.lock().is_empty());
    }
}
