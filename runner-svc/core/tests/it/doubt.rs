//! `on_dangling: ask`: a person says what became of an effect that was in flight when its process ended.

use content_digest::Digest;
use runner_core::{
    effects,
    input::{Declined, Input},
    manifest::{OnDangling, Tie},
    outcome::{FailureCause, RunOutcome},
    owed::{Owed, next_tick_ms, owed},
    pinned::Executor,
    state::Status,
    why::why,
};
use serde_json::{Value, json};

use crate::sim::{Setup, Sim, T0, wasm, wasm_io};

fn asking() -> Setup {
    let plan = json!({"nodes": ["a", "b"], "edges": [{"src": "a", "dst": "b"}], "retries": {"a": 3}});
    Setup { on_dangling: OnDangling::Ask, ..Setup::of(plan) }
}

/// A run whose effect of `a` was in flight when its process ended.
fn doubted(setup: Setup) -> Sim {
    let sim = setup.start();
    let mut sim = sim.reopen(sim.entries.len());
    sim.take_over();
    sim
}

#[test]
fn a_person_is_asked_and_nothing_is_sent_until_somebody_decides() {
    let sim = doubted(asking());
    let ask = sim.ask();
    assert_eq!(sim.last().kind(), "AskRaised");
    assert_eq!(owed(&sim.state), [Owed::WaitAsk { tool_call_id: ask, deadline_ms: None }]);
    assert_eq!(sim.state.status(), Status::Waiting);
    let asks: Vec<_> = sim.state.asks().collect();
    assert!(asks[0].description().contains("nobody knows whether it happened"), "{}", asks[0].description());
    let question: Value = asks[0].flight.input.parse().unwrap();
    assert_eq!((&question["effect"]["node"], &question["effect"]["attempt"]), (&json!("a"), &json!(1)));
    assert!(asks[0].answer_schema().unwrap()["properties"]["decision"].is_object());
    let waiting = why(&sim.state);
    assert!(waiting[0].what.contains(&ask.to_hex()) && waiting[0].what.contains("was in flight"), "{waiting:?}");
    assert!(sim.verify().is_clean());
}

