//! The one path of every call, whichever door it comes through: token, size, shape, URL, decision, budget, address, sending.

mod trail;

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use content_digest::Digest;
use http::HeaderMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    audit::{Audit, Door, Record},
    credential::{Secret, Vault},
    decide::{self, Allowed, Ask},
    destination,
    headers::{self, RequestHeaders},
    origin::{Host, Origin, Pattern, Reach, reach},
    policy::Policy,
    refusal::{Refusal, Why},
    resolve::{ADDRESSES_MAX, Resolver},
    send::{self, Answer, Clients, Outbound},
    target::Target,
    token::{Permit, Tokens},
};
use trail::Trail;

/// Bytes of one unit of the budget for bodies in flight.
const BODY_UNIT: u64 = 1024;

/// Header names and values.
pub type Lines = Vec<(String, String)>;

/// Bounds for all calls together.
#[derive(Debug, Clone, Copy)]
pub struct CallBounds {
    /// Longest call, whatever its token's deadline.
    pub call_max: Duration,
    /// Calls in flight.
    pub calls_in_flight: usize,
    /// Bytes of bodies that calls in flight may hold.
    pub body_bytes_in_flight: u64,
}

impl Default for CallBounds {
    fn default() -> Self {
        Self { call_max: Duration::from_secs(60), calls_in_flight: 512, body_bytes_in_flight: 256 * 1024 * 1024 }
    }
}

/// What a broker is made of.
pub struct Parts {
    /// What the operator allows.
    pub policy: Policy,
    /// The credentials' values.
    pub vault: Vault,
    /// The tokens.
    pub tokens: Tokens,
    /// Looks names up.
    pub resolver: Box<dyn Resolver>,
    /// Sends.
    pub clients: Clients,
    /// Bounds.
    pub bounds: CallBounds,
}

/// Decides, sends and records.
pub struct Broker {
    /// What the operator allows.
    pub policy: Policy,
    /// Its digest.
    pub policy_digest: Digest,
    /// The tokens.
    pub tokens: Tokens,
    /// The records.
    pub audit: Audit,
    vault: Vault,
    resolver: Box<dyn Resolver>,
    clients: Clients,
    bounds: CallBounds,
    calls: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
}

/// A token that was accepted, for one call.
pub struct Pass {
    /// What it stands for.
    pub permit: Arc<Permit>,
    door: Door,
}

/// One call, as its caller words it. Nothing here is trusted.
#[derive(Default)]
pub struct Request {
    /// URL.
    pub url: String,
    /// Method; empty is GET.
    pub method: String,
    /// Name of the credential.
    pub credential: Option<String>,
    /// Headers.
    pub headers: Lines,
    /// Body.
    pub body: Bytes,
    /// Type of the body; empty where it was left out.
    pub content_type: String,
    /// Names of response headers to hand back.
    pub response_headers: Vec<String>,
    /// Number of the call; absent where the caller does not count.
    pub ordinal: Option<u32>,
    /// Ceiling for the answer, under the token's.
    pub max_response_bytes: Option<u64>,
}

/// The upstream answered.
pub struct Done {
    /// Its status.
    pub status: u16,
    /// Its body, scrubbed.
    pub body: Vec<u8>,
    /// The headers that were asked for, scrubbed.
    pub headers: Lines,
    /// The record.
    pub record: Arc<Record>,
    /// Room in the budget of bodies, held until the answer is handed on.
    _room: OwnedSemaphorePermit,
}

/// No answer.
#[derive(Debug)]
pub struct Denied {
    /// Why.
    pub refusal: Refusal,
    /// The record.
    pub record: Arc<Record>,
}

