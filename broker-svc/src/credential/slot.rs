//! One credential's value through time: held, fresh, asked for again by one on behalf of all, dead.

use std::{sync::Arc, time::Duration};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    Attached, KeyError, Secret, Shape,
    oauth::{self, Shown},
    source::{self, Unreadable},
    unavailable,
};
use crate::{
    in_force::InForce,
    policy::{Credential, Kind, OAuth},
    refusal::Refusal,
    send::Courier,
    stamp::Stamp,
};

/// Longest time that asking for a value may take.
const ASK_MAX: Duration = Duration::from_secs(20);
/// How long a failure answers others too, and how often a refused value is asked for anew at most.
const FAILURE_SHARED: Duration = Duration::from_secs(1);
/// A minted token is renewed when this part of its life is left, and not used in the last part of it.
const RENEW_PART: u32 = 5;
const LAST_PART: u32 = 20;
/// But no longer before its end than this.
const RENEW_MAX: Duration = Duration::from_secs(60);
const LAST_MAX: Duration = Duration::from_secs(10);

/// Somebody asking; whoever waits shares the answer.
type Flight = Shared<BoxFuture<'static, Result<Arc<Attached>, Refusal>>>;

/// One credential.
pub struct Slot {
    credential: Credential,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: Option<Held>,
    /// What was held before: an upstream may still echo it.
    former: Option<Arc<Attached>>,
    flight: Option<Flight>,
    failed: Option<(Instant, Refusal)>,
    rejected: Option<Instant>,
    /// The refresh token that a server gave for the spent one, with the stamp of the file that the first one came from.
    rotated: Option<(Option<Stamp>, Secret)>,
}

struct Held {
    attached: Option<Arc<Attached>>,
    stamps: Vec<Option<Stamp>>,
    /// After this it is asked for again, while it is still used.
    fresh_until: Instant,
    /// After this it is not used.
    dead_at: Instant,
}

/// A value that was asked for.
struct Fetched {
    attached: Attached,
    fresh: Duration,
    life: Duration,
    rotated: Option<(Option<Stamp>, Secret)>,
}

impl Slot {
    /// Reads the value if it is at hand.
    pub fn open(credential: Credential) -> Result<Self, KeyError> {
        let mut state = State::default();
        if credential.is_local() {
            let stamps = stamps(&credential);
            let attached = read_near(&credential).map_err(|cause| KeyError {
                name: credential.name.clone(),
                from: credential.source.to_string(),
                cause,
            })?;
            let now = Instant::now();
            state.held = Some(Held { attached: Some(Arc::new(attached)), stamps, fresh_until: now, dead_at: now });
        }
        Ok(Self { credential, state: Mutex::new(state) })
    }

    /// Whether it is of this very credential.
    pub fn is_of(&self, credential: &Credential) -> bool {
        self.credential == *credential
    }

    /// What is held, and what was held before.
    pub fn held(&self) -> Vec<Arc<Attached>> {
        let state = self.state.lock();
        let held = state.held.as_ref().and_then(|held| held.attached.clone());
        held.into_iter().chain(state.former.clone()).collect()
    }

    /// An upstream refused what is held.
    pub fn reject(&self, refused: &Arc<Attached>) -> bool {
        if self.credential.is_local() {
            return false;
        }
        let mut state = self.state.lock();
        let is_held =
            state.held.as_ref().and_then(|held| held.attached.as_ref()).is_some_and(|h| Arc::ptr_eq(h, refused));
        if !is_held {
            // Somebody else got a newer one already.
            return true;
        }
        if state.rejected.is_some_and(|at| at.elapsed() < FAILURE_SHARED) {
            return false;
        }
        state.rejected = Some(Instant::now());
        state.former = state.held.take().and_then(|held| held.attached);
        true
    }

    /// The value now.
    pub async fn get(
        self: &Arc<Self>,
        in_force: &Arc<InForce>,
        courier: &Arc<Courier>,
    ) -> Result<Arc<Attached>, Refusal> {
        if self.credential.is_local() {
            return self.read_again();
        }
        let flight = {
            let mut state = self.state.lock();
            let failed =
                state.failed.as_ref().filter(|(at, _)| at.elapsed() < FAILURE_SHARED).map(|(_, why)| why.clone());
            let (now, begin) = (Instant::now(), || self.begin(in_force, courier));
            let usable = state.held.as_ref().filter(|held| now < held.dead_at);
            if let Some((Some(attached), fresh_until)) = usable.map(|held| (held.attached.clone(), held.fresh_until)) {
                if now >= fresh_until && failed.is_none() && state.flight.is_none() {
                    state.flight = Some(begin());
                }
                return Ok(attached);
            }
            if let Some(refusal) = failed {
                return Err(refusal);
            }
            state.flight.get_or_insert_with(begin).clone()
        };
        flight.await
    }

    /// A value at hand; read again if a file changed.
    fn read_again(&self) -> Result<Arc<Attached>, Refusal> {
        let (name, source) = (&self.credential.name, &self.credential.source);
        let stamps = stamps(&self.credential);
        let mut state = self.state.lock();
        let held = state.held.as_ref().filter(|held| held.stamps == stamps);
        if let Some(held) = held {
            return held.attached.clone().ok_or_else(|| unavailable(name));
        }
        let attached = match read_near(&self.credential) {
            Ok(attached) => {
                tracing::info!(credential = name, %source, "credential read again");
                Some(Arc::new(attached))
            }
            Err(cause) => {
                tracing::warn!(credential = name, %source, %cause, "credential lost");
                None
            }
        };
        let now = Instant::now();
        let before = state.held.replace(Held { attached: attached.clone(), stamps, fresh_until: now, dead_at: now });
        state.former = before.and_then(|held| held.attached).or(state.former.take());
        attached.ok_or_else(|| unavailable(name))
    }

