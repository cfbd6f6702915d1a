//! Delays between attempts: when they end is journaled, whatever the clock does.

use runner_core::{
    event::Event,
    input::Input,
    manifest::NodePolicy,
    outcome::FailureCause,
    owed::{Owed, next_tick_ms, owed},
    retry::Backoff,
    text::instant,
    why::why,
};
use serde_json::json;

use crate::sim::{Setup, Sim};

const HOUR_MS: u64 = 3_600_000;

fn setup(backoff: Backoff) -> Setup {
    let policy = NodePolicy { timeout_ms: None, backoff: Some(backoff) };
    let policies = [("work".to_owned(), policy)].into_iter().collect();
    Setup { policies, ..Setup::of(json!({"nodes": ["work"], "retries": {"work": 3}})) }
}

fn doubling() -> Backoff {
    Backoff { initial_ms: 1000, factor_milli: 2000, max_ms: 3000, jitter_milli: 0 }
}

/// When the delays of the journal end, each counted from its failure.
fn delays(sim: &Sim) -> Vec<u64> {
    let scheduled = sim.entries.iter().filter_map(|entry| match entry.event() {
        Event::RetryScheduled { due_ms, .. } => Some(due_ms - entry.at_ms()),
        _ => None,
    });
    scheduled.collect()
}

fn tick_at(sim: &mut Sim, now: u64) {
    sim.now = now;
    sim.feed_now(Input::Tick);
}

#[test]
fn an_attempt_waits_until_its_delay_has_ended() {
    let mut sim = setup(doubling()).start();
    sim.fail("work", FailureCause::Timeout);
    let due = sim.now + 1000;
    assert_eq!((owed(&sim.state), next_tick_ms(&sim.state)), (vec![Owed::WaitUntil { due_ms: due }], Some(due)));
    let waiting = why(&sim.state).remove(0);
    assert_eq!(waiting.what, "node `work`, backing off before attempt 2 of 4");
    assert_eq!((waiting.since_ms, waiting.unblocked_by), (sim.now, format!("its retry at {}", instant(due))));
    tick_at(&mut sim, due - 1);
    assert!(sim.in_flight().is_empty());
    tick_at(&mut sim, due);
    assert_eq!((sim.in_flight(), sim.key("work").attempt), (vec!["work"], 2));
    sim.done("work", "{}");
    assert!(sim.verify().is_clean());
}

#[test]
fn delays_grow_with_each_failure() {
    let mut sim = setup(doubling()).start();
    for _ in 0..3 {
        sim.fail("work", FailureCause::ExecutorError);
        let due = next_tick_ms(&sim.state).unwrap();
        tick_at(&mut sim, due);
    }
    assert_eq!(delays(&sim), [1000, 2000, 3000]);
}

#[test]
fn the_drawn_share_is_the_same_in_every_replay_and_differs_between_attempts() {
    let run = || {
        let mut sim = setup(Backoff { factor_milli: 1000, jitter_milli: 1000, ..doubling() }).start();
        for _ in 0..3 {
            sim.fail("work", FailureCause::ExecutorError);
            let due = next_tick_ms(&sim.state).unwrap_or(sim.now);
            tick_at(&mut sim, due);
        }
        assert!(sim.verify().is_clean());
        delays(&sim)
    };
    let drawn = run();
    assert_eq!(drawn, run());
    assert!(drawn.iter().all(|delay| *delay <= 1000) && drawn[0] != drawn[1], "{drawn:?}");
}

#[test]
fn a_crash_does_not_begin_a_delay_anew() {
    let mut sim = setup(doubling()).start();
    sim.fail("work", FailureCause::Timeout);
    let due = next_tick_ms(&sim.state).unwrap();
    let mut sim = sim.reopen(sim.entries.len());
    let since_ms = sim.now;
    sim.now = due - 10;
    sim.take_over();
    assert_eq!(why(&sim.state)[0].since_ms, since_ms, "nor does what is said of it");
    assert_eq!(next_tick_ms(&sim.state), Some(due));
    tick_at(&mut sim, due);
    assert_eq!(sim.attempts("work"), [1, 2]);
    sim.done("work", "{}");
    assert!(sim.verify().is_clean());
}

