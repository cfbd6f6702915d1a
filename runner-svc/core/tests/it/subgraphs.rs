//! Subgraphs as child runs: derived from frozen pins alone, found again after a crash, bounded by what their parent has left.

use runner_core::{
    budget::{Axis, Budgets, Spent},
    input::Declined,
    manifest::{OnDangling, Tie},
    outcome::{EffectOutcome, FailureCause, RunOutcome},
    owed::{Owed, owed},
    pinned::Executor,
    why::why,
};
use serde_json::{Value, json};

use crate::sim::{Setup, Sim};

/// `left` and `right` beside each other, each a plan of two steps, then `join`.
fn two() -> Setup {
    let plan = json!({
        "nodes": ["fork", "left", "right", "join"],
        "edges": [{"src": "fork", "dst": "left"}, {"src": "fork", "dst": "right"},
                  {"src": "left", "dst": "join"}, {"src": "right", "dst": "join"}]
    });
    Setup { input: r#"{"n":9007199254740993}"#, ..Setup::of(plan) }
        .with_subgraph("left", steps("l"))
        .with_subgraph("right", steps("r"))
}

/// A child run at its beginning.
pub fn child_of_parent() -> Sim {
    forked(two()).start_child("left")
}

fn steps(name: &str) -> Value {
    let (first, second) = (format!("{name}1"), format!("{name}2"));
    json!({"nodes": [first, second], "edges": [{"src": first, "dst": second}]})
}

/// Both subgraphs in flight.
fn forked(setup: Setup) -> Sim {
    let mut sim = setup.start();
    sim.done("fork", "{}");
    sim
}

fn ended(child: &mut Sim, name: &str) {
    child.done(&format!("{name}1"), json!({name: 1}));
    child.done(&format!("{name}2"), json!({name: 2}));
}

#[test]
fn subgraphs_of_one_superstep_are_child_runs_at_the_same_time_and_their_results_merge_in_the_plans_order() {
    let mut sim = forked(two());
    let (mut left, mut right) = (sim.start_child("left"), sim.start_child("right"));
    assert_eq!(sim.in_flight(), ["left", "right"]);
    assert_eq!(left.state.document().text(), r#"{"n":9007199254740993}"#, "a child's input is its parent's state");
    ended(&mut right, "r");
    sim.child_ended("right", &right);
    assert_eq!(sim.in_flight(), ["left"]);
    ended(&mut left, "l");
    sim.child_ended("left", &left);
    sim.done("join", "{}");
    assert_eq!(sim.output(), r#"{"l":2,"n":9007199254740993,"r":2}"#);
    for run in [&sim, &left, &right] {
        assert!(run.verify().is_clean());
    }
}

#[test]
fn a_child_run_is_derived_from_its_parents_journal_and_from_nothing_else() {
    let mut sim = forked(Setup { initiator: Some("user:ann"), ask_ttl_ms: Some(1000), ..two() });
    let child = sim.child("left");
    let (manifest, parent) = (&child.manifest, sim.state.manifest());
    let id = sim.key("left").tool_call_id("r1").to_hex();
    assert_eq!(manifest.run_id.as_str(), format!("r1~{}", &id[..16]));
    assert_eq!((&manifest.principal, &manifest.initiator), (&parent.principal, &parent.initiator));
    assert_eq!(
        (manifest.ask_ttl_ms, manifest.started_at_ms),
        (Some(1000), sim.state.flight(&sim.key("left")).unwrap().since_ms)
    );
    assert_eq!(manifest.parent.as_ref().unwrap().run_id, parent.run_id);
    assert_eq!(manifest.nodes, parent.plans[&manifest.plan_hash].nodes);
    assert_eq!(sim.reopen(sim.entries.len()).child("left"), child, "the same after a crash");
    sim.take_over();
    sim.child_ended("right", &{
        let mut right = sim.start_child("right");
        ended(&mut right, "r");
        right
    });
    assert_eq!(sim.child("left"), child, "and whatever its siblings do");
}

#[test]
fn after_a_crash_a_child_run_is_found_again_and_not_delivered_again() {
    for on_dangling in [OnDangling::Redispatch, OnDangling::Fail] {
        let mut sim = forked(Setup { on_dangling, ..two() });
        let keys = [sim.key("left"), sim.key("right")];
        sim.take_over();
        assert_eq!((sim.count("Redelivered"), sim.count("ResultRecorded")), (0, 1));
        assert_eq!(owed(&sim.state), keys.map(|key| Owed::Child { key }));
        assert!(sim.verify().is_clean());
    }
}

#[test]
fn a_retry_of_a_subgraph_is_another_child_run() {
    let plan = json!({"nodes": ["sub"], "retries": {"sub": 1}});
    let mut sim = Setup::of(plan).with_subgraph("sub", steps("s")).start();
    let mut first = sim.start_child("sub");
    first.fail("s1", FailureCause::Timeout);
    sim.child_ended("sub", &first);
    let mut second = sim.start_child("sub");
    assert_ne!(first.state.run_id(), second.state.run_id());
    ended(&mut second, "s");
    sim.child_ended("sub", &second);
    assert_eq!(sim.output(), r#"{"s":2}"#);
}

#[test]
fn a_childs_end_without_a_result_is_its_parents_failure_with_the_childs_cause() {
    let stalling = json!({"nodes": ["s1", "s2"], "edges": [{"src": "s1", "dst": "s2", "cond": "never"}]});
    type End = fn(&mut Sim);
    let cases: [(Value, End, FailureCause, &str); 4] = [
        (steps("s"), |child| child.fail("s1", FailureCause::ExecutorError), FailureCause::ExecutorError, "it broke"),
        (steps("s"), |child| child.fail("s1", FailureCause::Unknown), FailureCause::Unknown, "it broke"),
        (stalling, |child| child.done("s1", "{}"), FailureCause::ExecutorError, "RUN-E001"),
        (
            steps("s"),
            |child| {
                child.cancel();
                child.fail("s1", FailureCause::UserAborted);
            },
            FailureCause::UserAborted,
            "RUN-E013",
        ),
    ];
    for (plan, end, cause, text) in cases {
        let mut sim = Setup::of(json!({"nodes": ["sub"]})).with_subgraph("sub", plan).start();
        let mut child = sim.start_child("sub");
        end(&mut child);
        sim.child_ended("sub", &child);
        let RunOutcome::Failed { node, failure } = sim.outcome() else { panic!("{:?}", sim.outcome()) };
        assert_eq!((node.as_str(), failure.cause), ("sub", cause));
        let shown = failure.shown();
        assert!(shown.contains(child.state.run_id()) && shown.contains(text), "{shown}");
        assert_eq!(shown.matches("RUN-E").count(), usize::from(text.starts_with("RUN-E")), "{shown}");
        assert!(sim.verify().is_clean());
    }
}

#[test]
fn what_a_child_spent_is_its_parents_and_its_head_is_in_the_parents_journal() {
    let mut sim = forked(two());
    let before = *sim.state.spent();
    let (mut left, mut right) = (sim.start_child("left"), sim.start_child("right"));
    ended(&mut left, "l");
    ended(&mut right, "r");
    sim.child_ended("left", &left);
    let json = sim.entries.iter().map(|entry| entry.event().to_json()).find(|json| json.contains("\"head\""));
    assert!(json.unwrap().contains(&left.state.head().to_hex()));
    sim.child_ended("right", &right);
    let spent = *sim.state.spent();
    assert_eq!((spent.effects, spent.tool_calls), (before.effects + 4 + 1, before.tool_calls + 4 + 1));
    assert_eq!(spent.supersteps, before.supersteps + 4 + 1);
    // They ran at the same time: the longer one counts, and nothing that their parent waited.
    let longest = left.state.spent().wall_ms.max(right.state.spent().wall_ms);
    assert_eq!(spent.wall_ms, before.wall_ms + longest);
}

#[test]
fn what_is_left_of_a_budget_is_shared_evenly_and_given_back_when_it_was_not_used() {
    let budgets = Budgets { max_effects: Some(12), max_fuel: Some(100), ..Budgets::default() };
    let mut sim = forked(Setup { budgets, ..two() });
    // 12 less the fork and the two subgraphs themselves: 9 for two.
    let share = |sim: &Sim, node: &str| sim.child(node).manifest.budgets;
    assert_eq!((share(&sim, "left").max_effects, share(&sim, "right").max_effects), (Some(4), Some(5)));
    assert_eq!((share(&sim, "left").max_fuel, share(&sim, "right").max_tokens), (Some(50), None));
    assert_eq!(share(&sim, "left").max_supersteps, (1024 - 2) / 2);
    let (mut left, mut right) = (sim.start_child("left"), sim.start_child("right"));
    ended(&mut left, "l");
    ended(&mut right, "r");
    sim.child_ended("left", &left);
    sim.child_ended("right", &right);
    assert_eq!(sim.state.spent().effects, 3 + 4 + 1);
    sim.done("join", "{}");
    assert!(matches!(sim.outcome(), RunOutcome::Completed { .. }));
}

#[test]
fn a_child_that_spends_its_share_ends_there_and_its_parents_node_fails_by_name() {
    let budgets = Budgets { max_tool_calls: Some(1), ..Budgets::default() };
    let mut sim = Setup { budgets, ..Setup::of(json!({"nodes": ["sub"]})) }.with_subgraph("sub", steps("s")).start();
    let mut child = sim.start_child("sub");
    child.done("s1", "{}");
    assert_eq!(child.outcome(), &RunOutcome::BudgetExhausted { axis: Axis::ToolCalls, limit: 1 });
    sim.child_ended("sub", &child);
    let RunOutcome::Failed { failure, .. } = sim.outcome() else { panic!("{:?}", sim.outcome()) };
    assert!(failure.permanent && failure.shown().starts_with("RUN-E007: child run r1~"), "{}", failure.shown());
}

#[test]
fn a_child_without_anything_left_to_spend_ends_at_once() {
    let budgets = Budgets { max_supersteps: 1, ..Budgets::default() };
    let sim = Setup { budgets, ..Setup::of(json!({"nodes": ["sub"]})) }.with_subgraph("sub", steps("s")).start();
    let child = sim.start_child("sub");
    assert_eq!(child.outcome(), &RunOutcome::BudgetExhausted { axis: Axis::Supersteps, limit: 0 });
}

#[test]
fn a_canceled_parent_stops_its_children_even_when_it_crashed_meanwhile() {
    let mut sim = forked(two());
    let keys = [sim.key("left"), sim.key("right")];
    sim.cancel();
    sim.take_over();
    assert_eq!(owed(&sim.state), keys.map(|key| Owed::Stop { key }), "their journals went on without it");
    assert!(sim.state.outcome().is_none());
    let mut left = sim.start_child("left");
    left.cancel();
    left.fail("l1", FailureCause::UserAborted);
    sim.child_ended("left", &left);
    sim.fail("right", FailureCause::UserAborted);
    assert!(matches!(sim.outcome(), RunOutcome::Canceled { .. }));
    assert!(sim.state.spent().effects > 3, "what the child spent counts");
    assert!(sim.verify().is_clean());
}

#[test]
fn who_started_the_parent_cannot_answer_a_childs_ask() {
    let setup = Setup { initiator: Some("user:ann"), ..Setup::of(json!({"nodes": ["sub"]})) };
    let sim = setup.with_subgraph("sub", json!({"nodes": ["approve"]})).with("approve", Executor::Person).start();
    let mut child = sim.start_child("sub");
    for (by, tie) in [("user:runner", Tie::Starter), ("user:ann", Tie::Initiator)] {
        assert_eq!(child.answer(by, "{}"), Some(Declined::SelfApproval { by: by.to_owned(), tie }));
    }
    assert_eq!(child.answer("user:bea", "{}"), None);
}

#[test]
fn a_parent_says_which_child_run_it_waits_for() {
    let sim = forked(two());
    let waiting = why(&sim.state);
    assert_eq!(waiting.len(), 2);
    assert!(waiting[0].what.contains(sim.start_child("left").state.run_id()), "{}", waiting[0].what);
}

#[test]
fn subgraphs_nest_and_each_level_knows_only_the_plans_below_it() {
    let setup = Setup::of(json!({"nodes": ["outer"]}))
        .with_subgraph("outer", json!({"nodes": ["inner", "other"], "edges": [{"src": "inner", "dst": "other"}]}))
        .with_subgraph("inner", steps("i"))
        .with_subgraph("other", steps("o"));
    let mut sim = setup.start();
    let mut outer = sim.start_child("outer");
    assert_eq!((sim.state.manifest().plans.len(), outer.state.manifest().plans.len()), (3, 2));
    for (node, name) in [("inner", "i"), ("other", "o")] {
        let mut inner = outer.start_child(node);
        assert!(inner.state.manifest().plans.is_empty());
        assert!(inner.state.run_id().starts_with(&format!("{}~", outer.state.run_id())));
        ended(&mut inner, name);
        outer.child_ended(node, &inner);
    }
    sim.child_ended("outer", &outer);
    assert_eq!(sim.output(), r#"{"i":2,"o":2}"#);
    assert_eq!(sim.state.spent().effects, 1 + 2 + 4);
}

#[test]
fn a_child_that_hands_back_more_than_a_result_may_be_fails_by_name() {
    let mut sim = Setup::of(json!({"nodes": ["sub"]})).with_subgraph("sub", steps("s")).start();
    let large = format!("{{\"s\":\"{}\"}}", "x".repeat(runner_core::input::DOCUMENT_BYTES_MAX));
    let outcome = RunOutcome::Completed { output: runner_core::payload::Payload::new(large) };
    let child = sim.start_child("sub");
    let run_id = &child.state.manifest().run_id;
    let (outcome, usage) = runner_core::child::result(run_id, &outcome, Spent::default(), child.state.head());
    assert!(matches!(outcome, EffectOutcome::Completed { .. }));
    sim.settle("sub", outcome, usage);
    let RunOutcome::Failed { failure, .. } = sim.outcome() else { panic!("{:?}", sim.outcome()) };
    assert!(failure.shown().starts_with("RUN-E015"), "{}", failure.shown());
}
