//! The caller's own deadline, from `grpc-timeout`: a call that it ends is told so. The transport would say that the call was
//! canceled.

use std::{future::Future, time::Duration};

use axum::response::Response;
use http::HeaderMap;

use crate::fault::{Fault, Reason};

use super::restate::domain_of;

/// Header of the deadline.
const HEADER: &str = "grpc-timeout";
/// Most digits of it.
const DIGITS_MAX: usize = 8;
/// The answer goes out before the deadline by this part of it, and by no more than this: it has a way to go, and the
/// transport's own end counts from earlier on.
const AHEAD_PART: u32 = 20;
const AHEAD_MAX: Duration = Duration::from_millis(100);

/// What a caller gives its call; none where it says nothing that reads.
pub(super) fn of(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(HEADER)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > DIGITS_MAX || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

/// The reply, or what is said when the deadline comes first. The work is dropped then.
pub(super) async fn bounded(method: &str, limit: Option<Duration>, reply: impl Future<Output = Response>) -> Response {
    let Some(limit) = limit else { return reply.await };
    match tokio::time::timeout(limit - (limit / AHEAD_PART).min(AHEAD_MAX), reply).await {
        Ok(reply) => reply,
        Err(_elapsed) => {
            let name = method.trim_start_matches('/');
            let text = format!(
                "{name} took longer than the deadline of {limit:?} that its caller gave it: what it began may go on; ask \
                 again, with a longer one"
            );
            Fault::new(Reason::DeadlineExceeded, text).into_status(domain_of(method)).into_http()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_read_in_every_unit_and_nothing_else_is() {
        let read = |text: &str| {
            let name: http::HeaderName = HEADER.parse().unwrap();
            of(&HeaderMap::from_iter([(name, text.parse().unwrap())]))
        };
        assert_eq!(read("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(read("3M"), Some(Duration::from_secs(180)));
        assert_eq!(read("4S"), Some(Duration::from_secs(4)));
        assert_eq!(read("5m"), Some(Duration::from_millis(5)));
        assert_eq!(read("6u"), Some(Duration::from_micros(6)));
        assert_eq!(read("7n"), Some(Duration::from_nanos(7)));
        for odd in ["", "S", "5", "-5S", "123456789S", "5s", "5 S"] {
            assert_eq!(read(odd), None, "{odd:?}");
        }
    }
}