impl Broker {
    /// Puts the parts together.
    pub fn new(parts: Parts) -> Self {
        let units = usize::try_from(parts.bounds.body_bytes_in_flight / BODY_UNIT).unwrap_or(Semaphore::MAX_PERMITS);
        Self {
            policy_digest: parts.policy.digest(),
            policy: parts.policy,
            tokens: parts.tokens,
            audit: Audit::default(),
            vault: parts.vault,
            resolver: parts.resolver,
            clients: parts.clients,
            bounds: parts.bounds,
            calls: Arc::new(Semaphore::new(parts.bounds.calls_in_flight)),
            bodies: Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS))),
        }
    }

    /// The first question of every door: the token.
    pub fn admit(&self, token: &str, door: Door) -> Result<Pass, Denied> {
        match self.tokens.verify(token) {
            Ok(permit) => Ok(Pass { permit, door }),
            Err(refusal) => Err(self.turn_away(refusal, door)),
        }
    }

    /// Records a refusal that a door made before it had a token to look at.
    pub fn turn_away(&self, refusal: Refusal, door: Door) -> Denied {
        Trail::new(self, None, door).deny(refusal)
    }

    /// Records a refusal that a door made of a call with a good token: its size or its shape.
    pub fn reject(&self, pass: Pass, refusal: Refusal) -> Denied {
        Trail::new(self, Some(Arc::clone(&pass.permit.binding)), pass.door).deny(refusal)
    }

    /// Makes one call.
    pub async fn call(&self, pass: Pass, request: Request) -> Result<Done, Denied> {
        let permit = pass.permit;
        let mut trail = Trail::new(self, Some(Arc::clone(&permit.binding)), pass.door);
        trail.asked(&request, request.ordinal.unwrap_or_else(|| permit.next_ordinal()));
        let asked = match self.check(&permit, &request, &mut trail) {
            Ok(asked) => asked,
            Err(refusal) => return Err(trail.deny(refusal)),
        };
        let left = permit.deadline.duration_since(self.tokens.now()).unwrap_or_default();
        let made = tokio::select! {
            made = tokio::time::timeout(left.min(self.bounds.call_max), self.make(&permit, request.body, &asked)) => {
                made.unwrap_or_else(|_| Err(late()))
            }
            () = permit.ended.cancelled() => Err(self.ended(&permit)),
        };
        let (answer, room) = match made {
            Ok(made) => made,
            Err(refusal) => return Err(trail.deny(refusal)),
        };
        let status = answer.status;
        match clean(answer, &asked) {
            Ok((body, headers)) => {
                let record = trail.done(status, &body);
                Ok(Done { status, body, headers, record, _room: room })
            }
            Err(refusal) => Err(trail.deny(refusal)),
        }
    }

    /// Everything that is decided without leaving the process. Costs no budget.
    fn check<'p>(&'p self, permit: &Permit, request: &Request, trail: &mut Trail<'_>) -> Result<Asked<'p>, Refusal> {
        let max = permit.ceilings.max_request_bytes;
        if request.body.len() as u64 > max {
            let text = format!("the request body is over {max} bytes: send less, or ask for a higher request ceiling");
            return Err(Refusal::new(Why::RequestTooLarge, text));
        }
        let given = RequestHeaders::check(&request.headers, &request.content_type)?;
        let returned = headers::check_returned(&request.response_headers)?;
        let target = Target::parse(&request.url)?;
        trail.aimed(&target);
        let method = if request.method.is_empty() { "GET" } else { &request.method };
        let credential = request.credential.as_deref();
        let names = given.names();
        let ask = Ask { target: &target, method, credential, headers: &names };
        let allowed = decide::decide(&self.policy, permit.right(), ask)?;
        let secret = allowed.credential.map(|credential| self.vault.get(credential)).transpose()?;
        let answer_bytes_max = permit.ceilings.max_response_bytes.min(request.max_response_bytes.unwrap_or(u64::MAX));
        let known = self.known_at(target.origin());
        Ok(Asked { target, allowed, secret, known, given, returned, answer_bytes_max })
    }

    /// The secrets that this upstream may have been shown, by this call or any other: it may echo each of them.
    fn known_at(&self, origin: &Origin) -> Vec<Arc<Secret>> {
        let shown = |hosts: &Vec<Pattern>| reach(hosts, origin) == Reach::Here;
        let credentials = self.policy.credentials.values();
        let credentials = credentials.filter(|credential| credential.hosts.as_ref().is_none_or(shown));
        credentials.filter_map(|credential| self.vault.get(credential).ok()).collect()
    }

    /// Budget, address, sending.
    async fn make(
        &self,
        permit: &Permit,
        body: Bytes,
        asked: &Asked<'_>,
    ) -> Result<(Answer, OwnedSemaphorePermit), Refusal> {
        let spend = permit.spend()?;
        let busy = |what| Refusal::new(Why::Busy, format!("the broker has too many {what} in flight: try again"));
        let _call = self.calls.try_acquire().map_err(|_| busy("calls"))?;
        let units = (body.len() as u64 + asked.answer_bytes_max) / BODY_UNIT + 1;
        let units = u32::try_from(units).map_err(|_| busy("bytes"))?;
        let room = Arc::clone(&self.bodies).try_acquire_many_owned(units).map_err(|_| busy("bytes"))?;
        let addresses = self.addresses(asked).await?;
        spend.keep();
        let mut headers = send::headers(asked.given.lines.clone(), asked.given.content_type.clone(), &body);
        if let Some(secret) = &asked.secret {
            let (name, value) = secret.header();
            headers.insert(name, value);
        }
        let outbound = Outbound {
            target: &asked.target,
            addresses: &addresses,
            credential: asked.allowed.credential.map(|credential| credential.name.as_str()),
            method: asked.allowed.method,
            headers,
            body,
            answer_bytes_max: asked.answer_bytes_max,
        };
        Ok((send::send(&self.clients, outbound).await?, room))
    }

    /// Looks the host up once and checks every address.
    async fn addresses(&self, asked: &Asked<'_>) -> Result<Vec<IpAddr>, Refusal> {
        let host = &asked.target.origin().host;
        let allow_private = &self.policy.egress.allow_private;
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
        destination::check_addresses(host, &addresses, allow_private)?;
        let listed = addresses.iter().all(|address| destination::listed(*address, allow_private));
        if asked.allowed.listed_addresses_only && !listed {
            let text =
                format!("a credential goes to {host} in plain text only inside [policy] allow_private: call https://");
            return Err(Refusal::new(Why::SchemeNotAllowed, text));
        }
        Ok(addresses)
    }

    fn ended(&self, permit: &Permit) -> Refusal {
        if permit.deadline <= self.tokens.now() {
            return late();
        }
        Refusal::new(Why::TokenRevoked, "the egress token was revoked while the call was in flight")
    }

    /// When a call begins.
    fn now(&self) -> SystemTime {
        self.tokens.now()
    }
}

