//! A call that may be made: what was decided without leaving the process.

use std::sync::Arc;

use content_digest::Digest;
use http::HeaderValue;

use super::{Request, trail::Trail};
use crate::{
    artifact::{self, Wanted},
    decide::{self, Ask},
    headers::{self, RequestHeaders},
    in_force::InForce,
    method::Method,
    refusal::{Refusal, Why},
    target::Target,
    token::Permit,
};

/// What is asked for, checked and allowed. The policy that allowed it holds to the call's end.
pub struct Asked {
    pub in_force: Arc<InForce>,
    pub target: Target,
    pub method: Method,
    pub credential: Option<String>,
    pub listed_addresses_only: bool,
    pub given: RequestHeaders,
    pub returned: Vec<http::HeaderName>,
    pub answer_bytes_max: u64,
    /// What of it is an artifact.
    pub wanted: Wanted,
    /// Whether the grant says that the upstream honours an idempotency key.
    pub honours_key: bool,
    /// Number of the call, where its caller counts.
    pub ordinal: Option<u32>,
}

impl Asked {
    /// Checks and decides. Costs no budget.
    pub fn check(
        in_force: Arc<InForce>,
        permit: &Permit,
        request: &Request,
        trail: &mut Trail<'_>,
    ) -> Result<Self, Refusal> {
        trail.under(in_force.digest);
        let max = permit.ceilings.max_request_bytes;
        if request.body.len() as u64 > max {
            let text = format!("the request body is over {max} bytes: send less, or ask for a higher request ceiling");
            return Err(Refusal::new(Why::RequestTooLarge, text));
        }
        let mut given = RequestHeaders::check(&request.headers, &request.content_type)?;
        if request.coming.is_some() {
            given.content_type.get_or_insert(HeaderValue::from_static("application/octet-stream"));
        }
        let returned = headers::check_returned(&request.response_headers)?;
        let target = Target::parse(&request.url)?;
        trail.aimed(&target);
        let method = if request.method.is_empty() { "GET" } else { &request.method };
        let names = given.names();
        let ask = Ask { target: &target, method, credential: request.credential.as_deref(), headers: &names };
        let allowed = decide::decide(&in_force.policy, permit.right(), ask)?;
        let (method, listed_addresses_only) = (allowed.method, allowed.listed_addresses_only);
        let credential = allowed.credential.map(|credential| credential.name.clone());
        let wanted =
            Wanted { body_bytes: request.coming.as_ref().map(|coming| coming.bytes), answer: request.artifact };
        let artifact_bytes_max =
            if wanted.any() { artifact::answer_bytes_max(&in_force.policy, permit.right(), ask, wanted)? } else { 0 };
        let inline_bytes_max = permit.ceilings.max_response_bytes;
        let answer_bytes_max = if wanted.answer { artifact_bytes_max } else { inline_bytes_max };
        let honoured = in_force.policy.grants.get(&permit.binding.tool_name).is_some_and(|grant| grant.idempotency_key);
        Ok(Self {
            honours_key: honoured,
            ordinal: request.ordinal,
            answer_bytes_max: answer_bytes_max.min(request.max_response_bytes.unwrap_or(u64::MAX)),
            wanted,
            in_force,
            target,
            method,
            credential,
            listed_addresses_only,
            given,
            returned,
        })
    }
}

/// The same for the same call of the same effect, however often the effect is sent again; another for every other call.
pub fn idempotency_key(permit: &Permit, ordinal: u32) -> String {
    Digest::of(format!("{}/{ordinal}", permit.idempotency_key)).to_hex()
}
