//! Fan-out: a result that asks for tasks, and what becomes of them.

use runner_core::{
    fan_out::{DEPTH_MAX, TASKS_PER_PARENT_MAX, TASKS_PER_RESULT_MAX},
    input::{Declined, Input},
    key::EffectKey,
    outcome::{EffectOutcome, Failure, FailureCause, FailureCode, RunOutcome, Usage},
    payload::Payload,
    pinned::Executor,
    state::NodeStatus,
};
use serde_json::{Value, json};

use crate::sim::{Setup, Sim, wasm};

/// `split` sends to `work`, `join` comes after.
fn map_reduce() -> Value {
    json!({
        "nodes": ["split", "work", "join"],
        "edges": [{"src": "split", "dst": "work"}, {"src": "work", "dst": "join"}],
        "retries": {"work": 2}, "reducers": {"log": "append", "sum": "sum"}
    })
}

fn sends(node: &str, inputs: impl IntoIterator<Item = Value>) -> Value {
    let items: Vec<Value> = inputs.into_iter().map(|input| json!({"node": node, "input": input})).collect();
    json!({"$send": items})
}

/// `split` has sent so many tasks to `work`.
fn split(count: usize) -> Sim {
    let mut sim = Setup::of(map_reduce()).start();
    sim.done("split", sends("work", (0..count).map(|n| json!({"n": n}))));
    sim
}

fn paths(sim: &Sim) -> Vec<&str> {
    sim.state.flights().map(|flight| flight.key.task_path.as_str()).collect()
}

fn key_of(sim: &Sim, path: &str) -> EffectKey {
    let flight = sim.state.flights().find(|flight| flight.key.task_path == path);
    flight.unwrap_or_else(|| panic!("{path} is not in flight: {:?}", paths(sim))).key.clone()
}

fn settle(sim: &mut Sim, path: &str, outcome: EffectOutcome) {
    let key = key_of(sim, path);
    assert_eq!(sim.feed(Input::Result { key, outcome, usage: Usage::default() }).declined, None);
}

fn done(sim: &mut Sim, path: &str, output: impl ToString) {
    settle(sim, path, EffectOutcome::Completed { output: Payload::new(output.to_string()) });
}

fn fail(sim: &mut Sim, path: &str, cause: FailureCause) {
    settle(sim, path, EffectOutcome::Failed { failure: Failure::new(cause, path) });
}

fn failure(sim: &Sim) -> &Failure {
    match sim.outcome() {
        RunOutcome::Failed { failure, .. } => failure,
        other => panic!("not failed: {}", other.reason()),
    }
}

/// `split` gives this; the sender has to fail with a text that has all of these.
fn refused(output: &Value, words: &[&str]) {
    let setup = Setup::of(map_reduce()).with("join", Executor::Person);
    let mut sim = setup.start();
    sim.done("split", output);
    assert_eq!(sim.outcome().node(), Some("split"), "{output:.200}");
    let failure = failure(&sim);
    assert_eq!((failure.cause, failure.permanent), (FailureCause::SchemaValidationFailed, true));
    for word in words {
        assert!(failure.detail.text().contains(word), "{word:?} in {}", failure.detail.text());
    }
    assert_eq!(sim.count("IntentRecorded"), 1, "all or nothing");
    assert!(sim.verify().is_clean());
}

