//! Forks: a run that goes on from where another one was, with its pins, its counters and what it spent.

use content_digest::Digest;
use runner_core::{
    budget::{Axis, Budgets},
    entry::Entry,
    input::Declined,
    lineage::Lineage,
    manifest::{Manifest, Tie},
    outcome::{FailureCause, RunOutcome, Usage},
    pinned::Executor,
    run,
    run_id::RunId,
    state::State,
    why::why,
};
use serde_json::json;

use crate::sim::{Setup, Sim, wasm};

/// The state after the first `entries` of a run, forked under new budgets.
pub fn fork(sim: &Sim, entries: usize, change: impl FnOnce(&mut Manifest)) -> Sim {
    let at = sim.reopen(entries).state;
    let checkpoint = at.checkpoint().expect("a fork goes on from here");
    let mut manifest = Manifest::clone(at.manifest());
    manifest.lineage = Some(Lineage {
        run_id: manifest.run_id.clone(),
        superstep: at.supersteps(),
        sequence: at.events() - 1,
        head: at.head(),
        started_by: vec![manifest.principal.clone()],
        checkpoint: Some(checkpoint),
    });
    manifest.run_id = RunId::parse("forked").unwrap();
    manifest.principal = "user:forker".to_owned();
    manifest.input_digest = at.document().digest();
    change(&mut manifest);
    let (state, entries) = run::start(&manifest, at.document().clone(), sim.now).unwrap();
    Sim { state, entries, now: sim.now }
}

/// Number of entries up to and with the close of a superstep.
pub fn closed(sim: &Sim, superstep: usize) -> usize {
    let mut closes = sim.entries.iter().enumerate().filter(|(_, entry)| entry.event().kind() == "SuperstepClosed");
    closes.nth(superstep - 1).unwrap().0 + 1
}

fn chain() -> Setup {
    let edges = json!([{"src": "a", "dst": "b"}, {"src": "b", "dst": "c"}]);
    Setup::of(json!({"nodes": ["a", "b", "c"], "edges": edges, "retries": {"b": 2}}))
}