/// A call that may be made.
struct Asked<'p> {
    target: Target,
    allowed: Allowed<'p>,
    secret: Option<Arc<Secret>>,
    /// Secrets that the upstream may know.
    known: Vec<Arc<Secret>>,
    given: RequestHeaders,
    returned: Vec<http::HeaderName>,
    answer_bytes_max: u64,
}

fn late() -> Refusal {
    Refusal::new(
        Why::DeadlineExceeded,
        "the call took longer than its effect's deadline or the broker's own bound allow",
    )
}

/// Takes the echoes of every secret that the upstream may know out of what is handed back.
fn clean(answer: Answer, asked: &Asked<'_>) -> Result<(Vec<u8>, Lines), Refusal> {
    let secrets = asked.secret.iter().chain(&asked.known);
    let scrub = |bytes: Vec<u8>| secrets.clone().fold(bytes, |bytes, secret| secret.scrub(bytes));
    let body = scrub(answer.body);
    if body.len() as u64 > asked.answer_bytes_max {
        return Err(send::too_large(asked.answer_bytes_max));
    }
    Ok((body, picked(&answer.headers, &asked.returned, scrub)))
}

fn picked(headers: &HeaderMap, returned: &[http::HeaderName], scrub: impl Fn(Vec<u8>) -> Vec<u8>) -> Lines {
    let lines = returned.iter().flat_map(|name| headers.get_all(name).iter().map(move |value| (name, value)));
    // A value that is not text is left out rather than bent.
    lines
        .filter_map(|(name, value)| {
            String::from_utf8(scrub(value.as_bytes().to_vec())).ok().map(|value| (name.as_str().to_owned(), value))
        })
        .collect()
}
