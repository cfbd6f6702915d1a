//! The broker's audit record of one outbound call, in the runner's own words.

use runner_core::payload::Payload;
use serde::{Deserialize, Serialize};

/// Reasons of calls that did go out, although they came to nothing.
const WENT_OUT: [&str; 6] =
    ["upstream_failed", "encoded_body", "response_too_large", "deadline_exceeded", "call_cut", "caller_gone"];

/// What went out for an effect, or why it did not. Never a body, a query, a header value or a secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRecord {
    /// When the call began, in milliseconds since 1970.
    pub at_ms: i64,
    /// Name of the credential that was attached or asked for; empty for none.
    pub credential: String,
    /// Method.
    pub method: String,
    /// Scheme.
    pub scheme: String,
    /// Host and, if not the scheme's own, port.
    pub host: String,
    /// Path without query.
    pub path: String,
    /// Upstream's status; 0 when nothing was sent or nothing came back.
    pub status: u32,
    /// Bytes of the request body.
    pub request_bytes: u64,
    /// Bytes of the answer's body.
    pub response_bytes: u64,
    /// SHA-256 of the request body, hex; empty when refused before the body was read.
    pub request_digest: String,
    /// SHA-256 of the body handed back, hex; empty when there is none.
    pub response_digest: String,
    /// Why it was refused or failed; empty when the upstream answered.
    pub reason: String,
    /// Digest of the policy that decided.
    pub policy_digest: String,
    /// From the decision to the last byte, in milliseconds.
    pub duration_ms: u64,
    /// The door it came through: `grpc` or `http`.
    pub door: String,
    /// Origins that redirects led to, or wanted to lead to and were refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redirects: Vec<String>,
    /// Whether a request of the call was sent, or began to be, even if the call then came to nothing.
    #[serde(default)]
    pub went_out: bool,
}

impl CallRecord {
    /// Whether nothing went out: the broker said no, or never got as far as sending.
    pub(super) fn is_refusal(&self) -> bool {
        self.status == 0 && !self.went_out && !self.reason.is_empty() && !WENT_OUT.contains(&self.reason.as_str())
    }

    /// As journals carry it: one JSON text.
    pub(super) fn to_payload(&self) -> Payload {
        Payload::new(serde_json::to_string(self).expect("a record has texts and numbers only"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_was_sent_is_no_refusal_however_it_ended() {
        let of = |reason: &str, went_out| CallRecord { reason: reason.to_owned(), went_out, ..CallRecord::default() };
        for reason in WENT_OUT {
            assert!(!of(reason, false).is_refusal(), "{reason}");
        }
        assert!(!of("call_cut", true).is_refusal() && !of("host_not_allowed", true).is_refusal());
        assert!(of("token_revoked", false).is_refusal() && of("host_not_allowed", false).is_refusal());
    }
}
