//! A crash and a new process: what is sent again, what is not, and how it is told.

use runner_core::{
    event::Exchange,
    input::{Declined, Input},
    manifest::{NodePolicy, OnDangling},
    outcome::{EffectOutcome, FailureCause, FailureCode, RunOutcome, Usage},
    owed::{Owed, owed, owed_after},
    payload::Payload,
    pinned::Executor,
    retry::Backoff,
};
use serde_json::json;

use crate::sim::{Setup, Sim, native, wasm, wasm_io};

fn crashed(setup: Setup) -> Sim {
    let sim = setup.start();
    sim.reopen(sim.entries.len())
}

fn failing(setup: Setup) -> Setup {
    Setup { on_dangling: OnDangling::Fail, ..setup }
}

#[test]
fn a_pure_effect_is_sent_again_silently() {
    for setup in [Setup::default(), failing(Setup::default())] {
        let mut sim = crashed(setup.with("work", wasm()));
        let before = sim.dispatches();
        let fed = sim.take_over();
        assert_eq!(fed.entries.len(), 1, "LeaseTaken alone");
        assert_eq!(sim.dispatches(), before);
    }
}

#[test]
fn an_opaque_effect_is_redelivered_with_the_same_idempotency_key() {
    for executor in [Executor::HostTool, native()] {
        let mut sim = crashed(Setup::default().with("work", executor));
        let before = sim.dispatches()[0].clone();
        let fed = sim.take_over();
        assert_eq!(sim.last().kind(), "Redelivered");
        let after = sim.dispatches()[0].clone();
        assert_eq!((before.dispatches, after.dispatches), (1, 2));
        assert_eq!((before.idempotency_key(), before.key), (after.idempotency_key(), after.key.clone()));
        assert_eq!(owed_after(&sim.state, &fed.entries), [Owed::Dispatch(Box::new(after))]);
        sim.done("work", "{}");
        assert_eq!(sim.attempts("work"), [1], "a redelivery is no attempt");
        assert!(sim.verify().is_clean());
    }
}

#[test]
fn on_dangling_fail_ends_the_run_as_e008() {
    for executor in [Executor::HostTool, native(), wasm_io()] {
        let plan = json!({"nodes": ["work"], "retries": {"work": 5}});
        let mut sim = crashed(failing(Setup::of(plan)).with("work", executor));
        sim.take_over();
        let RunOutcome::Failed { failure, .. } = sim.outcome() else { panic!("failed") };
        assert_eq!((failure.code, failure.cause), (Some(FailureCode::DanglingIntent), FailureCause::Unknown));
        assert!(sim.outcome().reason().starts_with("RUN-E008: "), "{}", sim.outcome().reason());
        assert!(sim.verify().is_clean());
    }
}

