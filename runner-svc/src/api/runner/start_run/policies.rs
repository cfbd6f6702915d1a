//! Node policies of a run: timeouts and delays between attempts, each within its bounds.

use std::collections::BTreeMap;

use proto::{fault::Fault, runner::v1 as pb};
use runner_core::{manifest::NodePolicy, retry::Backoff};

use super::options::{invalid, length_ms};
use crate::api::runner::shown;

/// Largest growth of a delay from one failure to the next.
const FACTOR_MAX: f64 = 1000.0;
/// Longest delay where a policy names none, in milliseconds: one hour.
const DELAY_DEFAULT_MAX_MS: u64 = 3_600_000;

/// Reads the policies, at most one per node.
pub fn read(policies: Vec<pb::NodePolicy>) -> Result<BTreeMap<String, NodePolicy>, Fault> {
    let mut read = BTreeMap::new();
    for policy in policies {
        let timeout_ms = length_ms("options.node_policies.timeout", policy.timeout.as_ref())?;
        let backoff = policy.backoff.as_ref().map(backoff).transpose()?;
        if read.insert(policy.node.clone(), NodePolicy { timeout_ms, backoff }).is_some() {
            let problem = format!("names node {} twice", shown(&policy.node));
            return Err(invalid("options.node_policies", &problem));
        }
    }
    Ok(read)
}

fn backoff(wire: &pb::Backoff) -> Result<Backoff, Fault> {
    let initial = "options.node_policies.backoff.initial";
    let initial_ms = length_ms(initial, wire.initial.as_ref())?
        .ok_or_else(|| invalid(initial, "is missing: give the first delay"))?;
    let max_ms = length_ms("options.node_policies.backoff.max", wire.max.as_ref())?;
    let max_ms = max_ms.unwrap_or(DELAY_DEFAULT_MAX_MS.max(initial_ms));
    if max_ms < initial_ms {
        let problem = format!("is {max_ms} ms, less than the first delay of {initial_ms} ms");
        return Err(invalid("options.node_policies.backoff.max", &problem));
    }
    // Absent is 0 on the wire.
    let factor = if wire.factor == 0.0 { 1.0 } else { wire.factor };
    let factor_milli = milli("options.node_policies.backoff.factor", factor, 1.0..=FACTOR_MAX)?;
    let jitter_milli = milli("options.node_policies.backoff.jitter", wire.jitter, 0.0..=1.0)?;
    Ok(Backoff { initial_ms, factor_milli, max_ms, jitter_milli })
}

/// A number in thousandths: whole numbers replay the same everywhere.
fn milli(field: &str, number: f64, range: std::ops::RangeInclusive<f64>) -> Result<u32, Fault> {
    if !range.contains(&number) {
        let problem = format!("is {number}: give {} to {}", range.start(), range.end());
        return Err(invalid(field, &problem));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is within 0 to 1000")]
    let milli = (number * 1000.0).round() as u32;
    Ok(milli)
}

#[cfg(test)]
mod tests {
    use prost_types::Duration;

    use super::*;

    fn policy(backoff: pb::Backoff) -> Vec<pb::NodePolicy> {
        vec![pb::NodePolicy { node: "work".into(), timeout: None, backoff: Some(backoff) }]
    }

    fn seconds(seconds: i64) -> Option<Duration> {
        Some(Duration { seconds, nanos: 0 })
    }

    #[test]
    fn a_delay_is_read_in_thousandths_and_what_is_absent_has_a_default() {
        let wire = pb::Backoff { initial: seconds(2), factor: 1.5, max: seconds(60), jitter: 0.25 };
        let read = read(policy(wire)).unwrap()["work"].backoff.unwrap();
        assert_eq!(read, Backoff { initial_ms: 2000, factor_milli: 1500, max_ms: 60_000, jitter_milli: 250 });
        let wire = pb::Backoff { initial: seconds(2), ..pb::Backoff::default() };
        let read = super::read(policy(wire)).unwrap()["work"].backoff.unwrap();
        assert_eq!(read, Backoff { initial_ms: 2000, factor_milli: 1000, max_ms: 3_600_000, jitter_milli: 0 });
    }

    #[test]
    fn a_delay_that_makes_no_sense_is_refused_by_field() {
        let good = pb::Backoff { initial: seconds(2), factor: 2.0, max: seconds(60), jitter: 0.0 };
        for (backoff, field) in [
            (pb::Backoff { initial: None, ..good }, "backoff.initial"),
            (pb::Backoff { initial: seconds(0), ..good }, "backoff.initial"),
            (pb::Backoff { initial: seconds(-1), ..good }, "backoff.initial"),
            (pb::Backoff { initial: seconds(i64::MAX), ..good }, "backoff.initial"),
            (pb::Backoff { max: seconds(1), ..good }, "backoff.max"),
            (pb::Backoff { factor: 0.9, ..good }, "backoff.factor"),
            (pb::Backoff { factor: f64::NAN, ..good }, "backoff.factor"),
            (pb::Backoff { factor: f64::INFINITY, ..good }, "backoff.factor"),
            (pb::Backoff { jitter: 1.1, ..good }, "backoff.jitter"),
            (pb::Backoff { jitter: -0.1, ..good }, "backoff.jitter"),
        ] {
            let status = read(policy(backoff)).unwrap_err().into_status(proto::fault::Domain::Runner);
            assert_eq!(status.code(), tonic::Code::InvalidArgument);
            assert!(status.message().contains(field), "{}", status.message());
        }
    }

    #[test]
    fn a_timeout_of_nothing_or_of_centuries_is_refused_by_field() {
        for timeout in [seconds(0), seconds(-5), seconds(i64::MAX), Some(Duration { seconds: 1, nanos: -1 })] {
            let wire = pb::NodePolicy { node: "work".into(), timeout, backoff: None };
            let status = read(vec![wire]).unwrap_err().into_status(proto::fault::Domain::Runner);
            assert!(status.message().contains("node_policies.timeout"), "{}", status.message());
        }
    }

    #[test]
    fn a_node_has_one_policy() {
        let once = policy(pb::Backoff { initial: seconds(1), ..pb::Backoff::default() });
        let twice = [once.clone(), once].concat();
        let status = read(twice).unwrap_err().into_status(proto::fault::Domain::Runner);
        assert!(status.message().contains("\"work\" twice"), "{}", status.message());
    }
}
