//! Supersteps, joins, dead paths, loops, retries.

use runner_core::{outcome::FailureCause, outcome::RunOutcome, state::NodeStatus};
use serde_json::{Value, json};

use crate::sim::{Setup, Sim};

fn edge(src: &str, dst: &str) -> Value {
    json!({"src": src, "dst": dst})
}

fn when(src: &str, dst: &str, cond: &str) -> Value {
    json!({"src": src, "dst": dst, "cond": cond})
}

fn back(src: &str, dst: &str, cond: &str, max_cycles: u32) -> Value {
    json!({"src": src, "dst": dst, "cond": cond, "max_cycles": max_cycles})
}

fn start(nodes: &[&str], edges: Vec<Value>) -> Sim {
    Setup::of(json!({"nodes": nodes, "edges": edges})).start()
}

fn status(sim: &Sim, node: &str) -> NodeStatus {
    sim.state.node_status(sim.state.plan().index_of(node).unwrap())
}

#[test]
fn a_chain_runs_node_by_node_on_the_merged_state() {
    let mut sim = start(&["a", "b"], vec![edge("a", "b")]);
    assert_eq!(sim.in_flight(), ["a"]);
    assert_eq!(sim.input("a"), "{}");
    sim.done("a", json!({"x": 1}));
    assert_eq!(sim.in_flight(), ["b"]);
    assert_eq!(sim.input("b"), r#"{"x":1}"#);
    sim.done("b", "[1, 2]");
    assert_eq!(sim.output(), r#"{"b":[1,2],"x":1}"#);
    assert_eq!(
        sim.kinds(),
        [
            "RunStarted",
            "SuperstepOpened",
            "IntentRecorded",
            "ResultRecorded",
            "SuperstepClosed",
            "SuperstepOpened",
            "IntentRecorded",
            "ResultRecorded",
            "SuperstepClosed",
            "RunFinished"
        ]
    );
    assert!(sim.verify().is_clean());
}

#[test]
fn result_close_open_and_the_next_intent_are_one_batch() {
    let mut sim = start(&["a", "b"], vec![edge("a", "b")]);
    let before = sim.entries.len();
    sim.done("a", "{}");
    assert_eq!(&sim.kinds()[before..], ["ResultRecorded", "SuperstepClosed", "SuperstepOpened", "IntentRecorded"]);
}

#[test]
fn ready_nodes_are_dispatched_together_in_the_plans_order() {
    let mut sim = start(&["a", "c", "b"], vec![edge("a", "b"), edge("a", "c")]);
    sim.done("a", "{}");
    assert_eq!(sim.in_flight(), ["c", "b"]);
}

#[test]
fn a_join_waits_for_every_branch() {
    let mut sim = start(
        &["a", "b", "c", "b2", "join"],
        vec![edge("a", "b"), edge("a", "c"), edge("b", "b2"), edge("b2", "join"), edge("c", "join")],
    );
    sim.done("a", "{}");
    sim.done("c", "{}");
    sim.done("b", "{}");
    assert_eq!(sim.in_flight(), ["b2"]);
    sim.done("b2", "{}");
    assert_eq!(sim.in_flight(), ["join"]);
}

#[test]
fn a_branch_that_is_not_taken_dies_and_does_not_hold_up_the_join() {
    let mut sim = start(
        &["a", "b", "b2", "c", "join"],
        vec![when("a", "b", "go"), edge("b", "b2"), edge("b2", "join"), edge("a", "c"), edge("c", "join")],
    );
    sim.done("a", json!({"go": false}));
    assert_eq!((status(&sim, "b"), status(&sim, "b2")), (NodeStatus::Dead, NodeStatus::Dead));
    sim.done("c", "{}");
    assert_eq!(sim.in_flight(), ["join"]);
    sim.done("join", "{}");
    assert_eq!(sim.output(), r#"{"go":false}"#);
}

#[test]
fn a_join_of_dead_branches_is_dead() {
    let mut sim = start(
        &["a", "b", "c", "join", "end"],
        vec![when("a", "b", "b"), when("a", "c", "c"), edge("b", "join"), edge("c", "join"), edge("a", "end")],
    );
    sim.done("a", "{}");
    assert_eq!(status(&sim, "join"), NodeStatus::Dead);
    sim.done("end", "{}");
    assert_eq!(sim.output(), "{}");
}

#[test]
fn edges_see_the_state_after_all_results_of_the_superstep_are_merged() {
    let mut sim = start(
        &["a", "b", "c", "d"],
        vec![edge("a", "b"), edge("a", "c"), when("b", "d", "from_c == 1"), edge("c", "d")],
    );
    sim.done("a", "{}");
    sim.done("b", "{}");
    sim.done("c", json!({"from_c": 1}));
    sim.done("d", "{}");
    let fired: Vec<String> = sim
        .entries
        .iter()
        .filter(|entry| entry.event().kind() == "SuperstepClosed")
        .map(|entry| serde_json::from_str::<Value>(&entry.event().to_json()).unwrap()["fired"].to_string())
        .collect();
    assert_eq!(fired, ["[0,1]", "[2,3]", "[]"]);
}

#[test]
fn a_run_whose_conditions_are_all_false_stalls_at_the_named_node() {
    let mut sim = start(&["a", "b", "c"], vec![when("a", "b", "x == 1"), when("b", "c", "x == 2")]);
    sim.done("a", json!({"x": 1}));
    sim.done("b", "{}");
    assert_eq!(sim.outcome(), &RunOutcome::Stalled { node: "b".to_owned() });
    assert!(sim.outcome().reason().starts_with("RUN-E001: "), "{}", sim.outcome().reason());
    assert!(sim.verify().is_clean());
}

#[test]
fn a_failed_node_ends_the_run_after_its_siblings_settled_naming_the_lowest_index() {
    let mut sim = start(&["a", "b", "c", "d"], vec![edge("a", "b"), edge("a", "c"), edge("a", "d")]);
    sim.done("a", "{}");
    sim.fail("d", FailureCause::UserAborted);
    sim.fail("c", FailureCause::ExecutorError);
    assert!(sim.state.outcome().is_none());
    sim.done("b", json!({"kept": true}));
    let RunOutcome::Failed { node, failure } = sim.outcome() else { panic!("failed") };
    assert_eq!((node.as_str(), failure.cause), ("c", FailureCause::ExecutorError));
    assert_eq!(sim.state.document().text(), r#"{"kept":true}"#);
    assert_eq!((status(&sim, "c"), status(&sim, "b")), (NodeStatus::Failed, NodeStatus::Done));
    assert!(sim.verify().is_clean());
}

#[test]
fn a_loop_goes_round_until_its_condition_is_false() {
    let mut sim = start(
        &["draft", "review", "publish"],
        vec![
            edge("draft", "review"),
            back("review", "draft", "verdict == \"redo\"", 5),
            when("review", "publish", "verdict == \"ok\""),
        ],
    );
    for verdict in ["redo", "redo", "ok"] {
        sim.done("draft", "{}");
        sim.done("review", json!({"verdict": verdict}));
    }
    sim.done("publish", "{}");
    assert_eq!(sim.output(), r#"{"verdict":"ok"}"#);
    assert_eq!(sim.attempts("draft"), [1, 2, 3]);
    assert_eq!(sim.attempts("publish"), [1]);
    assert!(sim.verify().is_clean());
}

#[test]
fn an_edge_fires_at_most_max_cycles_times() {
    let mut sim = start(
        &["draft", "review", "publish"],
        vec![edge("draft", "review"), back("review", "draft", "redo", 2), when("review", "publish", "!redo")],
    );
    for _ in 0..3 {
        sim.done("draft", "{}");
        sim.done("review", json!({"redo": true}));
    }
    assert_eq!(sim.outcome(), &RunOutcome::Stalled { node: "review".to_owned() });
    let mut never = start(&["a", "b"], vec![edge("a", "b"), back("b", "a", "again", 0)]);
    never.done("a", json!({"again": true}));
    never.done("b", "{}");
    assert_eq!(never.output(), r#"{"again":true}"#);
}

#[test]
fn a_node_may_loop_on_itself_and_still_be_the_end() {
    let mut sim = start(&["poll"], vec![back("poll", "poll", "!ready", 10)]);
    sim.done("poll", json!({"ready": false}));
    sim.done("poll", json!({"ready": false}));
    sim.done("poll", json!({"ready": true}));
    assert_eq!(sim.output(), r#"{"ready":true}"#);
    assert_eq!(sim.attempts("poll"), [1, 2, 3]);
}

#[test]
fn a_join_inside_a_loop_waits_for_both_branches_in_every_generation() {
    let mut sim = start(
        &["a", "b", "b2", "c", "join", "end"],
        vec![
            edge("a", "b"),
            edge("a", "c"),
            edge("b", "b2"),
            edge("b2", "join"),
            edge("c", "join"),
            back("join", "a", "again", 3),
            when("join", "end", "!again"),
        ],
    );
    for again in [true, false] {
        sim.done("a", "{}");
        sim.done("c", "{}");
        sim.done("b", "{}");
        assert_eq!(sim.in_flight(), ["b2"], "the short branch does not start the join");
        sim.done("b2", "{}");
        assert_eq!(sim.in_flight(), ["join"]);
        sim.done("join", json!({"again": again}));
    }
    sim.done("end", "{}");
    assert_eq!(sim.attempts("join"), [1, 2]);
    assert!(sim.verify().is_clean());
}

#[test]
fn a_join_behind_a_loop_waits_for_the_loop_and_runs_once() {
    let mut sim = start(
        &["a", "poll", "side", "join"],
        vec![
            edge("a", "poll"),
            edge("a", "side"),
            back("poll", "poll", "!ready", 9),
            when("poll", "join", "ready"),
            edge("side", "join"),
        ],
    );
    sim.done("a", "{}");
    sim.done("side", "{}");
    sim.done("poll", json!({"ready": false}));
    assert_eq!(sim.in_flight(), ["poll"]);
    sim.done("poll", json!({"ready": true}));
    assert_eq!(sim.in_flight(), ["join"]);
    sim.done("join", "{}");
    assert_eq!(sim.attempts("join"), [1]);
    sim.output();
}

#[test]
fn a_path_that_died_in_one_generation_lives_in_the_next() {
    let mut sim = start(
        &["a", "left", "right", "join"],
        vec![
            when("a", "left", "n == 1"),
            when("a", "right", "n == 2"),
            edge("left", "join"),
            edge("right", "join"),
            back("join", "a", "n == 1", 3),
        ],
    );
    sim.done("a", json!({"n": 1}));
    assert_eq!((sim.in_flight(), status(&sim, "right")), (vec!["left"], NodeStatus::Dead));
    sim.done("left", "{}");
    sim.done("join", "{}");
    sim.done("a", json!({"n": 2}));
    assert_eq!(sim.in_flight(), ["right"]);
    sim.done("right", "{}");
    sim.done("join", "{}");
    assert_eq!(sim.output(), r#"{"n":2}"#);
}

#[test]
fn a_retryable_failure_is_tried_again_as_often_as_the_plan_says() {
    let mut sim = Setup::of(json!({"nodes": ["work"], "retries": {"work": 2}})).start();
    sim.fail("work", FailureCause::Timeout);
    sim.fail("work", FailureCause::ExecutorError);
    assert_eq!(sim.key("work").attempt, 3);
    sim.fail("work", FailureCause::ExecutorError);
    assert!(matches!(sim.outcome(), RunOutcome::Failed { .. }));
    assert_eq!(sim.attempts("work"), [1, 2, 3]);
    assert_eq!(sim.count("RetryScheduled"), 2);
    assert!(sim.verify().is_clean());
}

#[test]
fn what_a_person_or_nobody_knows_is_not_tried_again() {
    for cause in [FailureCause::UserAborted, FailureCause::Unknown, FailureCause::SchemaValidationFailed] {
        let mut sim = Setup::of(json!({"nodes": ["work"], "retries": {"work": 5}})).start();
        sim.fail("work", cause);
        assert!(matches!(sim.outcome(), RunOutcome::Failed { .. }), "{cause:?}");
    }
}

#[test]
fn retries_begin_anew_in_each_generation_but_attempts_never_do() {
    let mut sim =
        Setup::of(json!({"nodes": ["poll"], "retries": {"poll": 1}, "edges": [back("poll", "poll", "!ready", 3)]}))
            .start();
    sim.fail("poll", FailureCause::Timeout);
    sim.done("poll", json!({"ready": false}));
    sim.fail("poll", FailureCause::Timeout);
    sim.done("poll", json!({"ready": true}));
    assert_eq!(sim.attempts("poll"), [1, 2, 3, 4]);
    sim.output();
}

#[test]
fn nothing_is_tried_again_once_a_sibling_failed_for_good() {
    for first in ["b", "c"] {
        let plan = json!({"nodes": ["a", "b", "c"], "edges": [edge("a", "b"), edge("a", "c")], "retries": {"b": 3}});
        let mut sim = Setup::of(plan).start();
        sim.done("a", "{}");
        for node in if first == "b" { ["b", "c"] } else { ["c", "b"] } {
            sim.fail(node, FailureCause::ExecutorError);
        }
        assert_eq!(sim.outcome().node(), Some("c"));
        assert_eq!(sim.count("RetryScheduled"), 0);
    }
}

#[test]
fn results_merge_in_the_plans_order_whatever_finished_first() {
    for order in [["b", "c"], ["c", "b"]] {
        let plan = json!({"nodes": ["a", "b", "c"], "edges": [edge("a", "b"), edge("a", "c")],
                          "reducers": {"log": "append", "n": "sum"}});
        let mut sim = Setup::of(plan).start();
        sim.done("a", "{}");
        for node in order {
            sim.done(node, json!({"log": node, "n": 9_007_199_254_740_993_u64, "last": node}));
        }
        assert_eq!(sim.output(), r#"{"last":"c","log":["b","c"],"n":18014398509481986}"#);
    }
}
