//! Shadow runs: a recorded run played by a candidate plan, and what would have been different.

use runner_core::{
    entry::Entry,
    outcome::{FailureCause, RunOutcome},
    pinned::Executor,
    run_id::RunId,
    shadow::{DifferenceKind, Recording, Report},
    state::State,
};
use serde_json::{Value, json};

use crate::sim::{Setup, Sim};

/// Plays the recorded run by another setup.
fn shadow(sim: &Sim, candidate: Setup) -> Report {
    let mut recording = Recording::default();
    let mut state: Option<State> = None;
    for entry in &sim.entries as &[Entry] {
        let after = match state.take() {
            None => State::begin(entry).unwrap(),
            Some(mut state) => {
                state.apply(entry).unwrap();
                state
            }
        };
        recording.take(&after, entry);
        state = Some(after);
    }
    let input = recording.input().unwrap().clone();
    let mut manifest = candidate.manifest(&input);
    manifest.run_id = RunId::parse(sim.state.run_id()).unwrap();
    recording.replay(&manifest).unwrap()
}

fn kinds(report: &Report) -> Vec<(DifferenceKind, u64)> {
    report.differences.iter().map(|difference| (difference.kind, difference.superstep)).collect()
}

fn plan(condition: &str) -> Value {
    json!({"nodes": ["check", "pay", "refuse"], "retries": {"check": 2}, "edges": [
        {"src": "check", "dst": "pay", "cond": condition}, {"src": "check", "dst": "refuse", "cond": "amount == 0"}]})
}

fn recorded() -> Sim {
    let mut sim = Setup { input: r#"{"amount": 7}"#, ..Setup::of(plan("ok")) }.start();
    sim.fail("check", FailureCause::Timeout);
    sim.done("check", r#"{"ok": true}"#);
    sim.done("pay", r#"{"paid": 9007199254740993}"#);
    sim
}

#[test]
fn the_same_plan_makes_no_difference_and_is_played_to_its_end() {
    let sim = recorded();
    let report = shadow(&sim, Setup::of(plan("ok")));
    assert_eq!((report.differences_total, report.stopped.as_deref()), (0, None), "{:?}", report.differences);
    assert_eq!(report.outcome.as_ref(), sim.state.outcome());
    assert_eq!((report.effects_matched, report.supersteps), (3, 3));
}

#[test]
fn an_edge_that_does_not_fire_any_more_is_named_with_its_superstep_and_the_nodes_behind_it() {
    let report = shadow(&recorded(), Setup::of(plan("ok == false")));
    assert_eq!(
        kinds(&report),
        [(DifferenceKind::EdgeDoesNotFire, 2), (DifferenceKind::NodeDoesNotRun, 3), (DifferenceKind::Outcome, 0)]
    );
    assert_eq!(report.differences[0].edge, Some(("check".to_owned(), "pay".to_owned())));
    assert_eq!(report.differences[1].node.as_deref(), Some("pay"));
    assert!(matches!(report.outcome, Some(RunOutcome::Stalled { .. })), "{:?}", report.outcome);
}

#[test]
fn a_node_that_was_never_executed_stops_the_replay_without_a_dispatch() {
    let plan = json!({"nodes": ["check", "audit", "pay"], "edges": [
        {"src": "check", "dst": "audit"}, {"src": "audit", "dst": "pay"}], "retries": {"check": 2}});
    let report = shadow(&recorded(), Setup::of(plan));
    assert_eq!(report.outcome, None);
    assert!(report.stopped.as_ref().unwrap().contains("the recorded run has no tool `audit` attempt 1"), "{report:?}");
    assert_eq!(
        kinds(&report),
        [(DifferenceKind::EdgeFires, 2), (DifferenceKind::EdgeDoesNotFire, 2), (DifferenceKind::NodeRuns, 3)]
    );
}

#[test]
fn another_input_of_a_node_is_told_and_its_recorded_result_taken() {
    let candidate = Setup { locked: [("pay".to_owned(), json!({"currency": "EUR"}))].into(), ..Setup::of(plan("ok")) };
    let report = shadow(&recorded(), candidate);
    assert_eq!(kinds(&report), [(DifferenceKind::Input, 3)]);
    assert_eq!(report.differences[0].node.as_deref(), Some("pay"));
    assert!(matches!(report.outcome, Some(RunOutcome::Completed { .. })));
}

#[test]
fn answers_refusals_and_deadlines_of_people_are_played_too() {
    let setup =
        || Setup { ask_ttl_ms: Some(1000), ..Setup::of(json!({"nodes": ["ask"]})) }.with("ask", Executor::Person);
    let (mut answered, mut refused, mut expired) = (setup().start(), setup().start(), setup().start());
    answered.answer("user:bea", r#"{"ok": true}"#);
    let ask = refused.ask();
    refused.answer_to(ask, "user:bea", r#""no""#, true);
    expired.now += 1000;
    expired.feed_now(runner_core::input::Input::Tick);
    for sim in [answered, refused, expired] {
        let report = shadow(&sim, setup());
        assert_eq!((report.stopped, report.differences_total), (None, 0), "{:?}", report.differences);
        assert_eq!(report.outcome.as_ref(), sim.state.outcome());
    }
}

#[test]
fn an_unfinished_run_is_played_as_far_as_it_came() {
    let mut sim = Setup { input: r#"{"amount": 7}"#, ..Setup::of(plan("ok")) }.start();
    sim.done("check", r#"{"ok": true}"#);
    let report = shadow(&sim, Setup::of(plan("ok")));
    assert_eq!(report.differences_total, 0);
    assert!(report.stopped.unwrap().contains("no result of tool `pay`"));
}
