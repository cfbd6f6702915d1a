//! The time that runs see: the system's clock, whose jumps are taken slowly.
//!
//! Deadlines of asks and ends of delays are points in time. A clock that is set while they are waited for must make them
//! neither early nor late: what passes between two looks is measured by a clock that nobody can set, and a difference to the
//! system's clock is made up for by a twentieth of it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// How much faster or slower than time itself the clock may run, as a fraction: one twentieth.
const SLEW_PARTS: u32 = 20;

/// A clock that never jumps and never goes back.
#[derive(Debug)]
pub struct Clock(Mutex<Reading>);

#[derive(Debug, Clone, Copy)]
struct Reading {
    looked_at: Instant,
    /// Time since 1970.
    shown: Duration,
}

impl Clock {
    /// Begins with the system's clock.
    pub fn start() -> Self {
        Self(Mutex::new(Reading { looked_at: Instant::now(), shown: system() }))
    }

    /// The time, in milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        let mut reading = self.0.lock();
        let now = Instant::now();
        let passed = now.saturating_duration_since(reading.looked_at);
        *reading = Reading { looked_at: now, shown: follow(reading.shown, passed, system()) };
        u64::try_from(reading.shown.as_millis()).unwrap_or(u64::MAX)
    }
}

/// The time after `passed`, a little nearer to what the system's clock says.
fn follow(shown: Duration, passed: Duration, system: Duration) -> Duration {
    let expected = shown.saturating_add(passed);
    let slew = passed / SLEW_PARTS;
    system.clamp(expected.saturating_sub(slew), expected.saturating_add(slew))
}

fn system() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const START: Duration = Duration::from_secs(1_755_000_000);

    /// What the clock shows when it is looked at each second for so long, the system's clock being off by a jump.
    fn shown_after(length: Duration, system: impl Fn(Duration) -> Duration) -> Duration {
        let mut shown = START;
        for second in 1..=length.as_secs() {
            shown = follow(shown, Duration::from_secs(1), system(START + Duration::from_secs(second)));
        }
        shown - START
    }

    #[test]
    fn it_shows_what_the_system_shows_while_that_does_not_jump() {
        assert_eq!(shown_after(HOUR, |now| now), HOUR);
        assert_eq!(shown_after(HOUR, |now| now + Duration::from_millis(300)), HOUR + Duration::from_millis(300));
    }

    #[test]
    fn a_wait_of_ten_minutes_is_off_by_half_a_minute_at_most_whatever_the_jump() {
        let wait = Duration::from_secs(600);
        for shown in [
            shown_after(wait, |now| now - HOUR),
            shown_after(wait, |now| now + HOUR),
            shown_after(wait, |now| now + HOUR * 24 * 365 * 10),
            shown_after(wait, |_| Duration::ZERO),
        ] {
            assert!(shown.abs_diff(wait) <= wait / SLEW_PARTS, "{shown:?}");
        }
    }

    #[test]
    fn it_follows_the_system_in_the_end_and_never_goes_back() {
        assert_eq!(shown_after(HOUR * 21, |now| now + HOUR), HOUR * 22);
        let mut last = START;
        for second in 0..100 {
            let next = follow(last, Duration::from_secs(1), START - HOUR);
            assert!(next > last, "second {second}");
            last = next;
        }
    }

    #[test]
    fn a_clock_that_is_looked_at_often_goes_on() {
        let clock = Clock::start();
        let first = clock.now_ms();
        while clock.now_ms() < first + 2 {}
    }
}