#[test]
fn a_brokered_effect_is_redelivered_with_its_recorded_exchanges() {
    let mut sim = Setup::default().with("work", wasm_io()).start();
    let key = sim.key("work");
    let exchange = Exchange {
        ordinal: 0,
        request: content_digest::Digest::of("request"),
        response: Payload::new(r#"{"status":200,"body":"hi"}"#),
        record: Some(Payload::new(r#"{"host":"api.example.com"}"#)),
        refused: false,
        blobs: Vec::new(),
    };
    sim.feed(Input::Exchange { key: key.clone(), exchange: exchange.clone() });
    let mut sim = sim.reopen(sim.entries.len());
    sim.take_over();
    assert_eq!(sim.dispatches()[0].exchanges, std::slice::from_ref(&exchange));
    let again = sim.feed(Input::Exchange { key: key.clone(), exchange });
    assert_eq!(again.declined, Some(Declined::ExchangeOutOfOrder { key, expected: 1, found: 0 }));
    assert!(sim.verify().is_clean());
}

#[test]
fn a_recorded_result_is_never_dispatched_again() {
    let plan = json!({"nodes": ["a", "b", "c"], "edges": [{"src": "a", "dst": "b"}, {"src": "a", "dst": "c"}]});
    let mut sim = Setup::of(plan).start();
    sim.done("a", "{}");
    sim.done("c", "{}");
    let mut sim = sim.reopen(sim.entries.len());
    sim.take_over();
    assert_eq!(sim.in_flight(), ["b"]);
}

#[test]
fn a_crash_costs_no_attempt() {
    let mut sim = Setup::of(json!({"nodes": ["work"], "retries": {"work": 2}})).start();
    for _ in 0..3 {
        sim = sim.reopen(sim.entries.len());
        sim.take_over();
        sim = sim.reopen(sim.entries.len());
        sim.take_over();
        sim.fail("work", FailureCause::ExecutorError);
    }
    assert!(matches!(sim.outcome(), RunOutcome::Failed { .. }));
    assert_eq!(sim.attempts("work"), [1, 2, 3]);
}

#[test]
fn an_ask_survives_a_crash_and_is_asked_once() {
    let mut sim = crashed(Setup::default().with("work", Executor::Person));
    let ask = sim.ask();
    sim.take_over();
    assert_eq!(sim.ask(), ask);
    assert_eq!(owed(&sim.state), [Owed::WaitAsk { tool_call_id: ask, deadline_ms: None }]);
    assert_eq!(sim.count("AskRaised"), 1);
    sim.answer("user:bea", "{}");
    sim.output();
}

#[test]
fn a_takeover_needs_a_higher_fence() {
    let mut sim = crashed(Setup::default());
    sim.take_over();
    let stale = Input::TakeOver { holder: "x".to_owned(), fence: 1 };
    assert_eq!(sim.feed(stale).declined, Some(Declined::StaleFence { last: 1, found: 1 }));
}

#[test]
fn the_time_in_which_no_process_had_the_run_is_not_active() {
    let mut sim = crashed(Setup::default());
    sim.now += 1_000_000;
    sim.take_over();
    sim.now += 10;
    let outcome = EffectOutcome::Completed { output: Payload::new("{}") };
    let key = sim.key("work");
    sim.feed_now(Input::Result { key, outcome, usage: Usage::default() });
    assert_eq!(sim.state.spent().wall_ms, 10);
}

#[test]
fn a_batch_that_was_cut_is_completed_by_the_process_that_takes_over_and_what_it_decides_on_is_not_in_doubt() {
    let plan = json!({"nodes": ["a", "b"], "edges": [{"src": "a", "dst": "b"}]});
    for on_dangling in [OnDangling::Redispatch, OnDangling::Fail, OnDangling::Ask] {
        let mut sim = Setup { on_dangling, ..Setup::of(plan.clone()) }.start();
        sim.done("a", "{}");
        let cut = sim.entries.len() - 3;
        let mut sim = sim.reopen(cut);
        sim.take_over();
        assert_eq!(&sim.kinds()[cut..], ["LeaseTaken", "SuperstepClosed", "SuperstepOpened", "IntentRecorded"]);
        sim.done("b", "{}");
        sim.output();
        assert!(sim.verify().is_clean());
    }
}

#[test]
fn an_attempt_whose_delay_ended_while_no_process_had_the_run_is_not_in_doubt() {
    for on_dangling in [OnDangling::Redispatch, OnDangling::Fail, OnDangling::Ask] {
        let backoff = Backoff { initial_ms: 1000, factor_milli: 1000, max_ms: 1000, jitter_milli: 0 };
        let policy = NodePolicy { timeout_ms: None, backoff: Some(backoff) };
        let plan = json!({"nodes": ["work"], "retries": {"work": 1}});
        let policies = [("work".to_owned(), policy)].into_iter().collect();
        let mut sim = Setup { on_dangling, policies, ..Setup::of(plan) }.start();
        sim.fail("work", FailureCause::Timeout);
        let crash = sim.entries.len();
        let mut sim = sim.reopen(crash);
        sim.now += 5000;
        sim.take_over();
        assert_eq!(&sim.kinds()[crash..], ["LeaseTaken", "SuperstepOpened", "IntentRecorded"], "{on_dangling:?}");
        sim.done("work", "{}");
        sim.output();
        assert!(sim.verify().is_clean());
    }
}

#[test]
fn a_run_whose_last_event_was_cut_off_ends_with_its_takeover() {
    let mut sim = Setup::of(json!({"nodes": ["a"]})).start();
    sim.done("a", "{}");
    let mut sim = sim.reopen(sim.entries.len() - 1);
    assert_eq!(sim.take_over().declined, None);
    assert_eq!(sim.last().kind(), "RunFinished");
    assert!(sim.verify().is_clean());
}