    /// Asks in a task of its own, so that a caller that goes away takes no answer with it. The task's time is bounded.
    fn begin(self: &Arc<Self>, in_force: &Arc<InForce>, courier: &Arc<Courier>) -> Flight {
        let (slot, in_force, courier) = (Arc::clone(self), Arc::clone(in_force), Arc::clone(courier));
        let asking = tokio::spawn(async move {
            let late = |_| Err(Unreadable::Late(ASK_MAX));
            let outcome = tokio::time::timeout(ASK_MAX, slot.ask(&in_force, &courier)).await.unwrap_or_else(late);
            slot.settle(outcome)
        });
        let slot = Arc::clone(self);
        let waiting = async move {
            match asking.await {
                Ok(outcome) => outcome,
                // The task panicked, or the process ends.
                Err(_) => {
                    slot.state.lock().flight = None;
                    Err(unavailable(&slot.credential.name))
                }
            }
        };
        waiting.boxed().shared()
    }

    async fn ask(&self, in_force: &InForce, courier: &Courier) -> Result<Fetched, Unreadable> {
        let (credential, policy) = (&self.credential, &in_force.policy);
        if let Kind::OAuth(oauth) = &credential.kind {
            return self.mint(oauth, in_force, courier).await;
        }
        let value = source::read(&credential.source, shape(&credential.kind), policy, courier).await?;
        let further = match credential.sources().get(1) {
            Some(source) => Some(source::read(source, Shape::Token, policy, courier).await?),
            None => None,
        };
        let attached = Attached::new(&credential.kind, value, further);
        Ok(Fetched { attached, fresh: credential.refresh, life: credential.refresh * 2, rotated: None })
    }

    async fn mint(&self, oauth: &OAuth, in_force: &InForce, courier: &Courier) -> Result<Fetched, Unreadable> {
        let (credential, policy) = (&self.credential, &in_force.policy);
        let stamp = source::stamp(&credential.source);
        let rotated = {
            let state = self.state.lock();
            state.rotated.as_ref().filter(|(from, _)| *from == stamp).map(|(_, token)| token.again())
        };
        let value = match rotated {
            Some(token) => token,
            None => source::read(&credential.source, Shape::Line, policy, courier).await?,
        };
        let client_secret = match &oauth.client_secret {
            Some(source) => Some(source::read(source, Shape::Line, policy, courier).await?),
            None => None,
        };
        let minted = oauth::mint(oauth, &Shown { value, client_secret }, policy, courier).await?;
        let (margin, last) = ((minted.life / RENEW_PART).min(RENEW_MAX), (minted.life / LAST_PART).min(LAST_MAX));
        Ok(Fetched {
            attached: Attached::new(&credential.kind, minted.token, None),
            fresh: minted.life - margin,
            life: minted.life - last,
            rotated: minted.refresh_token.map(|token| (stamp, token)),
        })
    }

    /// Keeps what the asking brought.
    fn settle(&self, outcome: Result<Fetched, Unreadable>) -> Result<Arc<Attached>, Refusal> {
        let (name, source) = (&self.credential.name, &self.credential.source);
        let mut state = self.state.lock();
        state.flight = None;
        match outcome {
            Ok(fetched) => {
                tracing::info!(credential = name, %source, fresh_s = fetched.fresh.as_secs(), "credential renewed");
                let (now, attached) = (Instant::now(), Arc::new(fetched.attached));
                let (fresh_until, dead_at) = (now + fetched.fresh, now + fetched.life);
                let held = Held { attached: Some(Arc::clone(&attached)), stamps: Vec::new(), fresh_until, dead_at };
                let before = state.held.replace(held);
                state.former = before.and_then(|held| held.attached).or(state.former.take());
                state.rotated = fetched.rotated.or(state.rotated.take());
                state.failed = None;
                Ok(attached)
            }
            Err(cause) => {
                tracing::warn!(credential = name, %source, %cause, "credential cannot be renewed");
                let refusal = unavailable(name);
                state.failed = Some((Instant::now(), refusal.clone()));
                Err(refusal)
            }
        }
    }
}

fn stamps(credential: &Credential) -> Vec<Option<Stamp>> {
    credential.sources().into_iter().map(source::stamp).collect()
}

fn read_near(credential: &Credential) -> Result<Attached, Unreadable> {
    let value = source::read_near(&credential.source, shape(&credential.kind))?;
    let further = credential.sources().get(1).map(|source| source::read_near(source, Shape::Token)).transpose()?;
    Ok(Attached::new(&credential.kind, value, further))
}

/// Which bytes a value of this kind may have.
fn shape(kind: &Kind) -> Shape {
    match kind {
        Kind::Bearer | Kind::SigV4(_) => Shape::Token,
        Kind::Header(_) | Kind::OAuth(_) => Shape::Line,
        Kind::Basic(Some(_)) | Kind::Query(_) => Shape::Text,
        Kind::Basic(None) => Shape::Pair,
    }
}
