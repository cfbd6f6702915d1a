//! Tokens: each stands for one effect's right to call out, and is worth nothing elsewhere, later or after a restart.

mod keys;
mod permit;
mod spender;
mod table;

use std::{
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use arc_swap::ArcSwap;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use jsonwebtoken::{Algorithm, Header, Validation};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

pub use keys::{BadKeys, Keys};
pub use permit::{Binding, Ceilings, EffectKey, Permit, Spend};
pub use spender::{Bound, Claimed, Shower, Spender};
use table::Table;

use crate::refusal::{Refusal, Why};

/// Longest token that is looked at, in bytes; ours are under 600.
const TOKEN_BYTES_MAX: usize = 2048;

/// How far the clock may step back without making fresh tokens invalid, in seconds. Their end is kept exactly, by the table.
const CLOCK_STEP_S: u64 = 30;

/// Whom tokens are for: those of other services are none.
const AUDIENCE: &str = "areev.broker";

/// The time of day; tests bring their own.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// Bounds of the tokens' table.
#[derive(Debug, Clone, Copy)]
pub struct TokenBounds {
    /// Tokens alive at once.
    pub live_max: usize,
    /// Longest life of a token.
    pub life_max: Duration,
    /// Runs remembered as over, so that nothing more is minted for them; past it the oldest is forgotten.
    pub ended_runs_max: usize,
    /// How long a run is remembered as over.
    pub ended_run_memory: Duration,
    /// Failures a second that are answered in full; past it they are answered shortly and recorded as one.
    pub failures_per_s: NonZeroU32,
}

impl Default for TokenBounds {
    fn default() -> Self {
        Self {
            live_max: 65_536,
            life_max: Duration::from_secs(3600),
            ended_runs_max: 65_536,
            ended_run_memory: Duration::from_secs(24 * 3600),
            failures_per_s: NonZeroU32::new(100).expect("the bound is not zero"),
        }
    }
}

/// A fresh token. No Debug: whoever has the text has the right.
pub struct Minted {
    /// The token.
    pub token: String,
    /// When it ends.
    pub expires_at: SystemTime,
}

/// No token was minted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    /// The effect's deadline is over.
    #[error("the deadline has passed")]
    Late,
    /// The run's tokens were revoked for good.
    #[error("the run is over: its tokens are revoked, and no more are minted for it")]
    RunOver,
    /// Too many tokens are alive.
    #[error("{0} tokens are alive, the most there may be: revoke effects when they settle")]
    Full(usize),
}

/// Mints and verifies. What a token stands for is in this process alone: after a restart every old token is dead, and another
/// replica that shares the keys can tell where it was minted, but not spend it.
pub struct Tokens {
    keys: ArcSwap<Keys>,
    validation: Validation,
    /// This replica's name, and which start of it this is.
    replica: String,
    instance: String,
    clock: Clock,
    bounds: TokenBounds,
    table: Mutex<Table>,
    /// What is left of the failures that are answered in full.
    failures: DefaultDirectRateLimiter,
}

/// What is signed. The binding itself stays here; the token carries its digest.
#[derive(Serialize, Deserialize)]
struct Claims {
    aud: String,
    iss: String,
    ins: String,
    iat: u64,
    nbf: u64,
    exp: u64,
    jti: String,
    bnd: String,
}

impl Tokens {
    /// Begins with a random key and no tokens.
    pub fn new(clock: Clock, bounds: TokenBounds) -> Self {
        Self::of_replica("broker", Keys::random(), clock, bounds)
    }

    /// Begins as one of the replicas that share keys.
    pub fn of_replica(replica: &str, keys: Keys, clock: Clock, bounds: TokenBounds) -> Self {
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_audience(&[AUDIENCE]);
        validation.set_required_spec_claims(&["exp", "nbf", "aud"]);
        validation.validate_nbf = true;
        validation.leeway = CLOCK_STEP_S;
        Self {
            keys: ArcSwap::from_pointee(keys),
            validation,
            replica: replica.to_owned(),
            instance: Uuid::new_v4().simple().to_string(),
            clock,
            failures: RateLimiter::direct(Quota::per_second(bounds.failures_per_s)),
            bounds,
            table: Mutex::new(Table::default()),
        }
    }

    /// Puts other keys in the place of those in use. Tokens whose key is gone are dead.
    pub fn use_keys(&self, keys: Keys) {
        self.keys.store(Arc::new(keys));
    }

