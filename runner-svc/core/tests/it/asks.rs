//! Questions to people: who may answer, when, and what stands.

use std::collections::BTreeMap;

use content_digest::Digest;
use runner_core::{
    budget::Budgets,
    event::Event,
    input::{Declined, Input, REJECTIONS_PER_ASK_MAX},
    manifest::Tie,
    outcome::{FailureCause, RunOutcome},
    owed::{Owed, owed},
    pinned::Executor,
    state::{AskEnd, NodeStatus, Status},
    why::why,
};
use serde_json::json;

use crate::sim::{Setup, Sim, T0};

fn approve() -> Setup {
    let plan = json!({"nodes": ["approve", "send"], "edges": [{"src": "approve", "dst": "send", "cond": "ok"}]});
    Setup { initiator: Some("user:ann"), ..Setup::of(plan) }.with("approve", Executor::Person)
}

fn parallel() -> Sim {
    let plan = json!({"nodes": ["a", "left", "right", "work", "end"], "edges": [
        {"src": "a", "dst": "left"}, {"src": "a", "dst": "right"}, {"src": "a", "dst": "work"},
        {"src": "left", "dst": "end"}, {"src": "right", "dst": "end"}, {"src": "work", "dst": "end"}]});
    let mut sim = Setup::of(plan).with("left", Executor::Person).with("right", Executor::Person).start();
    sim.done("a", "{}");
    sim
}

