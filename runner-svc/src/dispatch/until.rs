//! When an effect has to stop: its deadline, or the driver's word.

use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::effect::Ending;

/// The bounds of one effect's time.
#[derive(Clone, Copy)]
pub(super) struct Until<'a> {
    /// The effect's end.
    pub deadline: Instant,
    /// Its length, for texts.
    pub timeout: Duration,
    /// The driver's word.
    pub cancel: &'a CancellationToken,
}

/// Why something was not waited for any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// The driver canceled the effect.
    Canceled,
    /// The effect's time is over.
    Deadline,
}

impl<'a> Until<'a> {
    /// Begins now.
    pub(super) fn after(timeout: Duration, cancel: &'a CancellationToken) -> Self {
        let now = Instant::now();
        // A timeout beyond what the clock can count is no timeout of this century.
        let deadline = now.checked_add(timeout).unwrap_or(now + Duration::from_secs(u64::from(u32::MAX)));
        Self { deadline, timeout, cancel }
    }

    /// Waits for work, unless the effect has to stop first. The work is dropped then.
    pub(super) async fn first<T>(&self, work: impl Future<Output = T>) -> Result<T, Cut> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(Cut::Canceled),
            done = work => Ok(done),
            () = sleep_until(self.deadline) => Err(Cut::Deadline),
        }
    }

    /// Waits for some time.
    pub(super) async fn pause(&self, length: Duration) -> Result<(), Cut> {
        self.first(sleep(length)).await
    }

    /// What is left.
    pub(super) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// The deadline as another machine reads it.
    pub(super) fn wall_clock(&self) -> SystemTime {
        let now = SystemTime::now();
        now.checked_add(self.left()).unwrap_or(now)
    }

    /// How an effect ends that was cut while `doing` something.
    pub(super) fn ending(&self, cut: Cut, doing: &str) -> Ending {
        match cut {
            Cut::Canceled => Ending::Canceled,
            Cut::Deadline => {
                Ending::timeout(format_args!("the timeout of {} passed while {doing}", super::shown_time(self.timeout)))
            }
        }
    }
}