#[test]
fn each_task_has_a_path_and_an_input_of_its_own_and_the_join_waits_for_all() {
    let mut sim = split(3);
    assert_eq!(paths(&sim), ["split/0000", "split/0001", "split/0002"]);
    assert_eq!(sim.in_flight(), ["work"; 3]);
    for (n, dispatch) in sim.dispatches().iter().enumerate() {
        assert_eq!(dispatch.input.text(), format!(r#"{{"n":{n}}}"#));
        assert_eq!((dispatch.key.attempt, dispatch.node.node.as_str()), (1, "work"));
    }
    done(&mut sim, "split/0002", json!({"log": "two", "sum": 2}));
    done(&mut sim, "split/0000", json!({"log": "zero", "sum": 0}));
    assert_eq!(sim.state.node_status(1), NodeStatus::Dispatched);
    done(&mut sim, "split/0001", json!({"log": "one", "sum": 1}));
    assert_eq!(sim.in_flight(), ["join"], "once");
    assert_eq!(sim.input("join"), r#"{"log":["zero","one","two"],"sum":3}"#, "merged by path");
    sim.done("join", json!({"end": true}));
    assert_eq!(sim.output(), r#"{"end":true,"log":["zero","one","two"],"sum":3}"#);
    assert!(sim.verify().is_clean());
}

#[test]
fn the_rest_of_the_result_is_merged_and_the_reserved_key_is_not() {
    let mut sim = Setup::of(map_reduce()).start();
    sim.done("split", r#"{"kept": 1.10, "\u0024send": [{"input": [9007199254740993, 1.10], "node": "work"}]}"#);
    assert_eq!(sim.state.document().text(), r#"{"kept":1.10}"#);
    assert_eq!(sim.dispatches()[0].input.text(), "[9007199254740993,1.10]", "every digit, and no object");
    done(&mut sim, "split/0000", "7");
    assert_eq!(sim.state.document().text(), r#"{"kept":1.10,"work":7}"#);
}

#[test]
fn a_node_that_tasks_are_sent_to_does_not_run_by_itself_as_well() {
    let mut sim = split(2);
    done(&mut sim, "split/0000", "{}");
    done(&mut sim, "split/0001", "{}");
    assert_eq!(sim.attempts("work"), [1, 1]);
    assert_eq!(sim.in_flight(), ["join"]);
}

#[test]
fn a_target_that_no_edge_fires_into_is_executed_and_is_the_end() {
    let plan = json!({"nodes": ["split", "work"], "edges": [{"src": "split", "dst": "work", "cond": "never"}]});
    let mut sim = Setup::of(plan).start();
    sim.done("split", sends("work", [json!({})]));
    done(&mut sim, "split/0000", json!({"x": 1}));
    assert_eq!(sim.output(), r#"{"x":1}"#);
}

#[test]
fn an_empty_list_sends_nothing() {
    let mut sim = Setup::of(map_reduce()).start();
    sim.done("split", json!({"$send": [], "a": 1}));
    assert_eq!(paths(&sim), [""], "the edge fires as ever");
    assert_eq!(sim.input("work"), r#"{"a":1}"#);
}

#[test]
fn tasks_are_tried_again_one_by_one_and_their_failure_is_the_nodes() {
    let mut sim = split(3);
    done(&mut sim, "split/0001", "{}");
    fail(&mut sim, "split/0002", FailureCause::Timeout);
    fail(&mut sim, "split/0000", FailureCause::ExecutorError);
    assert_eq!(paths(&sim), ["split/0000", "split/0002"], "only what failed");
    assert_eq!(key_of(&sim, "split/0000").attempt, 2);
    done(&mut sim, "split/0000", "{}");
    fail(&mut sim, "split/0002", FailureCause::Timeout);
    fail(&mut sim, "split/0002", FailureCause::Timeout);
    assert_eq!(sim.outcome().node(), Some("work"));
    assert_eq!(failure(&sim).detail.text(), "split/0002");
    assert_eq!(sim.count("RetryScheduled"), 3);
    assert!(sim.verify().is_clean());
}

#[test]
fn the_first_of_several_failed_tasks_is_told() {
    let mut sim = split(3);
    for path in ["split/0002", "split/0000", "split/0001"] {
        fail(&mut sim, path, FailureCause::Unknown);
    }
    assert_eq!((sim.outcome().node(), failure(&sim).detail.text()), (Some("work"), "split/0000"));
}

#[test]
fn a_list_that_is_not_one_of_tasks_fails_the_sender_by_name() {
    let ok = json!({"node": "work", "input": {}});
    refused(&json!({"$send": {"node": "work"}}), &["`$send` is no list"]);
    refused(&json!({"$send": null}), &["`$send` is no list"]);
    refused(&json!({"$send": [ok, 7]}), &["`$send[1]`"]);
    refused(&json!({"$send": [{"node": "work"}]}), &["`$send[0]`", "input"]);
    refused(&json!({"$send": [{"input": {}}]}), &["`$send[0]`", "node"]);
    refused(&json!({"$send": [{"node": 7, "input": {}}]}), &["`$send[0]`"]);
    refused(&json!({"$send": [{"node": "work", "input": {}, "attempt": 9}]}), &["`$send[0]`", "attempt"]);
    refused(&json!({"$send": [ok, {"node": "nobody", "input": {}}]}), &["`$send[1]`", "`nobody`"]);
    refused(&json!({"$send": [ok, {"node": "split", "input": {}}]}), &["`$send[1]`", "the sender"]);
    refused(&json!({"$send": [ok, {"node": "join", "input": {}}]}), &["`$send[1]`", "client", "host"]);
}

#[test]
fn one_result_asks_for_4096_tasks_and_not_for_one_more() {
    let sim = split(TASKS_PER_RESULT_MAX);
    assert_eq!(sim.in_flight().len(), 1024, "a wave of them");
    refused(&sends("work", (0..=TASKS_PER_RESULT_MAX).map(|n| json!(n))), &["4097", "4096"]);
}

#[test]
fn one_node_asks_for_10000_tasks_in_a_run_and_ordinals_go_on() {
    let plan = json!({
        "nodes": ["split", "work"],
        "edges": [{"src": "split", "dst": "work"}, {"src": "work", "dst": "split", "max_cycles": 9}]
    });
    let mut sim = Setup::of(plan).start();
    let mut first = 0;
    for count in [TASKS_PER_RESULT_MAX, TASKS_PER_RESULT_MAX, TASKS_PER_PARENT_MAX - 2 * TASKS_PER_RESULT_MAX] {
        sim.done("split", sends("work", (0..count).map(|_| json!({}))));
        assert_eq!(paths(&sim)[0], format!("split/{first:04}"));
        while sim.in_flight()[0] == "work" {
            let key = sim.key("work");
            let outcome = EffectOutcome::Completed { output: Payload::new("null") };
            sim.feed(Input::Result { key, outcome, usage: Usage::default() });
        }
        first += count;
    }
    sim.done("split", sends("work", [json!({})]));
    assert_eq!(sim.outcome().node(), Some("split"));
    assert!(failure(&sim).detail.text().contains("10001"), "{}", failure(&sim).detail.text());
    assert!(sim.verify().is_clean());
}

#[test]
fn tasks_of_tasks_are_named_after_them_and_go_no_deeper_than_16() {
    let plan = json!({"nodes": ["a", "b", "c"], "edges": [{"src": "a", "dst": "b"}, {"src": "a", "dst": "c"}]});
    let mut sim = Setup::of(plan).start();
    sim.done("a", sends("b", [json!({})]));
    let mut path = "a".to_owned();
    for depth in 1..=DEPTH_MAX {
        path.push_str("/0000");
        if depth == 1 {
            sim.done("c", "{}");
        }
        let to = if depth % 2 == 1 { "c" } else { "b" };
        done(&mut sim, &path, sends(to, [json!({"depth": depth})]));
    }
    assert!(failure(&sim).detail.text().contains("16 levels deep"), "{}", failure(&sim).detail.text());
    assert!(sim.verify().is_clean());
}

#[test]
fn a_node_waits_for_tasks_that_its_own_tasks_led_to() {
    let plan = json!({
        "nodes": ["a", "b", "c", "end"],
        "edges": [{"src": "a", "dst": "b"}, {"src": "b", "dst": "c"}, {"src": "b", "dst": "end"}]
    });
    let mut sim = Setup::of(plan).start();
    sim.done("a", sends("b", [json!({}), json!({})]));
    done(&mut sim, "a/0000", "{}");
    done(&mut sim, "a/0001", sends("c", [json!({"deep": true})]));
    assert_eq!(paths(&sim), ["", "a/0001/0000"], "`end` by its edge, `c` by its task alone");
    sim.done("end", "{}");
    done(&mut sim, "a/0001/0000", sends("b", [json!({"again": true})]));
    assert_eq!(paths(&sim), ["a/0001/0000/0000"]);
    done(&mut sim, "a/0001/0000/0000", "{}");
    let mut last: Vec<&str> = sim.in_flight();
    last.sort_unstable();
    assert_eq!(last, ["c", "end"], "the next generation of what comes after `b`");
    assert!(sim.verify().is_clean());
}

#[test]
fn tasks_are_laid_over_with_locked_parameters_and_have_to_be_objects() {
    let locked = || [("work".to_owned(), json!({"to": "alice"}))].into_iter().collect();
    let mut sim = Setup { locked: locked(), ..Setup::of(map_reduce()) }.start();
    sim.done("split", sends("work", [json!({"z": 1, "to": "mallory", "a": 2}), json!({})]));
    let inputs: Vec<String> = sim.dispatches().iter().map(|dispatch| dispatch.input.text().to_owned()).collect();
    assert_eq!(inputs, [r#"{"a":2,"to":"alice","z":1}"#, r#"{"to":"alice"}"#]);
    assert!(sim.verify().is_clean());
    let mut sim = Setup { locked: locked(), ..Setup::of(map_reduce()) }.start();
    sim.done("split", sends("work", [json!([1])]));
    assert!(failure(&sim).detail.text().contains("locked"), "{}", failure(&sim).detail.text());
}

#[test]
fn a_person_cannot_ask_for_tasks() {
    let mut sim = Setup::of(map_reduce()).with("split", Executor::Person).start();
    let answer = sends("work", [json!({})]).to_string();
    let declined = sim.answer("user:bea", &answer);
    assert!(matches!(declined, Some(Declined::BadDocument { .. })), "{declined:?}");
    assert_eq!(sim.answer("user:bea", r#"{"price": "$send"}"#), None);
}

#[test]
fn a_wide_fan_out_goes_out_in_waves_and_a_failure_stops_the_waves_to_come() {
    let setup = || Setup { wave_effects_max: Some(3), ..Setup::of(map_reduce()) };
    let mut sim = setup().start();
    sim.done("split", sends("work", (0..7).map(|n| json!({"n": n}))));
    let mut waves = Vec::new();
    while sim.in_flight()[0] == "work" {
        waves.push(sim.in_flight().len());
        for path in paths(&sim).into_iter().map(str::to_owned).collect::<Vec<_>>() {
            done(&mut sim, &path, json!({"log": path}));
        }
    }
    assert_eq!(waves, [3, 3, 1]);
    assert_eq!(sim.count("SuperstepOpened"), 3, "one superstep for all waves");
    assert!(sim.verify().is_clean());

    let mut sim = setup().start();
    sim.done("split", sends("work", (0..7).map(|n| json!({"n": n}))));
    fail(&mut sim, "split/0001", FailureCause::Unknown);
    done(&mut sim, "split/0000", "{}");
    assert_eq!(paths(&sim), ["split/0002"], "its siblings in flight settle");
    done(&mut sim, "split/0002", "{}");
    assert_eq!((sim.outcome().node(), sim.count("IntentRecorded")), (Some("work"), 4));
    assert!(sim.verify().is_clean());
}

#[test]
fn a_run_has_so_many_tasks_and_no_more() {
    let plan = json!({"nodes": ["a", "b", "c"], "edges": [{"src": "a", "dst": "b"}, {"src": "b", "dst": "c"}]});
    let mut sim = Setup { wave_effects_max: Some(64), ..Setup::of(plan) }.start();
    let many = sends("c", (0..TASKS_PER_RESULT_MAX).map(|_| json!(0))).to_string();
    sim.done("a", sends("b", (0..25).map(|_| json!({}))));
    for n in 0..25 {
        done(&mut sim, &format!("a/{n:04}"), &many);
    }
    assert_eq!((failure(&sim).code, sim.outcome().node()), (Some(FailureCode::TooLarge), Some("b")));
    assert!(failure(&sim).detail.text().contains("100000 tasks"), "{}", failure(&sim).detail.text());
}

#[test]
fn crashes_lose_no_task_and_send_no_settled_one_again() {
    let setup = Setup { wave_effects_max: Some(4), ..Setup::of(map_reduce()) };
    let mut whole = setup.with("work", wasm()).start();
    whole.done("split", sends("work", (0..6).map(|n| json!({"n": n}))));
    while whole.state.outcome().is_none() {
        let node = whole.in_flight()[0].to_owned();
        whole.done(&node, json!({"log": whole.key(&node).task_path}));
    }
    for cut in 1..whole.entries.len() {
        let mut sim = whole.reopen(cut);
        sim.take_over();
        while sim.state.outcome().is_none() {
            let node = sim.in_flight()[0].to_owned();
            let output = if node == "split" {
                sends("work", (0..6).map(|n| json!({"n": n})))
            } else {
                json!({"log": sim.key(&node).task_path})
            };
            sim.done(&node, output);
        }
        assert_eq!(sim.output(), whole.output(), "cut at {cut}");
        assert!(sim.verify().is_clean(), "cut at {cut}");
    }
}
