//! Times on the wire.

use prost_types::{Duration as WireDuration, Timestamp};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Milliseconds since the epoch as a timestamp.
pub fn of_ms(ms: i64) -> Timestamp {
    let nanos = i32::try_from(ms.rem_euclid(1000)).unwrap_or(0) * 1_000_000;
    Timestamp { seconds: ms.div_euclid(1000), nanos }
}

/// The wall clock in milliseconds since the epoch.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A length of time from the wire; negative ones are refused.
pub fn length(wire: &WireDuration) -> Option<Duration> {
    let seconds = u64::try_from(wire.seconds).ok()?;
    let nanos = u32::try_from(wire.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(seconds, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_and_far_ahead_keep_their_milliseconds() {
        assert_eq!(of_ms(1_755_000_000_010), Timestamp { seconds: 1_755_000_000, nanos: 10_000_000 });
        assert_eq!(of_ms(-1), Timestamp { seconds: -1, nanos: 999_000_000 });
        assert!(of_ms(i64::MAX).nanos < 1_000_000_000);
    }

    #[test]
    fn a_negative_length_is_none() {
        assert_eq!(length(&WireDuration { seconds: -1, nanos: 0 }), None);
        assert_eq!(length(&WireDuration { seconds: 1, nanos: 500_000_000 }), Some(Duration::from_millis(1500)));
    }
}