#[test]
fn a_client_tool_parks_the_run_until_someone_answers() {
    let mut sim = approve().start();
    assert_eq!(sim.state.status(), Status::Waiting);
    assert_eq!(sim.state.node_status(0), NodeStatus::AwaitingAnswer);
    assert_eq!(owed(&sim.state), [Owed::WaitAsk { tool_call_id: sim.ask(), deadline_ms: None }]);
    let waiting = why(&sim.state);
    assert!(waiting[0].what.contains(&sim.ask().to_hex()) && waiting[0].since_ms == T0, "{waiting:?}");
    let unblocked_by = "RespondToAsk by someone other than user:runner (started the run), user:ann (on whose behalf)";
    assert_eq!((waiting[0].unblocked_by.as_str(), waiting[0].barred.len()), (unblocked_by, 2), "{waiting:?}");
    assert_eq!(sim.answer("user:bea", r#"{"ok": true}"#), None);
    assert_eq!(sim.in_flight(), ["send"]);
    assert_eq!(sim.state.status(), Status::Running);
    sim.done("send", "{}");
    assert_eq!(sim.output(), r#"{"ok":true}"#);
    assert!(sim.verify().is_clean());
}

#[test]
fn neither_the_starter_nor_the_initiator_can_answer_and_the_attempt_is_evidence() {
    let mut sim = approve().start();
    for (who, tie, says) in [
        ("user:runner", Tie::Starter, "user:runner started the run and cannot"),
        ("user:ann", Tie::Initiator, "user:ann is the one on whose behalf the run was started and cannot"),
    ] {
        let declined = sim.answer(who, r#"{"ok":true}"#).unwrap();
        assert_eq!(declined, Declined::SelfApproval { by: who.to_owned(), tie });
        assert!(declined.to_string().starts_with(says), "{declined}");
        assert_eq!(sim.last().kind(), "AskRejected");
    }
    assert_eq!(sim.state.status(), Status::Waiting);
    assert_eq!(sim.answer("user:bea", r#"{"ok":true}"#), None);
    assert!(sim.verify().is_clean());
}

#[test]
fn the_first_answer_stands() {
    let mut sim = approve().start();
    let ask = sim.ask();
    assert_eq!(sim.answer("user:bea", r#"{"ok":true}"#), None);
    let (events, at_ms) = (sim.entries.len(), sim.now);
    let first = |declined: Option<Declined>| match declined {
        Some(Declined::AskSettled { tool_call_id, settled: Some(settled) }) if tool_call_id == ask => {
            (settled.end, settled.by, settled.at_ms)
        }
        other => panic!("{other:?}"),
    };
    let bea = (AskEnd::Answered, Some("user:bea".to_owned()), at_ms);
    assert_eq!(first(sim.answer_to(ask, "user:cid", r#"{"ok":false}"#, false)), bea);
    assert_eq!(
        first(sim.answer_to(ask, "user:bea", r#"{"ok":false}"#, false)),
        bea,
        "another answer of the same person"
    );
    assert_eq!(first(sim.answer_to(ask, "user:bea", r#"{"ok":true}"#, true)), bea, "a refusal is another answer");
    assert_eq!(
        first(sim.answer_to(ask, "user:cid", r#"{"ok":true}"#, false)),
        bea,
        "the same answer of another person"
    );
    assert_eq!(sim.answer_to(ask, "user:bea", r#"{"ok":true}"#, false), None, "the same call again");
    sim.done("send", "{}");
    assert_eq!(first(sim.answer_to(ask, "user:cid", "{}", false)), bea, "also after the end");
    assert_eq!(sim.answer_to(ask, "user:bea", r#"{"ok":true}"#, false), None);
    assert_eq!(sim.state.settled_ask(&ask).unwrap().by.as_deref(), Some("user:bea"));
    let unknown = Digest::of("unknown");
    assert_eq!(sim.answer_to(unknown, "user:cid", "{}", false), Some(Declined::AskUnknown { tool_call_id: unknown }));
    assert_eq!(sim.entries.len(), events + 3);
}

#[test]
fn a_refusal_fails_the_node_as_user_aborted_with_what_the_person_said() {
    let mut sim = approve().start();
    let ask = sim.ask();
    assert_eq!(sim.answer_to(ask, "user:bea", r#""not this week""#, true), None);
    let RunOutcome::Failed { node, failure } = sim.outcome() else { panic!("failed") };
    assert_eq!((node.as_str(), failure.cause), ("approve", FailureCause::UserAborted));
    assert_eq!(failure.detail.text(), "user:bea refused: not this week");
}

#[test]
fn an_answer_that_is_no_json_or_does_not_fit_leaves_the_ask_open() {
    let schema = json!({"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}});
    let mut sim = Setup { output_schemas: BTreeMap::from([("approve", schema)]), ..approve() }.start();
    let deep = "[".repeat(200) + &"]".repeat(200);
    let large = format!("\"{}\"", "x".repeat(runner_core::input::DOCUMENT_BYTES_MAX));
    for (answer, says) in [
        ("{", "the answer is no JSON: EOF"),
        (" ", "the answer is empty: give one JSON text"),
        (&deep, "the answer is no JSON: recursion limit"),
        (&large, "the answer has 8388610 bytes, over 8388608"),
        (r#"{"$send":[]}"#, "the answer has the reserved key `$send`: only a tool asks for tasks"),
    ] {
        let declined = sim.answer("user:bea", answer).unwrap();
        assert!(
            matches!(declined, Declined::BadDocument { .. }) && declined.to_string().starts_with(says),
            "{declined}"
        );
        let Event::AskRejected { by, reason, .. } = sim.last() else { panic!("no evidence of {says}") };
        assert_eq!((by.as_str(), reason), ("user:bea", &declined.to_string()));
    }
    let events = sim.entries.len();
    let Some(Declined::WrongAnswer { reason }) = sim.answer("user:bea", r#"{"ok":"maybe"}"#) else { panic!("refused") };
    assert_eq!(reason, "it does not fit the output_schema of `work`: /ok must be of type boolean, and is a string");
    assert_eq!(sim.entries.len(), events + 1);
    assert_eq!(sim.last().kind(), "AskRejected");
    assert_eq!(sim.answer("user:bea", r#"{"ok":true}"#), None);
    assert!(sim.verify().is_clean());
}

#[test]
fn a_refusal_whose_reason_is_no_json_is_not_taken_and_is_evidence() {
    let mut sim = approve().start();
    let ask = sim.ask();
    let declined = sim.answer_to(ask, "user:bea", r#"{"a":"#, true);
    assert!(matches!(declined, Some(Declined::BadDocument { .. })), "{declined:?}");
    assert_eq!((sim.last().kind(), sim.state.status()), ("AskRejected", Status::Waiting));
    assert_eq!(sim.answer_to(ask, "user:bea", "\"no\u{202e}!\"", true), None);
    assert!(sim.outcome().reason().ends_with(r"user:bea refused: no\u{202e}!"), "{}", sim.outcome().reason());
}

#[test]
fn rejected_answers_are_recorded_up_to_their_bound_and_a_right_one_is_taken_after_it() {
    let mut sim = approve().start();
    let bound = REJECTIONS_PER_ASK_MAX as usize;
    for _ in 0..bound + 24 {
        let declined = sim.answer("user:bea", "{").unwrap();
        let kept = sim.count("AskRejected") < bound || matches!(declined, Declined::BadDocument { .. });
        assert!(kept || matches!(declined, Declined::TooManyRejections { .. }), "{declined:?}");
    }
    assert_eq!(sim.count("AskRejected"), bound);
    let declined = sim.answer("user:runner", r#"{"ok":true}"#).unwrap().to_string();
    assert!(declined.contains("16 rejected answers") && declined.contains("user:runner started the run"), "{declined}");
    let mut sim = sim.reopen(sim.entries.len());
    sim.answer("user:bea", "{");
    assert_eq!(sim.count("AskRejected"), bound, "the fold counts them too");
    assert_eq!(sim.answer("user:bea", r#"{"ok": true}"#), None);
    assert_eq!(sim.in_flight(), ["send"]);
    assert!(sim.verify().is_clean());
}

#[test]
fn rejected_answers_never_take_a_journal_over_its_budget() {
    let stored = approve().start().state.spent().storage_bytes;
    let budgets = Budgets { max_storage_bytes: Some(stored + 1500), ..Budgets::default() };
    let mut sim = Setup { budgets, ..approve() }.start();
    let declined = (0..10).find_map(|_| match sim.answer("user:bea", "{") {
        Some(Declined::TooManyRejections { bound, .. }) => Some(bound),
        _ => None,
    });
    assert!(declined.is_some_and(|bound| bound.contains("max_storage_bytes")));
    assert!((1..10).contains(&sim.count("AskRejected")), "{}", sim.count("AskRejected"));
    assert!(sim.state.spent().storage_bytes <= stored + 1500, "{:?}", sim.state.spent());
    assert!(sim.verify().is_clean());
}

#[test]
fn an_ask_expires_at_its_deadline_and_not_before() {
    let mut sim = Setup { ask_ttl_ms: Some(1000), ..approve() }.start();
    assert!(
        matches!(owed(&sim.state)[..], [Owed::WaitAsk { deadline_ms: Some(deadline), .. }] if deadline == T0 + 1000)
    );
    sim.now = T0 + 999;
    assert!(sim.feed_now(Input::Tick).entries.is_empty());
    sim.now = T0 + 1000;
    sim.feed_now(Input::Tick);
    let RunOutcome::Failed { failure, .. } = sim.outcome() else { panic!("failed") };
    assert_eq!(failure.cause, FailureCause::Timeout);
    assert!(sim.verify().is_clean());
}

#[test]
fn an_answer_in_the_millisecond_of_the_deadline_is_too_late_and_never_lost_silently() {
    let mut sim = Setup { ask_ttl_ms: Some(1000), ..approve() }.start();
    let ask = sim.ask();
    sim.now = T0 + 999;
    assert_eq!(sim.answer("user:bea", r#"{"ok":true}"#), Some(Declined::AskExpired { tool_call_id: ask }));
    assert!(sim.state.outcome().is_some(), "the late answer found the ask expired and expired it");
}

#[test]
fn every_ask_that_is_due_expires_in_one_tick() {
    let plan = json!({"nodes": ["a", "b", "c"], "edges": [{"src": "a", "dst": "b"}, {"src": "a", "dst": "c"}], "retries": {"b": 1, "c": 1}});
    let setup = Setup { ask_ttl_ms: Some(10), ..Setup::of(plan) };
    let mut sim = setup.with("b", Executor::Person).with("c", Executor::Person).start();
    sim.done("a", "{}");
    sim.now += 10;
    sim.feed_now(Input::Tick);
    assert_eq!(sim.state.asks().map(|ask| ask.flight.key.attempt).collect::<Vec<_>>(), [2, 2]);
    assert!(sim.verify().is_clean());
}

#[test]
fn asks_of_parallel_branches_each_hold_up_the_join() {
    let mut sim = parallel();
    assert_eq!(sim.state.status(), Status::Running);
    sim.done("work", "{}");
    assert_eq!(sim.state.status(), Status::Waiting);
    let asks: Vec<Digest> = sim.state.asks().map(|ask| ask.tool_call_id).collect();
    assert_eq!(sim.answer_to(asks[1], "user:bea", "{}", false), None);
    assert_eq!(sim.in_flight(), ["left"]);
    assert_eq!(sim.answer_to(asks[0], "user:bea", "{}", false), None);
    assert_eq!(sim.in_flight(), ["end"]);
}

#[test]
fn time_in_which_only_people_are_waited_for_is_not_active() {
    let mut sim = parallel();
    sim.now += 100;
    sim.done("work", "{}");
    let active = sim.state.spent().wall_ms;
    assert_eq!(active, 102, "a, then work");
    sim.now += 1_000_000;
    let asks: Vec<Digest> = sim.state.asks().map(|ask| ask.tool_call_id).collect();
    sim.answer_to(asks[0], "user:bea", "{}", false);
    sim.answer_to(asks[1], "user:bea", "{}", false);
    assert_eq!(sim.state.spent().wall_ms, active);
}
