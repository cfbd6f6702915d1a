//! What holds of tokens.

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
    (
        hand,
        Tokens::new(
            clock,
            TokenBounds {
                live_max: 4,
                ended_runs_max: 2,
                failures_per_s: NonZeroU32::new(100_000).unwrap(),
                ..TokenBounds::default()
            },
        ),
    )
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
    let claims =
        Claims { bnd: permit("other", "n", 60).binding.digest().to_hex(), ..tokens.claims(&token).ok().unwrap() };
    let forged = tokens.sign(&claims);
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

#[test]
fn t2_a_token_is_good_inside_thirty_seconds_of_a_clocks_step_alone() {
    let (_hand, tokens) = tokens();
    let token = tokens.mint(permit("r", "n", 600)).ok().unwrap().token;
    let now = seconds(SystemTime::now());
    for (ahead, good) in [(25, true), (60, false)] {
        let claims = Claims { nbf: now + ahead, ..tokens.claims(&token).ok().unwrap() };
        assert_eq!(tokens.verify(&tokens.sign(&claims)).is_ok(), good, "begins in {ahead} s");
    }
    // Its end is kept exactly by the table, whatever the token says of itself.
    for (ago, good) in [(25, true), (60, false)] {
        let claims = Claims { exp: now - ago, ..tokens.claims(&token).ok().unwrap() };
        assert_eq!(tokens.verify(&tokens.sign(&claims)).is_ok(), good, "ended {ago} s ago");
    }
}

#[test]
fn t3_t4_keys_are_told_apart_by_id_and_a_restart_ends_every_token() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), [1; 32]).unwrap();
    let begin = |replica: &str| {
        let keys = Keys::read(folder.path()).ok().unwrap();
        Tokens::of_replica(replica, keys, Arc::new(SystemTime::now), TokenBounds::default())
    };
    let (one, other, again) = (begin("one"), begin("other"), begin("one"));
    let token = one.mint(permit("r", "n", 60)).ok().unwrap().token;
    let refused = other.verify(&token).unwrap_err();
    assert_eq!(refused.why, Why::TokenElsewhere);
    assert!(refused.text.contains("\"one\""), "{refused}");
    assert_eq!(again.verify(&token).unwrap_err().why, Why::TokenRevoked, "the same replica after a restart");
    // Another key signs; the former one still verifies, until it is taken out.
    std::fs::write(folder.path().join("b"), [2; 32]).unwrap();
    one.use_keys(Keys::read(folder.path()).ok().unwrap());
    let later = one.mint(permit("r", "m", 60)).ok().unwrap().token;
    assert!(one.verify(&token).is_ok() && one.verify(&later).is_ok());
    std::fs::remove_file(folder.path().join("a")).unwrap();
    one.use_keys(Keys::read(folder.path()).ok().unwrap());
    assert_eq!(one.verify(&token).unwrap_err().why, Why::TokenInvalid);
    assert!(one.verify(&later).is_ok());
    // The right id over the wrong key.
    std::fs::write(folder.path().join("b"), [3; 32]).unwrap();
    assert_eq!(begin("one").verify(&later).unwrap_err().why, Why::TokenInvalid);
}

#[test]
fn t4_a_token_for_somebody_else_is_no_token() {
    let (_hand, tokens) = tokens();
    let token = tokens.mint(permit("r", "n", 60)).ok().unwrap().token;
    for audience in ["areev.sandbox", "areev.runner", "", "areev.broker/x"] {
        let claims = Claims { aud: audience.to_owned(), ..tokens.claims(&token).ok().unwrap() };
        assert_eq!(tokens.verify(&tokens.sign(&claims)).unwrap_err().why, Why::TokenInvalid, "{audience}");
    }
}

#[test]
fn t5_past_a_rate_failures_are_answered_shortly_and_good_tokens_are_not_held_up() {
    let bounds = TokenBounds { failures_per_s: NonZeroU32::new(10).unwrap(), ..TokenBounds::default() };
    let tokens = Tokens::new(Arc::new(SystemTime::now), bounds);
    let token = tokens.mint(permit("r", "n", 60)).ok().unwrap().token;
    let answers: Vec<_> = (0..1000).map(|n| tokens.verify(&format!("{token}{n}")).unwrap_err().why).collect();
    assert!(answers.contains(&Why::TokenInvalid) && answers.contains(&Why::AuthLimited));
    assert!(tokens.verify(&token).is_ok());
}
