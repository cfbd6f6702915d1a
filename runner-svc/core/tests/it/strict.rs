//! Strict definitions: what does not fit is a failure of its node, journaled, and an input that does not fit goes nowhere.

use std::collections::BTreeMap;

use runner_core::{
    effects,
    event::Event,
    outcome::{EffectOutcome, FailureCause, RunOutcome},
    owed::owed,
    payload::Payload,
    pinned::Executor,
};
use serde_json::{Value, json};

use crate::sim::{Setup, Sim, verify, wasm};

fn amount() -> Value {
    json!({"type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer", "minimum": 1}}})
}

fn strict_input(input: &'static str) -> Setup {
    let plan = json!({"nodes": ["a", "b"], "edges": [{"src": "a", "dst": "b"}], "retries": {"a": 3}});
    Setup { input, input_schemas: BTreeMap::from([("a", amount())]), ..Setup::of(plan) }
}

fn failed(sim: &Sim, node: &str) -> String {
    let RunOutcome::Failed { node: found, failure } = sim.outcome() else { panic!("failed") };
    assert_eq!((found.as_str(), failure.cause), (node, FailureCause::SchemaValidationFailed));
    failure.detail.text().to_owned()
}

#[test]
fn an_input_that_fits_is_dispatched() {
    let mut sim = strict_input(r#"{"amount": 1}"#).start();
    assert_eq!(sim.in_flight(), ["a"]);
    sim.done("a", "{}");
    sim.done("b", "{}");
    assert!(sim.verify().is_clean());
}

#[test]
fn an_input_that_does_not_fit_fails_its_node_and_is_never_dispatched_nor_tried_again() {
    let sim = strict_input(r#"{"amount": 0}"#).start();
    let detail = failed(&sim, "a");
    assert_eq!(detail, "the input does not fit the input_schema of `work`: /amount must be at least 1");
    assert_eq!(sim.kinds(), ["RunStarted", "SuperstepOpened", "InputRefused", "SuperstepClosed", "RunFinished"]);
    assert!(owed(&sim.state).is_empty());
    assert_eq!(sim.state.spent().effects, 0, "what is not dispatched costs no budget");
    let rows = effects::list(&sim.entries).unwrap();
    assert_eq!((rows.len(), rows[0].status(), rows[0].dispatches), (1, "failed", 0));
    assert_eq!(rows[0].input.text(), r#"{"amount":0}"#);
    assert!(sim.verify().is_clean());
    assert_eq!(sim.reopen(sim.entries.len()).state.outcome(), sim.state.outcome());
}

#[test]
fn a_question_whose_input_does_not_fit_is_never_raised() {
    let setup = strict_input("{}").with("a", Executor::Person);
    let sim = setup.start();
    assert!(failed(&sim, "a").contains("must have the member `amount`"));
    assert_eq!(sim.count("AskRaised"), 0);
}

#[test]
fn siblings_of_a_refused_input_settle_first() {
    let plan = json!({"nodes": ["a", "b", "c"], "edges": [{"src": "a", "dst": "b"}, {"src": "a", "dst": "c"}]});
    let mut sim = Setup { input_schemas: BTreeMap::from([("c", amount())]), ..Setup::of(plan) }.start();
    sim.done("a", "{}");
    assert_eq!(sim.in_flight(), ["b"]);
    sim.done("b", "{}");
    failed(&sim, "c");
    assert!(sim.verify().is_clean());
}

#[test]
fn a_result_that_does_not_fit_is_recorded_as_a_failure() {
    for executor in [Executor::HostTool, wasm()] {
        let setup = Setup { output_schemas: BTreeMap::from([("work", amount())]), ..Setup::default() };
        let mut sim = setup.with("work", executor).start();
        sim.done("work", r#"{"amount": "many"}"#);
        let detail = failed(&sim, "work");
        assert!(detail.contains("the result does not fit the output_schema of `work`: /amount"), "{detail}");
        assert!(sim.verify().is_clean());
    }
}

#[test]
fn a_journal_in_which_a_wrong_result_was_taken_is_not_clean() {
    let setup = Setup { output_schemas: BTreeMap::from([("work", amount())]), ..Setup::default() };
    let mut sim = setup.start();
    sim.done("work", r#"{"amount": 7}"#);
    let wrong = Payload::new(r#"{"amount": 0}"#);
    let mut forged = Vec::new();
    let mut previous = content_digest::Digest::ZERO;
    for entry in &sim.entries {
        let mut recorded = entry.recorded().clone();
        recorded.previous = previous;
        if let Event::ResultRecorded { outcome, .. } = &mut recorded.event {
            *outcome = EffectOutcome::Completed { output: wrong.clone() };
        }
        forged.push(runner_core::entry::Entry::seal(recorded));
        previous = forged.last().unwrap().hash();
    }
    let divergence = verify(&forged).divergence.unwrap();
    assert_eq!(divergence.sequence, 3);
    assert!(divergence.problem.contains("cannot have completed"), "{}", divergence.problem);
}
