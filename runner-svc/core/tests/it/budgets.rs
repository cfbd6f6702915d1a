//! Budgets: checked before a superstep opens, from what the journal says was spent.

use runner_core::{
    budget::{Axis, Budgets},
    event::Exchange,
    input::Input,
    outcome::{EffectOutcome, RunOutcome, Usage},
    payload::Payload,
    pinned::Executor,
};
use serde_json::json;

use crate::sim::{Setup, Sim, wasm, wasm_io};

fn chain(budgets: Budgets) -> Setup {
    let plan = json!({"nodes": ["a", "b", "c"], "edges": [{"src": "a", "dst": "b"}, {"src": "b", "dst": "c"}]});
    Setup { budgets, ..Setup::of(plan) }
}

fn exhausted(sim: &Sim, axis: Axis, limit: u64) {
    assert_eq!(sim.outcome(), &RunOutcome::BudgetExhausted { axis, limit });
    assert!(sim.outcome().reason().starts_with("RUN-E007: "), "{}", sim.outcome().reason());
    assert!(sim.verify().is_clean());
}

#[test]
fn supersteps_effects_and_tool_calls_stop_the_run_before_one_too_many() {
    let two = Some(2);
    for (budgets, axis) in [
        (Budgets { max_supersteps: 2, ..Budgets::default() }, Axis::Supersteps),
        (Budgets { max_effects: two, ..Budgets::default() }, Axis::Effects),
        (Budgets { max_tool_calls: two, ..Budgets::default() }, Axis::ToolCalls),
    ] {
        let mut sim = chain(budgets).start();
        sim.done("a", "{}");
        sim.done("b", "{}");
        exhausted(&sim, axis, 2);
        assert_eq!(sim.state.spent().effects, 2);
    }
}

#[test]
fn a_run_that_needs_exactly_its_budget_completes() {
    let budgets = Budgets { max_supersteps: 3, max_effects: Some(3), max_tool_calls: Some(3), ..Budgets::default() };
    let mut sim = chain(budgets).start();
    for node in ["a", "b", "c"] {
        sim.done(node, "{}");
    }
    sim.output();
}

#[test]
fn a_superstep_is_opened_whole_or_not_at_all() {
    let plan = json!({"nodes": ["a", "b", "c"], "edges": [{"src": "a", "dst": "b"}, {"src": "a", "dst": "c"}]});
    let mut sim = Setup { budgets: Budgets { max_effects: Some(2), ..Budgets::default() }, ..Setup::of(plan) }.start();
    sim.done("a", "{}");
    exhausted(&sim, Axis::Effects, 2);
    assert_eq!(sim.count("IntentRecorded"), 1);
}

#[test]
fn asks_are_effects_but_no_tool_calls() {
    let budgets = Budgets { max_tool_calls: Some(2), ..Budgets::default() };
    let mut sim = chain(budgets).with("a", Executor::Person).start();
    sim.answer("user:bea", "{}");
    sim.done("b", "{}");
    sim.done("c", "{}");
    assert_eq!((sim.state.spent().effects, sim.state.spent().tool_calls), (3, 2));
}

#[test]
fn retries_spend_effects_too() {
    let plan = json!({"nodes": ["work"], "retries": {"work": 9}});
    let mut sim = Setup { budgets: Budgets { max_effects: Some(2), ..Budgets::default() }, ..Setup::of(plan) }.start();
    sim.fail("work", runner_core::outcome::FailureCause::Timeout);
    sim.fail("work", runner_core::outcome::FailureCause::Timeout);
    exhausted(&sim, Axis::Effects, 2);
}

#[test]
fn fuel_that_effects_reported_stops_the_next_module() {
    let budgets = Budgets { max_fuel: Some(100), ..Budgets::default() };
    let mut sim = chain(budgets).with("a", wasm()).with("b", wasm()).with("c", wasm()).start();
    assert_eq!(sim.dispatches()[0].fuel_left, Some(100));
    for (node, fuel) in [("a", 60), ("b", 40)] {
        let outcome = EffectOutcome::Completed { output: Payload::new("{}") };
        sim.settle(node, outcome, Usage { fuel, ..Usage::default() });
    }
    exhausted(&sim, Axis::Fuel, 100);
}

#[test]
fn brokered_calls_count_unless_they_were_refused() {
    let budgets = Budgets { max_egress_calls: Some(1), ..Budgets::default() };
    let mut sim = chain(budgets).with("a", wasm_io()).with("b", wasm_io()).start();
    let key = sim.key("a");
    for (ordinal, refused) in [(0, true), (1, false)] {
        let (request, response) = (content_digest::Digest::of("q"), Payload::new(r#"{"status":200,"body":""}"#));
        let exchange = Exchange { ordinal, request, response, record: None, refused };
        assert_eq!(sim.feed(Input::Exchange { key: key.clone(), exchange }).declined, None);
    }
    assert_eq!(sim.dispatches()[0].egress_calls_left, Some(0));
    sim.done("a", "{}");
    exhausted(&sim, Axis::EgressCalls, 1);
}

#[test]
fn active_time_is_measured_from_event_to_event() {
    let mut sim = chain(Budgets { max_wall_ms: Some(1000), ..Budgets::default() }).start();
    sim.now += 1000;
    sim.done("a", "{}");
    exhausted(&sim, Axis::WallMs, 1000);
}

#[test]
fn a_clock_that_jumps_back_or_far_ahead_does_no_harm() {
    let mut sim = chain(Budgets::default()).start();
    sim.now -= 3_600_000;
    sim.done("a", "{}");
    assert_eq!(sim.state.spent().wall_ms, 0);
    sim.now += 10 * 365 * 86_400_000;
    sim.done("b", "{}");
    sim.now = 0;
    sim.done("c", "{}");
    sim.output();
    assert!(sim.verify().is_clean());
}

#[test]
fn journal_bytes_are_bounded() {
    let mut sim = chain(Budgets { max_storage_bytes: Some(20_000), ..Budgets::default() }).start();
    sim.done("a", json!({"x": "y".repeat(20_000)}));
    exhausted(&sim, Axis::StorageBytes, 20_000);
    let stored: u64 = sim.entries.iter().map(runner_core::entry::Entry::stored_bytes).sum();
    assert_eq!(sim.state.spent().storage_bytes, stored);
}
