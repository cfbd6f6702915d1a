//! Tokens: each stands for one effect's right to call out, and is worth nothing elsewhere, later or after a restart.

mod permit;
mod table;

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use uuid::Uuid;
use zeroize::Zeroizing;

pub use permit::{Binding, Ceilings, EffectKey, Permit, Spend};
use table::Table;

use crate::refusal::{Refusal, Why};

/// Longest token that is looked at, in bytes; ours are under 600.
const TOKEN_BYTES_MAX: usize = 2048;

/// How far the clock may step back without making fresh tokens invalid, in seconds. Their end is kept exactly, by the table.
const CLOCK_STEP_S: u64 = 30;

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
}

impl Default for TokenBounds {
    fn default() -> Self {
        Self {
            live_max: 65_536,
            life_max: Duration::from_secs(3600),
            ended_runs_max: 65_536,
            ended_run_memory: Duration::from_secs(24 * 3600),
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

/// Mints and verifies with a key of this process alone: after a restart every old token is dead.
pub struct Tokens {
    encoding: EncodingKey,
    decoding: DecodingKey,
    validation: Validation,
    header: Header,
    audience: String,
    clock: Clock,
    bounds: TokenBounds,
    table: Mutex<Table>,
}

/// What is signed. The binding itself stays here; the token carries its digest.
#[derive(Serialize, Deserialize)]
struct Claims {
    aud: String,
    iat: u64,
    nbf: u64,
    exp: u64,
    jti: String,
    bnd: String,
}

impl Tokens {
    /// Begins with a random key and no tokens.
    pub fn new(clock: Clock, bounds: TokenBounds) -> Self {
        let mut key = Zeroizing::new([0_u8; 32]);
        rustls::crypto::aws_lc_rs::default_provider()
            .secure_random
            .fill(&mut key[..])
            .expect("the system's random generator answers");
        let instance = Uuid::new_v4().simple().to_string();
        let audience = format!("areev.broker/{instance}");
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_audience(&[&audience]);
        validation.set_required_spec_claims(&["exp", "nbf", "aud"]);
        validation.validate_nbf = true;
        validation.leeway = CLOCK_STEP_S;
        Self {
            encoding: EncodingKey::from_secret(&key[..]).expect("32 bytes are a key"),
            decoding: DecodingKey::from_secret(&key[..]).expect("32 bytes are a key"),
            validation,
            header: Header { kid: Some(instance), ..Header::new(Algorithm::HS256) },
            audience,
            clock,
            bounds,
            table: Mutex::new(Table::default()),
        }
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
            aud: self.audience.clone(),
            iat: seconds(now),
            nbf: seconds(now),
            // The table keeps the exact end; this one may only be later.
            exp: seconds(expires_at) + 1,
            jti: id.to_string(),
            bnd: permit.binding.digest().to_hex(),
        };
        let token =
            jsonwebtoken::encode(&self.header, &claims, &self.encoding).expect("plain claims and an HMAC key sign");
        self.table.lock().insert(id, permit, now, &self.bounds)?;
        metrics::counter!("areev_broker_tokens_minted_total").increment(1);
        Ok(Minted { token, expires_at })
    }

    /// Finds what a token stands for. Signature first, by the library and in constant time; then what this process knows of it.
    pub fn verify(&self, token: &str) -> Result<Arc<Permit>, Refusal> {
        let invalid = || {
            Refusal::new(
                Why::TokenInvalid,
                "the egress token is missing or not one of this broker's: use the one that came with this call",
            )
        };
        let expired = || Refusal::new(Why::TokenExpired, "the egress token has expired with its effect's deadline");
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX {
            return Err(invalid());
        }
        let data =
            jsonwebtoken::decode::<Claims>(token, &self.decoding, &self.validation).map_err(|cause| {
                match cause.kind() {
                    jsonwebtoken::errors::ErrorKind::ExpiredSignature => expired(),
                    _ => invalid(),
                }
            })?;
        if data.header.kid != self.header.kid {
            return Err(invalid());
        }
        let now = (self.clock)();
        let id = Uuid::parse_str(&data.claims.jti).map_err(|_| invalid())?;
        let found = self.table.lock().get(&id);
        let Some(permit) = found else {
            let over = data.claims.exp <= seconds(now);
            let revoked = "the egress token was revoked: its effect has settled or its run is over";
            return Err(if over { expired() } else { Refusal::new(Why::TokenRevoked, revoked) });
        };
        let bound = permit.binding.digest().to_hex();
        if !bool::from(bound.as_bytes().ct_eq(data.claims.bnd.as_bytes())) {
            return Err(Refusal::new(Why::TokenBindingMismatch, "the egress token is bound to another effect"));
        }
        if permit.deadline <= now { Err(expired()) } else { Ok(permit) }
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

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    struct Hand(Arc<AtomicU64>);

    impl Hand {
        fn new() -> (Self, Clock) {
            let ahead = Arc::new(AtomicU64::new(0));
            let hand = Self(Arc::clone(&ahead));
            let start = SystemTime::now();
            (hand, Arc::new(move || start + Duration::from_secs(ahead.load(Ordering::SeqCst))))
        }

        fn forward(&self, by: u64) {
            self.0.fetch_add(by, Ordering::SeqCst);
        }
    }

    fn permit(run_id: &str, node: &str, life_s: u64) -> Permit {
        let binding =
            Binding { run_id: run_id.into(), node: node.into(), tool_name: "poster".into(), ..Binding::default() };
        Permit::new(binding, None, Ceilings::default(), SystemTime::now() + Duration::from_secs(life_s))
    }

    fn tokens() -> (Hand, Tokens) {
        let (hand, clock) = Hand::new();
        (hand, Tokens::new(clock, TokenBounds { live_max: 4, ended_runs_max: 2, ..TokenBounds::default() }))
    }

    #[test]
    fn a_token_stands_for_its_effect_until_its_deadline() {
        let (hand, tokens) = tokens();
        let token = tokens.mint(permit("r", "n", 60)).ok().unwrap().token;
        assert_eq!(tokens.verify(&token).unwrap().binding.run_id, "r");
        hand.forward(59);
        assert!(tokens.verify(&token).is_ok());
        hand.forward(2);
        assert_eq!(tokens.verify(&token).unwrap_err().why, Why::TokenExpired);
        assert_eq!(tokens.live(), 0);
    }

    #[test]
    fn bent_foreign_and_unsigned_tokens_are_invalid() {
        let (_hand, tokens) = tokens();
        let token = tokens.mint(permit("r", "n", 60)).ok().unwrap().token;
        let other = Tokens::new(Arc::new(SystemTime::now), TokenBounds::default());
        let foreign = other.mint(permit("r", "n", 60)).ok().unwrap().token;
        let (_, payload) = token.split_once('.').unwrap();
        let unsigned = format!("eyJhbGciOiJub25lIn0.{}.", payload.split_once('.').unwrap().0);
        let mut bent: Vec<String> = (0..token.len()).map(|at| flip(&token, at)).collect();
        bent.extend([String::new(), "x".into(), "a.b.c".into(), token[..token.len() - 1].into(), token[1..].into()]);
        bent.extend([foreign, unsigned, format!("{token} "), format!("{token}.x"), "x".repeat(1 << 20)]);
        for text in bent {
            assert_eq!(tokens.verify(&text).unwrap_err().why, Why::TokenInvalid, "{text:.200}");
        }
    }

    fn flip(token: &str, at: usize) -> String {
        let mut bytes = token.as_bytes().to_vec();
        // The second bit, for the last letter of an HMAC carries only its upper four.
        bytes[at] = if bytes[at] == b'.' {
            b'_'
        } else if bytes[at] == b'Q' {
            b'g'
        } else {
            b'Q'
        };
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_revoked_effect_or_run_is_over_and_the_run_gets_no_more() {
        let (_hand, tokens) = tokens();
        let first = tokens.mint(permit("r", "a", 60)).ok().unwrap().token;
        let second = tokens.mint(permit("r", "b", 60)).ok().unwrap().token;
        let effect = permit("r", "a", 60).binding.effect();
        let held = tokens.verify(&first).unwrap();
        assert_eq!((tokens.revoke_effect(&effect), tokens.revoke_effect(&effect)), (1, 0));
        assert!(held.ended.is_cancelled());
        assert_eq!(tokens.verify(&first).unwrap_err().why, Why::TokenRevoked);
        assert!(tokens.verify(&second).is_ok());
        assert_eq!((tokens.revoke_run("r"), tokens.revoke_run("r")), (1, 0));
        assert_eq!(tokens.verify(&second).unwrap_err().why, Why::TokenRevoked);
        assert_eq!(tokens.mint(permit("r", "c", 60)).err(), Some(MintError::RunOver));
        assert!(tokens.mint(permit("s", "c", 60)).is_ok());
    }

    #[test]
    fn ended_runs_are_forgotten_by_age_and_beyond_their_bound() {
        let (hand, tokens) = tokens();
        for run in ["a", "b", "c"] {
            tokens.revoke_run(run);
        }
        assert!(tokens.mint(permit("a", "n", 90_000)).is_ok(), "the oldest is forgotten");
        assert_eq!(tokens.mint(permit("c", "n", 90_000)).err(), Some(MintError::RunOver));
        hand.forward(24 * 3600 + 1);
        assert!(tokens.mint(permit("c", "n", 200_000)).is_ok());
    }

    #[test]
    fn the_table_is_bounded_and_expired_tokens_make_room() {
        let (hand, tokens) = tokens();
        for node in ["a", "b", "c", "d"] {
            assert!(tokens.mint(permit("r", node, 60)).is_ok());
        }
        assert_eq!(tokens.mint(permit("r", "e", 120)).err(), Some(MintError::Full(4)));
        hand.forward(61);
        assert!(tokens.mint(permit("r", "e", 120)).is_ok());
    }

    #[test]
    fn minting_again_for_an_effect_ends_its_earlier_token() {
        let (_hand, tokens) = tokens();
        let first = tokens.mint(permit("r", "n", 60)).ok().unwrap().token;
        let second = tokens.mint(permit("r", "n", 60)).ok().unwrap().token;
        assert_eq!(tokens.verify(&first).unwrap_err().why, Why::TokenRevoked);
        assert!(tokens.verify(&second).is_ok());
        assert_eq!(tokens.live(), 1);
    }

    #[test]
    fn a_token_that_speaks_of_another_effect_is_told_apart() {
        let (_hand, tokens) = tokens();
        let token = tokens.mint(permit("r", "n", 60)).ok().unwrap().token;
        let data = jsonwebtoken::decode::<Claims>(&token, &tokens.decoding, &tokens.validation).unwrap();
        let claims = Claims { bnd: permit("other", "n", 60).binding.digest().to_hex(), ..data.claims };
        let forged = jsonwebtoken::encode(&tokens.header, &claims, &tokens.encoding).unwrap();
        assert_eq!(tokens.verify(&forged).unwrap_err().why, Why::TokenBindingMismatch);
    }

    #[test]
    fn spent_calls_are_counted_and_refusals_are_not() {
        let permit =
            Permit::new(Binding::default(), None, Ceilings { max_calls: 2, ..Ceilings::default() }, SystemTime::now());
        drop(permit.spend().unwrap());
        permit.spend().unwrap().keep();
        permit.spend().unwrap().keep();
        assert_eq!(permit.spend().err().unwrap().why, Why::CallsExhausted);
    }
}
