//! Room in the budget of bodies: whatever holds bytes of a call takes it before it holds them.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use super::Broker;
use crate::refusal::{Refusal, Why};

/// Bytes of one unit of the budget.
pub(super) const UNIT_BYTES: u64 = 1024;

/// Room that was taken; it is free again once this is dropped.
#[derive(Debug, Default)]
pub struct Room(Option<OwnedSemaphorePermit>);

impl Room {
    fn units(&self) -> usize {
        self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// So much of it, for what is held apart from the rest; all of it where there is no more.
    pub fn share(&mut self, bytes: usize) -> Self {
        let wanted = bytes / UNIT_BYTES as usize + 1;
        match &mut self.0 {
            Some(held) if held.num_permits() > wanted => Self(held.split(wanted)),
            held => Self(held.take()),
        }
    }

    /// Bytes that keep the room until the last of them is dropped.
    pub fn around(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(Held { bytes, _room: self })
    }
}

struct Held<B> {
    bytes: B,
    _room: Room,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Held<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

impl Broker {
    /// Takes as much more as `room` lacks for so many bytes; refuses when all calls together hold as much as they may.
    pub fn make_room(&self, room: &mut Room, bytes: u64) -> Result<(), Refusal> {
        let busy = || Refusal::new(Why::Busy, "the broker has too many bytes in flight: try again");
        let needed = usize::try_from(bytes / UNIT_BYTES + 1).map_err(|_| busy())?;
        let more = u32::try_from(needed.saturating_sub(room.units())).map_err(|_| busy())?;
        if more == 0 {
            return Ok(());
        }
        let more = Arc::clone(&self.bodies).try_acquire_many_owned(more).map_err(|_| busy())?;
        match &mut room.0 {
            Some(held) => held.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }

    /// Bytes that are not taken.
    pub fn free_bytes(&self) -> u64 {
        self.bodies.available_permits() as u64 * UNIT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn shares_are_given_back_one_by_one_and_are_never_more_than_there_is() {
        let budget = Arc::new(Semaphore::new(10));
        let mut room = Room(Some(Arc::clone(&budget).acquire_many_owned(10).await.unwrap()));
        let bytes = room.share(2 * UNIT_BYTES as usize).around(vec![7; 2048]);
        let second = room.share(100 * UNIT_BYTES as usize);
        assert_eq!((room.units(), room.share(1).units(), second.units()), (0, 0, 7));
        drop(second);
        assert_eq!(budget.available_permits(), 7);
        let part = bytes.slice(1000..1001);
        drop(bytes);
        assert_eq!((budget.available_permits(), part[0]), (7, 7));
        drop(part);
        assert_eq!(budget.available_permits(), 10);
    }
}
