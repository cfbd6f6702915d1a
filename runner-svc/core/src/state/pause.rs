//! A paused run: what is in flight settles, the superstep closes, and no other opens until someone resumes it.

use super::{State, apply::Applied};

/// Who paused the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// Who.
    pub by: String,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
}

impl State {
    pub(super) fn pause_requested(&mut self, by: &str, at_ms: u64) -> Applied {
        if self.pause.is_some() || self.cancel.is_some() {
            return Err("the run is paused or canceled already".to_owned());
        }
        self.pauses = self.pauses.saturating_add(u32::from(!self.is_parent(by)));
        self.pause = Some(Pause { by: by.to_owned(), at_ms });
        Ok(())
    }

    pub(super) fn resumed(&mut self) -> Applied {
        self.pause.take().map(|_| ()).ok_or_else(|| "the run is not paused".to_owned())
    }

    /// How often it was paused by itself, not with its parent.
    pub(crate) fn pauses(&self) -> u32 {
        self.pauses
    }

    /// Whether that is the name by which its parent pauses it.
    pub(crate) fn is_parent(&self, by: &str) -> bool {
        self.manifest.parent.as_ref().is_some_and(|parent| parent.name() == by)
    }

    /// Who paused it, while it is.
    pub fn pause(&self) -> Option<&Pause> {
        self.pause.as_ref()
    }

    /// Whether it is paused and nothing but questions to people is in flight.
    pub(super) fn rests_paused(&self) -> bool {
        self.pause.is_some() && self.cancel.is_none() && !self.is_active()
    }
}
