//! A rate that is given back: a call that is counted and then refused costs nothing of it.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// So many calls in a time, as many of them at once; room for one more grows steadily.
pub struct Pace {
    /// Time in which room for one call grows.
    step: Duration,
    /// How far ahead of its time a call may be.
    ahead_max: Duration,
    /// When the next call would be in time.
    due: Mutex<Instant>,
}

/// One call of a rate.
pub struct Counted<'a> {
    pace: &'a Pace,
    kept: bool,
}

impl Pace {
    /// `calls`, at least one, in each `per`.
    pub fn new(calls: u32, per: Duration) -> Self {
        let step = per / calls.max(1);
        Self { step, ahead_max: step * (calls.max(1) - 1), due: Mutex::new(Instant::now()) }
    }

    /// Counts a call, which goes back unless it is kept; or says after which time one can be made.
    pub fn count(&self, now: Instant) -> Result<Counted<'_>, Duration> {
        let mut due = self.due.lock();
        let from = (*due).max(now);
        match (from - now).checked_sub(self.ahead_max) {
            None | Some(Duration::ZERO) => {
                *due = from + self.step;
                Ok(Counted { pace: self, kept: false })
            }
            Some(wait) => Err(wait),
        }
    }
}

impl Counted<'_> {
    /// The call is being made.
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if !self.kept {
            *self.pace.due.lock() -= self.pace.step;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_at_once_then_one_after_the_other_and_what_is_given_back_can_be_taken_again() {
        let pace = Pace::new(3, Duration::from_secs(3));
        let begun = *pace.due.lock();
        let at = |millis| begun + Duration::from_millis(millis);
        for _ in 0..3 {
            pace.count(at(0)).ok().unwrap().keep();
        }
        assert_eq!(pace.count(at(0)).err(), Some(Duration::from_secs(1)));
        assert_eq!(pace.count(at(999)).err(), Some(Duration::from_millis(1)));
        for _ in 0..5 {
            drop(pace.count(at(1000)).ok().unwrap());
        }
        pace.count(at(1000)).ok().unwrap().keep();
        assert_eq!(pace.count(at(1000)).err(), Some(Duration::from_secs(1)));
        // Room grows to the whole and no further.
        for _ in 0..3 {
            pace.count(at(60_000)).ok().unwrap().keep();
        }
        assert!(pace.count(at(60_000)).is_err());
    }
}
