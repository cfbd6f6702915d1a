//! The one path of every call, whichever door it comes through: token, size, shape, URL, decision, budget, address, sending.

mod asked;
mod coming;
mod journey;
mod room;
mod trail;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use content_digest::Digest;
use http::HeaderMap;
use tokio::sync::Semaphore;

use crate::{
    audit::{Audit, Door, Record},
    in_force::InForce,
    refusal::{Refusal, Why},
    send::{self, Courier},
    token::{Claimed, Permit, Shower, Tokens},
    watchers::Watchers,
};
use asked::Asked;
pub use coming::{Coming, Pieces};
use journey::{Arrival, Cost, Journey};
pub use room::Room;
use trail::Trail;

/// An answer of the HTTP door is held as it came and as the document that is written, which escapes make longer.
const HTTP_ANSWER_COPIES: u64 = 3;
/// A body of more bytes is looked through beside the calls.
const LARGE_BODY_BYTES: usize = 256 * 1024;

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
    /// What the operator allows, and the credentials' values.
    pub in_force: InForce,
    /// The tokens.
    pub tokens: Tokens,
    /// Looks names up and sends.
    pub courier: Courier,
    /// Bounds.
    pub bounds: CallBounds,
}

/// Decides, sends and records.
pub struct Broker {
    /// The tokens.
    pub tokens: Tokens,
    /// The records.
    pub audit: Audit,
    /// The streams that take records.
    pub watchers: Arc<Watchers>,
    in_force: ArcSwap<InForce>,
    courier: Arc<Courier>,
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
    /// The body, where it is an artifact that is still on its way.
    pub coming: Option<Coming>,
    /// Whether the answer is an artifact: then it has a ceiling of its own.
    pub artifact: bool,
    /// Room that its bytes have taken already.
    pub room: Room,
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
    room: Room,
}

