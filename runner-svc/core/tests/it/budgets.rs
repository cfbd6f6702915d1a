//! Budgets: checked before a superstep opens, from what the journal says was spent.

use runner_core::{
    budget::{Axis, Budgets},
    event::Exchange,
    input::Input,
    manifest::NodePolicy,
    outcome::{EffectOutcome, Failure, FailureCause, RunOutcome, Usage},
    payload::Payload,
    pinned::{Executor, RuntimeLimits},
    state::NodeStatus,
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
        let exchange = Exchange { ordinal, request, response, record: None, refused, blobs: Vec::new() };
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

/// `a` leads to three tools side by side.
fn tools_side_by_side(max_storage_bytes: u64) -> Sim {
    let edges = json!([{"src": "a", "dst": "b"}, {"src": "a", "dst": "c"}, {"src": "a", "dst": "d"}]);
    let budgets = Budgets { max_storage_bytes: Some(max_storage_bytes), ..Budgets::default() };
    let mut sim = Setup { budgets, ..Setup::of(json!({"nodes": ["a", "b", "c", "d"], "edges": edges})) }.start();
    sim.done("a", "{}");
    sim
}

#[test]
fn effects_that_might_together_pass_the_journals_budget_go_out_one_after_another() {
    const MIB: u64 = 1024 * 1024;
    let mut sim = tools_side_by_side(20 * MIB);
    assert_eq!(sim.in_flight(), ["b", "c"], "each may give a result of 8 MiB");
    sim.done("b", "{}");
    assert_eq!(sim.in_flight(), ["c"], "what is given back counts when the wave has settled");
    sim.done("c", "{}");
    assert_eq!(sim.in_flight(), ["d"]);
    sim.done("d", "{}");
    sim.output();
    assert!(sim.verify().is_clean());
}

#[test]
fn what_happened_is_recorded_past_the_journals_budget_and_nothing_more_is_sent() {
    const MAX: u64 = 100_000;
    let mut sim = tools_side_by_side(MAX);
    assert_eq!(sim.in_flight(), ["b"], "a part of what it may need is left, for one");
    sim.done("b", json!({"b": "x".repeat(60_000)}));
    assert_eq!(sim.in_flight(), ["c"]);
    sim.done("c", json!({"c": "x".repeat(60_000)}));
    exhausted(&sim, Axis::StorageBytes, MAX);
    let stored = sim.state.spent().storage_bytes;
    assert!(stored > MAX && stored < MAX + 70_000, "one result is past it: {stored}");
    let attempted = sim.count("IntentRecorded");
    assert_eq!(attempted, 3, "a, b and c");
}

/// `a` leads to three modules side by side, each of which may burn so much fuel.
fn side_by_side(budgets: Budgets, limit: u64) -> Setup {
    let plan = json!({
        "nodes": ["a", "b", "c", "d"],
        "edges": [{"src": "a", "dst": "b"}, {"src": "a", "dst": "c"}, {"src": "a", "dst": "d"}], "retries": {"b": 1}
    });
    let limits = Some(RuntimeLimits { fuel: Some(limit), ..RuntimeLimits::default() });
    let Executor::Code { digest, runtime, capabilities, .. } = wasm() else { panic!("a module is code") };
    let module = Executor::Code { digest, runtime, limits, capabilities };
    let setup = Setup { budgets, ..Setup::of(plan) };
    setup.with("b", module.clone()).with("c", module.clone()).with("d", module)
}

fn burns(sim: &mut Sim, node: &str, fuel: u64) {
    let outcome = EffectOutcome::Completed { output: Payload::new("{}") };
    sim.settle(node, outcome, Usage { fuel, ..Usage::default() });
}

fn fuel_left(sim: &Sim) -> Vec<Option<u64>> {
    sim.dispatches().iter().map(|dispatch| dispatch.fuel_left).collect()
}

#[test]
fn effects_side_by_side_never_reserve_more_than_is_left_and_what_they_did_not_use_is_given_back() {
    let mut sim = side_by_side(Budgets { max_fuel: Some(100), ..Budgets::default() }, 50).start();
    sim.done("a", "{}");
    assert_eq!((sim.in_flight(), fuel_left(&sim)), (vec!["b", "c"], vec![Some(50), Some(50)]));
    burns(&mut sim, "c", 10);
    assert_eq!(sim.in_flight(), ["b"], "what is given back counts when the wave has settled");
    burns(&mut sim, "b", 10);
    assert_eq!((sim.in_flight(), fuel_left(&sim)), (vec!["d"], vec![Some(50)]));
    burns(&mut sim, "d", 50);
    sim.output();
    assert_eq!(sim.state.spent().fuel, 70);
    assert_eq!(sim.count("SuperstepOpened"), 2);
    assert!(sim.verify().is_clean());
}

#[test]
fn a_module_that_runs_into_the_budgets_end_is_no_failure_of_its_node() {
    let mut sim = side_by_side(Budgets { max_fuel: Some(70), ..Budgets::default() }, 50).start();
    sim.done("a", "{}");
    burns(&mut sim, "b", 50);
    assert_eq!(fuel_left(&sim), [Some(20)], "the rest, for one of them");
    let failure = Failure::new(FailureCause::ExecutorError, "guest exhausted its fuel (limit 20)");
    sim.settle("c", EffectOutcome::Failed { failure }, Usage { fuel: 20, ..Usage::default() });
    exhausted(&sim, Axis::Fuel, 70);
    assert_eq!(sim.count("SuperstepClosed"), 2, "what settled is merged, what did not is due again");
    assert_eq!(sim.state.node_status(2), NodeStatus::Ready);
}

#[test]
fn a_module_that_runs_into_its_own_limit_has_failed() {
    let mut sim = side_by_side(Budgets { max_fuel: Some(1000), ..Budgets::default() }, 50).start();
    sim.done("a", "{}");
    let failure = Failure::new(FailureCause::ExecutorError, "guest exhausted its fuel (limit 50)");
    sim.settle("c", EffectOutcome::Failed { failure }, Usage { fuel: 50, ..Usage::default() });
    burns(&mut sim, "b", 0);
    burns(&mut sim, "d", 0);
    assert_eq!((sim.outcome().node(), sim.state.spent().fuel), (Some("c"), 50), "its fuel is spent all the same");
}

#[test]
fn a_crash_between_two_waves_changes_no_share_and_no_account() {
    let mut whole = side_by_side(Budgets { max_fuel: Some(100), ..Budgets::default() }, 60).start();
    whole.done("a", "{}");
    for (node, fuel) in [("b", 30), ("c", 30), ("d", 40)] {
        assert_eq!(whole.in_flight(), [node]);
        burns(&mut whole, node, fuel);
    }
    for cut in 1..whole.entries.len() {
        let mut sim = whole.reopen(cut);
        sim.take_over();
        while sim.state.outcome().is_none() {
            let node = sim.in_flight()[0].to_owned();
            match node.as_str() {
                "a" => sim.done("a", "{}"),
                "d" => burns(&mut sim, "d", 40),
                _ => burns(&mut sim, &node, 30),
            }
        }
        assert_eq!(sim.output(), whole.output());
        let accounts = |sim: &Sim| (sim.state.spent().fuel, sim.state.spent().effects, sim.state.spent().supersteps);
        assert_eq!(accounts(&sim), accounts(&whole), "cut at {cut}");
    }
}

#[test]
fn brokered_calls_side_by_side_are_reserved_too() {
    let plan = json!({"nodes": ["a", "b", "c"], "edges": [{"src": "a", "dst": "b"}, {"src": "a", "dst": "c"}]});
    let setup =
        |max| Setup { budgets: Budgets { max_egress_calls: max, ..Budgets::default() }, ..Setup::of(plan.clone()) };
    let mut sim = setup(Some(100)).with("b", wasm_io()).with("c", wasm_io()).start();
    sim.done("a", "{}");
    assert_eq!(sim.in_flight(), ["b"], "64 calls each, unless the definition says otherwise");
    assert_eq!(sim.dispatches()[0].egress_calls_left, Some(64));
    sim.done("b", "{}");
    assert_eq!(sim.in_flight(), ["c"]);
    let mut sim = setup(Some(128)).with("b", wasm_io()).with("c", wasm_io()).start();
    sim.done("a", "{}");
    assert_eq!(sim.in_flight(), ["b", "c"]);
}

#[test]
fn a_module_that_fails_for_want_of_calls_that_the_budget_did_not_have_is_no_failure_of_its_node() {
    let budgets = Budgets { max_egress_calls: Some(1), ..Budgets::default() };
    let mut sim = chain(budgets).with("a", wasm_io()).start();
    let (request, response) = (content_digest::Digest::of("q"), Payload::new(r#"{"status":200,"body":""}"#));
    let exchange = Exchange { ordinal: 0, request, response, record: None, refused: false, blobs: Vec::new() };
    let key = sim.key("a");
    assert_eq!(sim.feed(Input::Exchange { key, exchange }).declined, None);
    sim.fail("a", FailureCause::ExecutorError);
    exhausted(&sim, Axis::EgressCalls, 1);
}

#[test]
fn nothing_is_waited_for_longer_than_active_time_is_left() {
    let slow = NodePolicy { timeout_ms: Some(5000), backoff: None };
    let setup = |max| Setup {
        policies: [("b".to_owned(), slow)].into_iter().collect(),
        ..chain(Budgets { max_wall_ms: Some(max), ..Budgets::default() })
    };
    let default = std::time::Duration::from_secs(300);
    let timeout = |sim: &Sim| u64::try_from(sim.dispatches()[0].timeout_within(default).as_millis()).unwrap();
    let mut sim = setup(8000).start();
    assert_eq!(timeout(&sim), 8000);
    sim.now += 999;
    sim.done("a", "{}");
    assert_eq!(timeout(&sim), 5000, "its own");
    sim.now += 3999;
    sim.done("b", "{}");
    assert_eq!(timeout(&sim), 3000);
    sim.now += 2999;
    sim.fail("c", FailureCause::Timeout);
    exhausted(&sim, Axis::WallMs, 8000);
    let mut sim = setup(8000).start();
    sim.now += 6999;
    sim.fail("a", FailureCause::Timeout);
    assert_eq!(sim.outcome().node(), Some("a"), "with time left it is the node's own failure");
}

#[test]
fn tokens_and_cost_that_effects_report_are_spent() {
    let mut sim = chain(Budgets::default()).start();
    let outcome = EffectOutcome::Completed { output: Payload::new("{}") };
    sim.settle("a", outcome, Usage { tokens: 70, usd_micros: 9, ..Usage::default() });
    assert_eq!((sim.state.spent().tokens, sim.state.spent().usd_micros), (70, 9));
    let folded = sim.reopen(sim.entries.len());
    assert_eq!(folded.state.spent(), sim.state.spent());
}