#[test]
fn a_fork_goes_on_behind_the_superstep_and_repeats_nothing_before_it() {
    let mut sim = chain().start();
    sim.done("a", r#"{"a": 9007199254740993}"#);
    sim.fail("b", FailureCause::Timeout);
    sim.done("b", r#"{"b": "wrong"}"#);
    let mut forked = fork(&sim, closed(&sim, 1), |_| {});
    assert_eq!(forked.in_flight(), ["b"]);
    assert_eq!(forked.input("b"), r#"{"a":9007199254740993}"#);
    forked.done("b", r#"{"b": "right"}"#);
    forked.done("c", "{}");
    assert_eq!(forked.output(), r#"{"a":9007199254740993,"b":"right"}"#);
    assert_eq!(forked.attempts("a"), [0; 0]);
    assert!(forked.verify().is_clean());
    assert_eq!(forked.state.supersteps(), 3, "supersteps are counted on");
    let mut later = fork(&sim, closed(&sim, 3), |_| {});
    assert_eq!(later.key("c").attempt, 1);
    later.done("c", "{}");
    assert!(later.verify().is_clean());
}

#[test]
fn attempts_and_cycles_are_counted_on() {
    let plan = json!({"nodes": ["a", "b"], "edges": [{"src": "a", "dst": "b"},
        {"src": "b", "dst": "a", "cond": "again", "max_cycles": 2}]});
    let mut sim = Setup::of(plan).start();
    sim.done("a", "{}");
    sim.done("b", r#"{"again": true}"#);
    let mut forked = fork(&sim, closed(&sim, 2), |_| {});
    assert_eq!(forked.key("a").attempt, 2);
    forked.done("a", "{}");
    forked.done("b", r#"{"again": true}"#);
    forked.done("a", "{}");
    forked.done("b", r#"{"again": true}"#);
    assert_eq!(forked.attempts("a"), [2, 3], "the edge back fires twice in all");
    assert!(forked.verify().is_clean());
}

#[test]
fn a_run_whose_budget_is_spent_goes_on_exactly_there_with_a_higher_one() {
    let budgets = Budgets { max_effects: Some(2), ..Budgets::default() };
    let mut sim = Setup { budgets, ..chain() }.start();
    sim.done("a", "{}");
    sim.done("b", "{}");
    assert_eq!(sim.outcome(), &RunOutcome::BudgetExhausted { axis: Axis::Effects, limit: 2 });
    let end = sim.entries.len() - 1;
    let raised = |manifest: &mut Manifest| manifest.budgets.max_effects = Some(3);
    let mut forked = fork(&sim, end, raised);
    assert_eq!((forked.in_flight(), forked.state.spent().effects), (vec!["c"], 3));
    forked.done("c", "{}");
    assert!(matches!(forked.outcome(), RunOutcome::Completed { .. }));
    assert!(forked.verify().is_clean());
    let same = fork(&sim, end, |_| {});
    assert_eq!(same.outcome(), &RunOutcome::BudgetExhausted { axis: Axis::Effects, limit: 2 });
}

#[test]
fn what_settled_in_the_superstep_in_which_the_budget_ended_is_not_done_again() {
    let plan = json!({"nodes": ["s", "a", "b"], "edges": [{"src": "s", "dst": "a"}, {"src": "s", "dst": "b"}]});
    let budgets = Budgets { max_fuel: Some(100), ..Budgets::default() };
    let setup = Setup { budgets, ..Setup::of(plan) }.with("a", wasm()).with("b", wasm());
    let mut sim = setup.start();
    sim.done("s", "{}");
    let used = |fuel| Usage { fuel, ..Usage::default() };
    let result = |text: &str| runner_core::outcome::EffectOutcome::Completed {
        output: runner_core::payload::Payload::new(text),
    };
    while sim.state.outcome().is_none() {
        let node = sim.in_flight()[0].to_owned();
        sim.settle(&node, result(&format!(r#"{{"{node}": 1}}"#)), used(100));
    }
    assert!(matches!(sim.outcome(), RunOutcome::BudgetExhausted { axis: Axis::Fuel, .. }), "{:?}", sim.outcome());
    let raised = |manifest: &mut Manifest| manifest.budgets.max_fuel = Some(1_000_000_000);
    let mut forked = fork(&sim, sim.entries.len() - 1, raised);
    assert_eq!(forked.in_flight(), ["b"], "a has settled");
    forked.settle("b", result(r#"{"b": 1}"#), used(100));
    assert_eq!(forked.output(), r#"{"a":1,"b":1}"#);
    assert!(forked.verify().is_clean());
}

#[test]
fn fan_out_tasks_go_on_where_they_were() {
    let plan =
        json!({"nodes": ["a", "work", "end"], "edges": [{"src": "a", "dst": "work"}, {"src": "work", "dst": "end"}]});
    let mut sim = Setup::of(plan).start();
    sim.done("a", r#"{"$send": [{"node": "work", "input": {"n": 9007199254740993}}, {"node": "work", "input": 2}]}"#);
    let forked = fork(&sim, closed(&sim, 1), |_| {});
    let inputs: Vec<&str> = forked.state.flights().map(|flight| flight.input.text()).collect();
    assert!(inputs.contains(&r#"{"n":9007199254740993}"#) && inputs.contains(&"2"), "{inputs:?}");
    assert!(forked.verify().is_clean());
}

#[test]
fn nobody_who_started_the_run_before_can_answer_the_asks_of_its_fork() {
    let mut sim = chain().with("b", Executor::Person).start();
    sim.done("a", "{}");
    let mut forked = fork(&sim, closed(&sim, 1), |_| {});
    let told = why(&forked.state).remove(0).unblocked_by;
    assert!(told.ends_with("user:forker (started the run), user:runner (of a run that it was forked from)"), "{told}");
    for (who, tie) in [("user:runner", Tie::Before), ("user:forker", Tie::Starter)] {
        assert_eq!(forked.answer(who, "{}"), Some(Declined::SelfApproval { by: who.to_owned(), tie }));
    }
    assert_eq!(forked.answer("user:bea", "{}"), None);
    assert!(forked.verify().is_clean());
}

#[test]
fn there_is_no_checkpoint_while_something_is_in_flight_or_after_a_failure() {
    let mut sim = chain().start();
    assert!(sim.state.checkpoint().is_none());
    sim.fail("a", FailureCause::Unknown);
    let closed = closed(&sim, 1);
    assert!(sim.reopen(closed).state.checkpoint().is_none(), "a fork would fail as this run did");
    assert!(sim.reopen(1).state.checkpoint().is_some(), "before the first superstep");
}

#[test]
fn a_checkpoint_of_another_plan_is_refused() {
    let mut sim = chain().start();
    sim.done("a", "{}");
    let at = sim.reopen(closed(&sim, 1)).state;
    let other = Setup::of(json!({"nodes": ["a", "b"], "edges": [{"src": "a", "dst": "b"}]}));
    let lineage = Lineage {
        run_id: RunId::parse("r1").unwrap(),
        superstep: 1,
        sequence: 4,
        head: Digest::ZERO,
        started_by: Vec::new(),
        checkpoint: at.checkpoint(),
    };
    let input = at.document().clone();
    let manifest = Setup { lineage: Some(lineage), ..other }.manifest(&input);
    let refused = run::start(&manifest, input, sim.now).err().unwrap();
    assert!(refused.problem.contains("RUN-E010"), "{refused}");
    let folded: Result<State, _> = run::fold(&sim.entries as &[Entry]);
    assert!(folded.is_ok());
}