impl Done {
    /// The room, for an answer that is held in another shape.
    pub fn into_room(self) -> Room {
        self.room
    }
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
        let units =
            usize::try_from(parts.bounds.body_bytes_in_flight / room::UNIT_BYTES).unwrap_or(Semaphore::MAX_PERMITS);
        Self {
            tokens: parts.tokens,
            audit: Audit::default(),
            watchers: Arc::default(),
            in_force: ArcSwap::from_pointee(parts.in_force),
            courier: Arc::new(parts.courier),
            bounds: parts.bounds,
            calls: Arc::new(Semaphore::new(parts.bounds.calls_in_flight)),
            bodies: Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS))),
        }
    }

    /// Longest call, whatever its token's deadline.
    pub fn call_max(&self) -> Duration {
        self.bounds.call_max
    }

    /// What holds for calls that begin now.
    pub fn in_force(&self) -> Arc<InForce> {
        self.in_force.load_full()
    }

    /// Puts another policy in the place of the one in force. Calls under way end under theirs.
    pub fn put_in_force(&self, in_force: InForce) {
        self.in_force.store(Arc::new(in_force));
    }

    /// The first question of every door: the token.
    pub fn admit(&self, token: &str, door: Door) -> Result<Pass, Denied> {
        match self.tokens.verify(token) {
            Ok(permit) => Ok(Pass { permit, door }),
            Err(refusal) => Err(self.turn_away(refusal, door)),
        }
    }

    /// The second question: whether the one who shows it is the one it was minted for.
    pub fn bind(&self, pass: Pass, shower: &Shower) -> Result<Pass, Denied> {
        let permit = &pass.permit;
        match permit.spender.check(&permit.binding, &permit.bound, shower) {
            Ok(()) => Ok(pass),
            Err(refusal) => Err(self.reject(pass, refusal)),
        }
    }

    /// The same question of a call that the runner makes for a module.
    pub fn bind_relayed(&self, pass: Pass, claimed: Option<&Claimed>) -> Result<Pass, Denied> {
        let permit = &pass.permit;
        match permit.spender.check_relayed(&permit.binding, claimed) {
            Ok(()) => Ok(pass),
            Err(refusal) => Err(self.reject(pass, refusal)),
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

    /// Refuses an answer whose record nobody took. The record itself stays in the buffer.
    pub fn unrecorded(&self, record: &Arc<Record>, refusal: Refusal) -> Denied {
        let (sequence, reason) = (record.sequence, refusal.why.code());
        tracing::error!(sequence, reason, cause = refusal.text, went_out = record.went_out, "a call is not recorded");
        Denied { refusal, record: Arc::clone(record) }
    }

    /// Makes one call.
    pub async fn call(&self, pass: Pass, request: Request) -> Result<Done, Denied> {
        let permit = pass.permit;
        let mut trail = Trail::new(self, Some(Arc::clone(&permit.binding)), pass.door);
        let ordinal = request.ordinal.unwrap_or_else(|| permit.next_ordinal());
        if pass.door == Door::Http {
            trail.watched_by(&permit.watcher);
        }
        trail.asked(&request, ordinal);
        let asked = match Asked::check(self.in_force(), &permit, &request, &mut trail) {
            Ok(asked) => asked,
            Err(refusal) => return Err(trail.deny(refusal)),
        };
        let left = permit.deadline.duration_since(self.tokens.now()).unwrap_or_default();
        let copies = if pass.door == Door::Http { HTTP_ANSWER_COPIES } else { 1 };
        let held = (request.room, asked.answer_bytes_max * copies);
        let making = self.make(&permit, (request.body, request.coming, held), &asked, &mut trail);
        let made = tokio::select! {
            made = tokio::time::timeout(left.min(self.bounds.call_max), making) => {
                made.unwrap_or_else(|_| Err(late()))
            }
            () = permit.ended.cancelled() => Err(self.ended(&permit)),
        };
        let (arrival, room) = match made {
            Ok(made) => made,
            Err(refusal) if refusal.why == Why::TokenRevoked && trail.went_out() => return Err(trail.deny(cut())),
            Err(refusal) => return Err(trail.deny(refusal)),
        };
        let status = arrival.answer.status;
        match cleaned(arrival, Arc::new(asked)).await {
            Ok((body, headers, digest)) => {
                let record = trail.done(status, body.len() as u64, digest);
                Ok(Done { status, body, headers, record, room })
            }
            Err(refusal) => Err(trail.deny(refusal)),
        }
    }

    /// Budget, room, and the way there and back.
    async fn make(
        &self,
        permit: &Permit,
        (body, coming, (mut room, answer_bytes)): (Bytes, Option<Coming>, (Room, u64)),
        asked: &Asked,
        trail: &mut Trail<'_>,
    ) -> Result<(Arrival, Room), Refusal> {
        let cost = Cost { spend: permit.spend()?, counted: asked.in_force.take_rate(&permit.binding.tool_name)? };
        let busy = || Refusal::new(Why::Busy, "the broker has too many calls in flight: try again");
        let _call = self.calls.try_acquire().map_err(|_| busy())?;
        let body_bytes = coming.as_ref().map_or(body.len() as u64, |coming| coming.bytes);
        self.make_room(&mut room, body_bytes + answer_bytes)?;
        let body = match coming {
            Some(coming) => coming.whole().await?,
            None => body,
        };
        let arrival = Journey { broker: self, permit, asked }.make(body, cost, trail).await?;
        Ok((arrival, room))
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

/// What the upstream made of it is not known, as with a call that took too long.
fn cut() -> Refusal {
    Refusal::new(
        Why::CallCut,
        "the egress token was revoked while the call was in flight: its upstream may have done what was asked",
    )
}

fn late() -> Refusal {
    Refusal::new(
        Why::DeadlineExceeded,
        "the call took longer than its effect's deadline or the broker's own bound allow",
    )
}

/// A body, the headers beside it, and the body's digest.
type Clean = (Vec<u8>, Lines, Digest);

/// Looking through a large body takes a while: it is done where no other call waits for it.
async fn cleaned(arrival: Arrival, asked: Arc<Asked>) -> Result<Clean, Refusal> {
    if arrival.answer.body.len() <= LARGE_BODY_BYTES {
        return clean(arrival, &asked);
    }
    let cleaning = tokio::task::spawn_blocking(move || clean(arrival, &asked)).await;
    cleaning.unwrap_or_else(|_| Err(Refusal::new(Why::UpstreamFailed, "the answer could not be looked through")))
}

/// Takes the echoes of every secret that an upstream may know out of what is handed back.
fn clean(arrival: Arrival, asked: &Asked) -> Result<Clean, Refusal> {
    let Arrival { answer, known } = arrival;
    let scrub = |bytes: Vec<u8>| known.iter().fold(bytes, |bytes, attached| attached.scrub(bytes));
    let body = scrub(answer.body);
    if body.len() as u64 > asked.answer_bytes_max {
        return Err(send::too_large(asked.answer_bytes_max));
    }
    let (headers, digest) = (picked(&answer.headers, &asked.returned, scrub), Digest::of(&body));
    Ok((body, headers, digest))
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
