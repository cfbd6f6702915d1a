//! The way out, for tools' calls and for the broker's own: one lookup, every address checked, connections to checked ones alone.

use std::{net::IpAddr, time::Duration};

use http::HeaderMap;
use zeroize::Zeroizing;

use super::{Answer, Clients, Outbound, Outgoing, send};
use crate::{
    credential::Secret,
    decide::{self, Ask, Right},
    destination,
    method::Method,
    origin::Host,
    policy::{Egress, Grant, Policy},
    refusal::{Refusal, Why},
    resolve::{ADDRESSES_MAX, Resolver},
    target::Target,
};

/// Most bytes of an answer to one of the broker's own calls.
const OWN_ANSWER_BYTES_MAX: u64 = 64 * 1024;
/// Longest of the broker's own calls.
const OWN_CALL_MAX: Duration = Duration::from_secs(10);
/// What keeps connections of the broker's own calls apart from those of tools.
const OWN: &str = "\0own";

/// Looks up, checks and sends.
pub struct Courier {
    resolver: Box<dyn Resolver>,
    clients: Clients,
}

/// A call that the configuration itself makes necessary: for a token, for a secret.
pub struct Own<'a> {
    /// Where to; the configuration names it.
    pub target: &'a Target,
    /// Method.
    pub method: Method,
    /// Headers.
    pub headers: HeaderMap,
    /// Body; it may hold secrets.
    pub body: Zeroizing<Vec<u8>>,
    /// Every secret in headers and body, in the forms in which it is sent: what is said of a failure holds none of them.
    pub shown: &'a [Secret],
}

impl Courier {
    /// Puts the parts together.
    pub fn new(resolver: Box<dyn Resolver>, clients: Clients) -> Self {
        Self { resolver, clients }
    }

    /// Looks the host up once and checks every address. `listed_only`: each has to be in `allow_private`.
    pub async fn vet(&self, egress: &Egress, target: &Target, listed_only: bool) -> Result<Vec<IpAddr>, Refusal> {
        let host = &target.origin().host;
        let addresses = match host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => self.resolver.resolve(name).await.unwrap_or_else(|cause| {
                tracing::debug!(%host, %cause, "lookup failed");
                Vec::new()
            }),
        };
        if addresses.is_empty() || addresses.len() > ADDRESSES_MAX {
            return Err(Refusal::new(Why::ResolveFailed, format!("{host} has no address, or too many")));
        }
        destination::check_addresses(host, &addresses, &egress.allow_private)?;
        let listed = addresses.iter().all(|address| destination::listed(*address, &egress.allow_private));
        if listed_only && !listed {
            let text =
                format!("a credential goes to {host} in plain text only inside [policy] allow_private: call https://");
            return Err(Refusal::new(Why::SchemeNotAllowed, text));
        }
        Ok(addresses)
    }

    /// Sends to vetted addresses. The caller bounds the time.
    pub async fn send(&self, outbound: Outbound<'_>) -> Result<Answer, Refusal> {
        send(&self.clients, outbound).await
    }

    /// Makes a call of the broker's own: decided and vetted like any other, redirects handed back.
    pub async fn own(&self, policy: &Policy, own: Own<'_>) -> Result<Answer, Refusal> {
        let grant = Grant::for_itself(own.target, own.method);
        let right = Right { tool: "", definition: "", principal: "", declaration: None, own: Some(&grant) };
        let ask = Ask { target: own.target, method: own.method.as_str(), credential: None, headers: &[] };
        let allowed = decide::decide(policy, right, ask)?;
        let made = async {
            let plain = own.target.origin().scheme == crate::origin::Scheme::Http;
            let addresses = self.vet(&policy.egress, own.target, plain).await?;
            let mut headers = own.headers;
            headers.insert(http::header::ACCEPT_ENCODING, http::HeaderValue::from_static("identity"));
            headers.insert(http::header::USER_AGENT, super::user_agent());
            let request = Outgoing {
                method: allowed.method,
                url: own.target.url().clone(),
                headers,
                body: bytes::Bytes::copy_from_slice(&own.body),
            };
            self.send(Outbound {
                target: own.target,
                addresses: &addresses,
                credential: Some(OWN),
                request,
                answer_bytes_max: OWN_ANSWER_BYTES_MAX,
                scrub: &|text| own.shown.iter().fold(text, |text, secret| secret.scrub_text(text)),
            })
            .await
        };
        let late = |_| Err(Refusal::new(Why::DeadlineExceeded, "it did not answer in time"));
        tokio::time::timeout(OWN_CALL_MAX, made).await.unwrap_or_else(late)
    }
}
