//! A child's process group: killed as a whole, once, at the latest when it goes out of sight.

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;

/// The group that a child leads.
pub(super) struct Group(Option<Pid>);

impl Group {
    /// The group of a child that was started as a leader.
    pub(super) fn led_by(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(Pid::from_raw))
    }

    /// Kills whatever is left of the group. The leader has not been reaped yet, or has been just now: its number cannot
    /// have come round to another group in between.
    pub(super) fn kill(&mut self) {
        if let Some(leader) = self.0.take() {
            let _nobody_left = kill_process_group(leader, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