#[test]
fn redispatch_sends_it_again_under_the_same_name() {
    let mut sim = doubted(asking());
    let key = sim.key("a");
    assert_eq!(sim.answer("user:bea", r#"{"decision":"redispatch"}"#), None);
    assert_eq!(sim.last().kind(), "Redelivered");
    let dispatches = sim.dispatches();
    assert_eq!((dispatches.len(), dispatches[0].dispatches, &dispatches[0].key), (1, 2, &key));
    sim.done("a", "{}");
    sim.done("b", "{}");
    assert_eq!(sim.output(), "{}");
    assert!(sim.verify().is_clean());
}

#[test]
fn fail_fails_the_node_for_good_and_says_who_decided() {
    let mut sim = doubted(asking());
    assert_eq!(sim.answer("user:bea", r#"{"decision":"fail","reason":"it was paid twice"}"#), None);
    let RunOutcome::Failed { node, failure } = sim.outcome() else { panic!("failed") };
    assert_eq!((node.as_str(), failure.cause), ("a", FailureCause::Unknown));
    assert!(sim.outcome().reason().starts_with("RUN-E008: "), "{}", sim.outcome().reason());
    assert!(failure.detail.text().contains("user:bea let it fail: it was paid twice"), "{}", failure.detail.text());
    assert!(sim.verify().is_clean());
}

#[test]
fn a_result_that_a_person_knows_is_taken_with_every_digit() {
    let mut sim = doubted(asking());
    let answer = r#"{"decision":"result","result":{"id":9007199254740993,"rate":1.10}}"#;
    assert_eq!(sim.answer("user:bea", answer), None);
    sim.done("b", "{}");
    assert_eq!(sim.output(), r#"{"id":9007199254740993,"rate":1.10}"#);
    assert_eq!(sim.attempts("a"), [1], "it is not dispatched again");
    assert!(sim.verify().is_clean());
}

#[test]
fn an_answer_that_is_no_decision_is_evidence_and_the_ask_stays_open() {
    let setup = asking();
    let schema = json!({"type": "object", "required": ["id"]});
    let mut sim = doubted(Setup { output_schemas: [("a", schema)].into(), ..setup });
    let ask = sim.ask();
    for answer in [
        "{}",
        r#"{"decision":"maybe"}"#,
        r#"{"decision":"result"}"#,
        r#"{"decision":"fail","result":1}"#,
        r#"{"decision":"redispatch","also":1}"#,
        r#"{"decision":"result","result":{"no":"id"}}"#,
    ] {
        assert!(matches!(sim.answer("user:bea", answer), Some(Declined::WrongAnswer { .. })), "{answer}");
        assert_eq!(sim.last().kind(), "AskRejected");
    }
    assert_eq!(sim.ask(), ask);
    assert_eq!(sim.answer("user:bea", r#"{"decision":"result","result":{"id":1}}"#), None);
    assert!(sim.verify().is_clean());
}

#[test]
fn the_starter_cannot_decide_and_whoever_refuses_lets_it_fail() {
    let mut sim = doubted(asking());
    let declined = sim.answer("user:runner", r#"{"decision":"redispatch"}"#);
    assert_eq!(declined, Some(Declined::SelfApproval { by: "user:runner".to_owned(), tie: Tie::Starter }));
    let ask = sim.ask();
    assert_eq!(sim.answer_to(ask, "user:bea", r#""I cannot know""#, true), None);
    assert!(sim.outcome().reason().contains("I cannot know"), "{}", sim.outcome().reason());
    assert!(sim.verify().is_clean());
}

#[test]
fn a_question_that_nobody_answers_in_time_fails_the_node() {
    let mut sim = doubted(Setup { ask_ttl_ms: Some(1000), ..asking() });
    let deadline = next_tick_ms(&sim.state).unwrap();
    assert!((T0 + 1000..T0 + 2000).contains(&deadline));
    sim.now = deadline;
    sim.feed_now(Input::Tick);
    assert!(sim.outcome().reason().starts_with("RUN-E008: "), "{}", sim.outcome().reason());
    assert!(sim.verify().is_clean());
}

#[test]
fn the_question_survives_a_crash_and_another_crash_asks_another_one() {
    let sim = doubted(asking());
    let first = sim.ask();
    let mut sim = sim.reopen(sim.entries.len());
    sim.take_over();
    assert_eq!(sim.ask(), first, "an open question is not asked again");
    assert_eq!(sim.answer("user:bea", r#"{"decision":"redispatch"}"#), None);
    let mut sim = sim.reopen(sim.entries.len());
    sim.take_over();
    let second = sim.ask();
    assert_ne!(second, first, "what became of the second delivery is another question");
    assert_eq!(
        sim.answer_to(first, "user:bea", r#"{"decision":"redispatch"}"#, false),
        None,
        "the call of before, again"
    );
    assert_eq!(sim.answer("user:bea", r#"{"decision":"result","result":{}}"#), None);
    let rows = effects::list(&sim.entries).unwrap();
    let rows: Vec<(&str, &str, u32)> =
        rows.iter().map(|row| (row.key.kind.as_str(), row.status(), row.dispatches)).collect();
    assert_eq!(
        rows,
        [("tool", "completed", 2), ("ask", "completed", 1), ("ask", "completed", 1), ("tool", "pending", 1)]
    );
    assert!(sim.verify().is_clean());
}

#[test]
fn each_effect_in_doubt_is_a_question_of_its_own_and_pure_ones_are_none() {
    let plan = json!({"nodes": ["s", "tool", "io", "pure", "ask"], "edges": [
        {"src": "s", "dst": "tool"}, {"src": "s", "dst": "io"}, {"src": "s", "dst": "pure"}, {"src": "s", "dst": "ask"}]});
    let setup = Setup { on_dangling: OnDangling::Ask, ..Setup::of(plan) };
    let mut sim = setup.with("io", wasm_io()).with("pure", wasm()).with("ask", Executor::Person).start();
    sim.done("s", "{}");
    let mut sim = sim.reopen(sim.entries.len());
    sim.take_over();
    let asks: Vec<(Digest, Option<String>)> =
        sim.state.asks().map(|ask| (ask.tool_call_id, ask.about.map(|key| key.node.clone()))).collect();
    let about: Vec<Option<&str>> = asks.iter().map(|(_, about)| about.as_deref()).collect();
    assert_eq!(about, [None, Some("tool"), Some("io")]);
    assert_eq!(sim.dispatches().iter().map(|dispatch| dispatch.key.node.as_str()).collect::<Vec<_>>(), ["pure"]);
    assert_eq!(sim.state.status(), Status::Running);
    sim.done("pure", "{}");
    assert_eq!(sim.state.status(), Status::Waiting);
    assert_eq!(sim.answer_to(asks[1].0, "user:bea", r#"{"decision":"result","result":{"t":1}}"#, false), None);
    assert_eq!(sim.answer_to(asks[2].0, "user:bea", r#"{"decision":"redispatch"}"#, false), None);
    sim.done("io", "{}");
    assert_eq!(sim.answer_to(asks[0].0, "user:bea", "{}", false), None);
    assert_eq!(sim.output(), r#"{"t":1}"#);
    assert!(sim.verify().is_clean());
}

#[test]
fn an_effect_whose_executor_was_lost_is_asked_about_like_one_after_a_crash() {
    let mut sim = asking().start();
    let key = sim.key("a");
    let lost = Input::Lost { key: key.clone(), why: "the sandbox is gone".to_owned() };
    assert_eq!(sim.feed(lost.clone()).declined, None);
    assert_eq!(sim.kinds()[3..], ["EffectLost", "AskRaised"]);
    assert_eq!(sim.feed(lost).declined, Some(Declined::NotInFlight { key }));
    assert_eq!(sim.answer("user:bea", r#"{"decision":"redispatch"}"#), None);
    sim.done("a", "{}");
    assert!(sim.verify().is_clean());
}

#[test]
fn a_cancel_closes_the_question_and_settles_the_effect() {
    let mut sim = doubted(asking());
    let key = sim.key("a");
    sim.cancel();
    assert_eq!(owed(&sim.state), [Owed::Stop { key }]);
    sim.fail("a", FailureCause::UserAborted);
    assert!(matches!(sim.outcome(), RunOutcome::Canceled { .. }));
    assert!(effects::list(&sim.entries).unwrap().iter().all(|row| row.status() == "failed"));
    assert!(sim.verify().is_clean());
}

#[test]
fn time_in_which_somebody_is_asked_is_not_active() {
    let mut sim = doubted(asking());
    let active = sim.state.spent().wall_ms;
    sim.now += 1_000_000;
    sim.answer("user:bea", r#"{"decision":"redispatch"}"#);
    assert_eq!(sim.state.spent().wall_ms, active);
}