    /// Mints a token for an effect. An earlier token of the same effect dies: an effect has one executor at a time.
    pub fn mint(&self, mut permit: Permit) -> Result<Minted, MintError> {
        let now = (self.clock)();
        permit.deadline = permit.deadline.min(now + self.bounds.life_max);
        if permit.deadline <= now {
            return Err(MintError::Late);
        }
        let (id, expires_at) = (Uuid::new_v4(), permit.deadline);
        let claims = Claims {
            aud: AUDIENCE.to_owned(),
            iss: self.replica.clone(),
            ins: self.instance.clone(),
            iat: seconds(now),
            nbf: seconds(now),
            // The table keeps the exact end; this one may only be later.
            exp: seconds(expires_at) + 1,
            jti: id.to_string(),
            bnd: permit.binding.digest().to_hex(),
        };
        let token = self.sign(&claims);
        self.table.lock().insert(id, permit, now, &self.bounds)?;
        metrics::counter!("areev_broker_tokens_minted_total").increment(1);
        Ok(Minted { token, expires_at })
    }

    fn sign(&self, claims: &Claims) -> String {
        let keys = self.keys.load();
        let (id, key) = keys.signing();
        let header = Header { kid: Some(id.to_owned()), ..Header::new(Algorithm::HS256) };
        jsonwebtoken::encode(&header, claims, &key.encoding).expect("plain claims and an HMAC key sign")
    }

    /// Finds what a token stands for. Signature first, by the library and in constant time; then what this process knows of it.
    /// A flood of failures is answered shortly, whoever sends it; good tokens are not held up by it.
    pub fn verify(&self, token: &str) -> Result<Arc<Permit>, Refusal> {
        self.find(token).map_err(|refusal| match self.failures.check() {
            Ok(()) => refusal,
            Err(_) => Refusal::new(Why::AuthLimited, "too many wrong egress tokens are sent: wait a second"),
        })
    }

    fn find(&self, token: &str) -> Result<Arc<Permit>, Refusal> {
        let claims = self.claims(token)?;
        if claims.iss != self.replica {
            let text = format!(
                "the egress token was minted by replica {}: call the URL that came with it",
                crate::refusal::quote(&claims.iss)
            );
            return Err(Refusal::new(Why::TokenElsewhere, text));
        }
        let (now, id) = ((self.clock)(), Uuid::parse_str(&claims.jti).map_err(|_| invalid())?);
        let found = self.table.lock().get(&id).filter(|_| claims.ins == self.instance);
        let Some(permit) = found else {
            let over = claims.exp <= seconds(now);
            let revoked =
                "the egress token was revoked: its effect has settled, its run is over, or the broker began anew";
            return Err(if over { expired() } else { Refusal::new(Why::TokenRevoked, revoked) });
        };
        let bound = permit.binding.digest().to_hex();
        if !bool::from(bound.as_bytes().ct_eq(claims.bnd.as_bytes())) {
            return Err(Refusal::new(Why::TokenBindingMismatch, "the egress token is bound to another effect"));
        }
        if permit.deadline <= now { Err(expired()) } else { Ok(permit) }
    }

    fn claims(&self, token: &str) -> Result<Claims, Refusal> {
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX {
            return Err(invalid());
        }
        let header = jsonwebtoken::decode_header(token).map_err(|_| invalid())?;
        let keys = self.keys.load();
        let key = header.kid.as_deref().and_then(|id| keys.get(id)).ok_or_else(invalid)?;
        let data =
            jsonwebtoken::decode::<Claims>(token, &key.decoding, &self.validation).map_err(|cause| {
                match cause.kind() {
                    jsonwebtoken::errors::ErrorKind::ExpiredSignature => expired(),
                    _ => invalid(),
                }
            })?;
        Ok(data.claims)
    }

    /// Ends an effect's tokens; answers how many were alive.
    pub fn revoke_effect(&self, effect: &EffectKey) -> u32 {
        self.table.lock().revoke_effect(effect, (self.clock)())
    }

    /// Ends a run's tokens and remembers that the run is over.
    pub fn revoke_run(&self, run_id: &str) -> u32 {
        self.table.lock().revoke_run(run_id, (self.clock)(), &self.bounds)
    }

    /// Tokens alive now.
    pub fn live(&self) -> usize {
        self.table.lock().live((self.clock)())
    }

    /// The time of day that tokens live by.
    pub fn now(&self) -> SystemTime {
        (self.clock)()
    }
}

fn invalid() -> Refusal {
    Refusal::new(
        Why::TokenInvalid,
        "the egress token is missing or not one of this broker's: use the one that came with this call",
    )
}

fn expired() -> Refusal {
    Refusal::new(Why::TokenExpired, "the egress token has expired with its effect's deadline")
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
