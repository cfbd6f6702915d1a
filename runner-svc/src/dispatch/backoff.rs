//! How long to wait before trying again: doubling, bounded, spread by the effect's own key.

use std::time::Duration;

use content_digest::Digest;

/// First wait.
const FIRST: Duration = Duration::from_millis(50);
/// Longest wait.
const LONGEST: Duration = Duration::from_secs(2);
/// Shortest wait, whatever a service asks for: a loop without any wait would be a flood.
const SHORTEST: Duration = Duration::from_millis(10);

/// The waits of one effect. The same effect waits the same on every machine; two effects wait differently.
pub(super) struct Backoff {
    seed: Digest,
    tries: u32,
}

impl Backoff {
    /// Begins with the first wait.
    pub(super) fn of(seed: Digest) -> Self {
        Self { seed, tries: 0 }
    }

    /// The next wait: between half and all of twice the last one.
    pub(super) fn next(&mut self) -> Duration {
        let whole = FIRST.saturating_mul(2_u32.saturating_pow(self.tries)).min(LONGEST);
        self.spread(whole / 2, whole / 2)
    }

    /// The next wait when a service named one: at least that, at most half as much again.
    pub(super) fn next_after(&mut self, asked: Duration) -> Duration {
        let asked = asked.clamp(SHORTEST, LONGEST);
        self.spread(asked, asked / 2)
    }

    fn spread(&mut self, least: Duration, range: Duration) -> Duration {
        self.tries = self.tries.saturating_add(1);
        let mut hasher = content_digest::Hasher::new();
        hasher.update(self.seed.as_bytes());
        hasher.update(self.tries.to_be_bytes());
        let share = hasher.finish().as_bytes()[0];
        least + range * u32::from(share) / u32::from(u8::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_their_bound() {
        let mut backoff = Backoff::of(Digest::ZERO);
        let waits: Vec<_> = (0..20).map(|_| backoff.next()).collect();
        assert!(waits[0] >= FIRST / 2 && waits[0] <= FIRST, "{waits:?}");
        assert!(waits.iter().all(|wait| *wait <= LONGEST));
        assert!(waits[19] >= LONGEST / 2);
    }

    #[test]
    fn a_named_wait_is_kept_but_within_bounds() {
        let mut backoff = Backoff::of(Digest::ZERO);
        let asked = Duration::from_millis(200);
        assert!(backoff.next_after(asked) >= asked);
        assert!(backoff.next_after(Duration::ZERO) >= SHORTEST);
        assert!(backoff.next_after(Duration::from_secs(3600)) <= LONGEST * 3 / 2);
    }

    #[test]
    fn two_effects_do_not_wait_in_step() {
        let waits = |seed: &str| {
            let mut backoff = Backoff::of(Digest::of(seed));
            (0..4).map(|_| backoff.next()).collect::<Vec<_>>()
        };
        assert_ne!(waits("one"), waits("other"));
    }
}
