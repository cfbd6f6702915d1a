//! Whether a failed effect is tried again, and when.

use content_digest::Digest;
use serde::{Deserialize, Serialize};

use crate::{
    key::EffectKind,
    outcome::{Failure, FailureCause},
};

/// Thousandths of a factor or a share.
const MILLI: u128 = 1000;
/// Failures after which a delay grows no more, whatever its factor.
const GROWTHS_MAX: u32 = 1024;

/// Delay between the attempts of a node: `initial × factor^(n−1)`, at most `max`, less a share drawn from the attempt's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backoff {
    /// Delay after the first failure, in milliseconds.
    pub initial_ms: u64,
    /// Growth with each further failure, in thousandths: 2000 doubles. 1000 or more.
    pub factor_milli: u32,
    /// Longest delay, in milliseconds.
    pub max_ms: u64,
    /// Share of the delay that is drawn, in thousandths: 0 to 1000.
    pub jitter_milli: u32,
}

impl Backoff {
    /// Delay after the `failures`-th failure (from 1), in milliseconds. The drawn share comes from `id`, the
    /// `tool_call_id` of the attempt to come, so that every replay draws the same.
    pub fn delay_ms(&self, failures: u32, id: Digest) -> u64 {
        let max = u128::from(self.max_ms) * MILLI;
        let mut delay = (u128::from(self.initial_ms) * MILLI).min(max);
        for _ in 1..failures.min(GROWTHS_MAX) {
            delay = (delay * u128::from(self.factor_milli) / MILLI).min(max);
            if delay == max {
                break;
            }
        }
        let draw = id.as_bytes().iter().take(4).fold(0, |draw, byte| (draw << 8) | u128::from(*byte));
        let drawn = ((delay * u128::from(self.jitter_milli).min(MILLI) / MILLI) * draw) >> 32;
        u64::try_from((delay - drawn) / MILLI).unwrap_or(u64::MAX)
    }
}

/// Whether to try again after the `failures`-th failure of a node in its generation (from 1), given its `retries`.
pub fn allows(failure: &Failure, kind: EffectKind, failures: u32, retries: u32) -> bool {
    !failure.permanent && is_retryable(failure.cause, kind) && failures <= retries
}

fn is_retryable(cause: FailureCause, kind: EffectKind) -> bool {
    match cause {
        FailureCause::Timeout | FailureCause::ExecutorError => true,
        FailureCause::SchemaValidationFailed => kind == EffectKind::Llm,
        FailureCause::UserAborted | FailureCause::Unknown => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOUBLING: Backoff = Backoff { initial_ms: 100, factor_milli: 2000, max_ms: 1000, jitter_milli: 0 };

    #[test]
    fn a_delay_grows_by_its_factor_up_to_its_maximum() {
        let delays: Vec<u64> = (1..=6).map(|failures| DOUBLING.delay_ms(failures, Digest::ZERO)).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1000, 1000]);
        let slow = Backoff { initial_ms: 1, factor_milli: 1500, max_ms: 60_000, ..DOUBLING };
        assert_eq!((1..=5).map(|failures| slow.delay_ms(failures, Digest::ZERO)).collect::<Vec<_>>(), [1, 1, 2, 3, 5]);
    }

    #[test]
    fn the_drawn_share_is_the_same_for_the_same_attempt_and_within_its_bounds() {
        let jittered = Backoff { initial_ms: 1000, jitter_milli: 500, ..DOUBLING };
        let delays: std::collections::BTreeSet<u64> = (0..100)
            .map(|n| {
                let id = Digest::of(format!("attempt {n}"));
                assert_eq!(jittered.delay_ms(1, id), jittered.delay_ms(1, id));
                jittered.delay_ms(1, id)
            })
            .collect();
        assert!(delays.len() > 50, "{delays:?}");
        assert!(delays.iter().all(|delay| (500..=1000).contains(delay)), "{delays:?}");
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let huge = Backoff { initial_ms: u64::MAX, factor_milli: u32::MAX, max_ms: u64::MAX, jitter_milli: u32::MAX };
        assert_eq!(huge.delay_ms(u32::MAX, Digest::ZERO), u64::MAX);
        assert!(huge.delay_ms(u32::MAX, Digest::of("x")) < u64::MAX);
        let none = Backoff { initial_ms: 0, factor_milli: 0, max_ms: 0, jitter_milli: 0 };
        assert_eq!(none.delay_ms(u32::MAX, Digest::of("x")), 0);
    }

    #[test]
    fn timeouts_and_executor_errors_are_retried_as_often_as_the_plan_says() {
        for cause in [FailureCause::Timeout, FailureCause::ExecutorError] {
            let failure = Failure::new(cause, "x");
            assert!(!allows(&failure, EffectKind::Tool, 1, 0));
            assert!(allows(&failure, EffectKind::Tool, 2, 2));
            assert!(!allows(&failure, EffectKind::Tool, 3, 2));
            assert!(!allows(&Failure::permanent(cause, "x"), EffectKind::Tool, 1, 2));
        }
    }

    #[test]
    fn a_wrong_schema_is_retried_for_models_only_and_people_and_unknowns_never() {
        let wrong = Failure::new(FailureCause::SchemaValidationFailed, "x");
        assert!(allows(&wrong, EffectKind::Llm, 1, 1));
        assert!(!allows(&wrong, EffectKind::Tool, 1, 1));
        for cause in [FailureCause::UserAborted, FailureCause::Unknown] {
            assert!(!allows(&Failure::new(cause, "x"), EffectKind::Llm, 1, 9));
        }
    }
}
