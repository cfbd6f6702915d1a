//! Room in the budget of bodies: whatever holds bytes of a call takes it before it holds them.

use std::sync::Arc;

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