#[test]
fn others_go_on_while_a_node_backs_off_and_the_join_waits() {
    let plan = json!({
        "nodes": ["a", "work", "b", "c", "join"], "retries": {"work": 1},
        "edges": [{"src": "a", "dst": "work"}, {"src": "a", "dst": "b"}, {"src": "b", "dst": "c"},
                  {"src": "c", "dst": "join"}, {"src": "work", "dst": "join"}]
    });
    let mut sim = Setup { policies: setup(doubling()).policies, ..Setup::of(plan) }.start();
    sim.done("a", "{}");
    sim.fail("work", FailureCause::Timeout);
    sim.done("b", "{}");
    assert_eq!(sim.in_flight(), ["c"]);
    let told: Vec<String> = why(&sim.state).into_iter().map(|waiting| waiting.unblocked_by).collect();
    assert!(told.len() == 2 && told[1].ends_with(", once the open superstep has closed"), "{told:?}");
    sim.done("c", "{}");
    assert!(sim.in_flight().is_empty());
    let due = next_tick_ms(&sim.state).unwrap();
    tick_at(&mut sim, due);
    sim.done("work", "{}");
    assert_eq!(sim.in_flight(), ["join"]);
}

#[test]
fn each_node_that_backs_off_is_told_with_its_own_attempt_and_time() {
    let plan = json!({"nodes": ["a", "b", "c"], "retries": {"b": 1, "c": 2},
        "edges": [{"src": "a", "dst": "b"}, {"src": "a", "dst": "c"}]});
    let backoff = |initial_ms| NodePolicy { timeout_ms: None, backoff: Some(Backoff { initial_ms, ..doubling() }) };
    let policies = [("b".to_owned(), backoff(1000)), ("c".to_owned(), backoff(2000))].into_iter().collect();
    let mut sim = Setup { policies, ..Setup::of(plan) }.start();
    sim.done("a", "{}");
    sim.fail("b", FailureCause::Timeout);
    sim.fail("c", FailureCause::Timeout);
    let now = sim.now;
    let told: Vec<_> = why(&sim.state).into_iter().map(|waiting| (waiting.what, waiting.unblocked_by)).collect();
    let line = |node, of, due_ms| {
        (format!("node `{node}`, backing off before attempt 2 of {of}"), format!("its retry at {}", instant(due_ms)))
    };
    assert_eq!(told, [line("b", 2, now + 1000), line("c", 3, now + 2000)]);
}

#[test]
fn a_cancel_does_not_wait_for_a_delay() {
    let mut sim = setup(doubling()).start();
    sim.fail("work", FailureCause::Timeout);
    sim.cancel();
    assert!(sim.outcome().reason().starts_with("RUN-E013"));
    assert_eq!((owed(&sim.state), next_tick_ms(&sim.state)), (vec![], None));
}

#[test]
fn a_clock_that_jumps_during_a_delay_does_no_harm() {
    for jump in [-1, 1, 10 * 365 * 24] {
        let mut sim = setup(doubling()).start();
        sim.fail("work", FailureCause::Timeout);
        let due = next_tick_ms(&sim.state).unwrap();
        let now = sim.now.checked_add_signed(jump * i64::try_from(HOUR_MS).unwrap()).unwrap();
        tick_at(&mut sim, now);
        assert_eq!(sim.in_flight().is_empty(), now < due);
        tick_at(&mut sim, now.max(due));
        sim.done("work", "{}");
        assert!(sim.verify().is_clean());
    }
}

#[test]
fn a_delay_at_the_end_of_time_does_not_overflow() {
    let huge = Backoff { initial_ms: u64::MAX, factor_milli: u32::MAX, max_ms: u64::MAX, jitter_milli: 0 };
    let mut sim = setup(huge).start();
    sim.fail("work", FailureCause::Timeout);
    assert_eq!(next_tick_ms(&sim.state), Some(u64::MAX));
    sim.cancel();
    assert!(sim.verify().is_clean());
}

#[test]
fn a_timeout_of_the_largest_or_of_no_length_is_only_a_number_here() {
    for timeout_ms in [0, u64::MAX] {
        let policy = NodePolicy { timeout_ms: Some(timeout_ms), backoff: None };
        let policies = [("work".to_owned(), policy)].into_iter().collect();
        let mut sim = Setup { policies, ..Setup::of(json!({"nodes": ["work"]})) }.start();
        let dispatch = sim.dispatches().remove(0);
        let timeout = dispatch.timeout_within(std::time::Duration::from_secs(300));
        assert_eq!(timeout, std::time::Duration::from_millis(timeout_ms));
        sim.done("work", "{}");
        assert!(sim.verify().is_clean());
    }
}
