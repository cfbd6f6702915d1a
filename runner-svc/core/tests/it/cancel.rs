//! Cancel: one terminal event, nothing dispatched after it, nothing appended after the end.

use runner_core::{
    effects,
    event::Event,
    input::{Declined, Input},
    manifest::NodePolicy,
    outcome::{EffectOutcome, Failure, FailureCause, RunOutcome, Usage},
    owed::{Owed, next_tick_ms, owed},
    payload::Payload,
    pinned::Executor,
    retry::Backoff,
    state::AskEnd,
    why::why,
};
use serde_json::json;

use crate::sim::{Setup, Sim};

fn chain() -> Sim {
    Setup::of(json!({"nodes": ["a", "b"], "edges": [{"src": "a", "dst": "b"}], "retries": {"a": 3}})).start()
}

fn canceled(sim: &Sim) {
    let expected = RunOutcome::Canceled { by: "user:boss".to_owned(), reason: "enough".to_owned() };
    assert_eq!(sim.outcome(), &expected);
    assert_eq!(sim.outcome().reason(), "RUN-E013: canceled by user:boss: enough");
    assert_eq!(sim.count("RunFinished"), 1);
    assert!(owed(&sim.state).is_empty() && why(&sim.state).is_empty());
    assert!(sim.verify().is_clean());
}

#[test]
fn an_effect_in_flight_is_stopped_and_then_the_run_ends() {
    let mut sim = chain();
    let key = sim.key("a");
    assert_eq!(sim.cancel_only().declined, None);
    assert!(sim.state.owes_revocation());
    assert!(why(&sim.state)[0].what.contains("egress tokens after cancel by user:boss"));
    assert_eq!(sim.feed(Input::Revoked { tokens: 3 }).declined, None);
    assert_eq!(sim.feed(Input::Revoked { tokens: 9 }).declined, Some(Declined::NotRevoking));
    assert_eq!(owed(&sim.state), [Owed::Stop { key }]);
    assert!(why(&sim.state)[0].what.contains("after cancel by user:boss"));
    sim.fail("a", FailureCause::UserAborted);
    canceled(&sim);
    assert_eq!(sim.count("IntentRecorded"), 1);
    let receipt = sim.state.cancel_receipt().unwrap();
    assert_eq!((receipt.sequence, receipt.effects_stopped, receipt.tokens_revoked), (3, 1, 3));
    assert_eq!(sim.reopen(sim.entries.len()).state.cancel_receipt(), Some(receipt), "the journal keeps the receipt");
}

#[test]
fn a_run_does_not_end_before_its_tokens_are_dead() {
    let mut sim = chain();
    sim.cancel_only();
    sim.fail("a", FailureCause::UserAborted);
    assert_eq!(sim.state.outcome(), None);
    sim.feed(Input::Revoked { tokens: 0 });
    canceled(&sim);
}

#[test]
fn a_run_that_backs_off_between_two_attempts_ends_at_once() {
    let backoff = Backoff { initial_ms: 60_000, factor_milli: 2000, max_ms: 60_000, jitter_milli: 0 };
    let policies = [("a".to_owned(), NodePolicy { timeout_ms: None, backoff: Some(backoff) })].into();
    let plan = json!({"nodes": ["a"], "retries": {"a": 3}});
    let mut sim = Setup { policies, ..Setup::of(plan) }.start();
    sim.fail("a", FailureCause::Timeout);
    assert_eq!(sim.in_flight().len(), 0);
    sim.cancel();
    canceled(&sim);
    assert_eq!(next_tick_ms(&sim.state), None);
}

#[test]
fn a_result_that_came_through_is_kept_but_nothing_follows_from_it() {
    let mut sim = chain();
    sim.cancel();
    sim.done("a", "{}");
    canceled(&sim);
    assert_eq!(sim.attempts("b"), [0; 0]);
    let mut sim = chain();
    sim.cancel();
    sim.fail("a", FailureCause::Timeout);
    canceled(&sim);
    assert_eq!(sim.count("RetryScheduled"), 0);
}

#[test]
fn a_run_that_waits_for_people_ends_at_once() {
    let mut sim = Setup::default().with("work", Executor::Person).start();
    let ask = sim.ask();
    sim.cancel();
    canceled(&sim);
    let Some(Declined::AskSettled { settled: Some(settled), .. }) = sim.answer_to(ask, "user:bea", "{}", false) else {
        panic!("settled")
    };
    assert_eq!((settled.end, settled.by), (AskEnd::Canceled, None));
    assert_eq!(effects::list(&sim.entries).unwrap()[0].status(), "failed", "no question stays pending");
    assert_eq!(sim.state.cancel_receipt().unwrap().effects_stopped, 0, "a question is no effect that stops");
}

#[test]
fn a_second_cancel_changes_nothing() {
    let mut sim = chain();
    sim.cancel();
    let events = sim.entries.len();
    assert_eq!(sim.cancel().declined, Some(Declined::Canceling));
    sim.fail("a", FailureCause::UserAborted);
    assert_eq!(sim.cancel().declined, Some(Declined::Finished));
    assert_eq!(sim.entries.len(), events + 2);
}

#[test]
fn nothing_is_appended_to_a_run_that_has_ended() {
    let mut sim = Setup::default().start();
    let key = sim.key("work");
    sim.done("work", "{}");
    let events = sim.entries.len();
    let outcome = EffectOutcome::Failed { failure: Failure::new(FailureCause::Timeout, "late") };
    for input in [
        Input::Result { key: key.clone(), outcome, usage: Usage::default() },
        Input::Cancel { by: "user:boss".to_owned(), reason: String::new() },
        Input::TakeOver { holder: "x".to_owned(), fence: 9 },
        Input::Egress { key, refused: false, record: Payload::new("{}") },
        Input::Tick,
    ] {
        assert_eq!(sim.feed(input).declined, Some(Declined::Finished));
    }
    assert_eq!(sim.entries.len(), events);
}

#[test]
fn a_canceling_run_whose_process_died_ends_at_takeover() {
    let mut sim = chain();
    sim.cancel();
    for entries in [sim.entries.len() - 1, sim.entries.len()] {
        let mut sim = sim.reopen(entries);
        let key = sim.key("a");
        sim.take_over();
        if sim.state.owes_revocation() {
            sim.feed(Input::Revoked { tokens: 2 });
        }
        assert_eq!(
            owed(&sim.state),
            [Owed::Stop { key }],
            "what went down with the process is stopped by the next one"
        );
        sim.fail("a", FailureCause::UserAborted);
        canceled(&sim);
        let rows = effects::list(&sim.entries).unwrap();
        assert!(rows.iter().all(|row| row.status() != "pending"), "no effect stays without a result");
    }
}

#[test]
fn notes_are_cut() {
    let mut sim = chain();
    let long = "x".repeat(100_000);
    sim.feed(Input::Cancel { by: long.clone(), reason: long });
    assert!(sim.entries.iter().all(|entry| entry.record().len() < 4096));
    assert!(matches!(sim.last(), Event::CancelRequested { .. }));
}
