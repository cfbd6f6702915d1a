//! The rows that people list: one for each effect, the result superseding the intent.

use runner_core::{
    effects,
    outcome::{EffectOutcome, FailureCause},
    pinned::Executor,
};
use serde_json::json;

use crate::sim::Setup;

#[test]
fn intent_and_result_are_one_row() {
    let mut sim = Setup { input: r#"{"q":7}"#, ..Setup::default() }.start();
    let pending = effects::list(&sim.entries).unwrap();
    assert_eq!((pending.len(), &pending[0].settled), (1, &None));
    sim.done("work", json!({"ran": true}));
    let rows = effects::list(&sim.entries).unwrap();
    assert_eq!(rows.len(), 1);
    let settled = rows[0].settled.as_ref().unwrap();
    assert!(matches!(&settled.outcome, EffectOutcome::Completed { output } if output.text() == r#"{"ran":true}"#));
    assert_eq!((rows[0].intent_sequence, settled.sequence), (2, 3));
    let expected = "8899b839203311d82d2dd987e3ef3a307bac6830fcd64c373998d7bfc50d16f6";
    assert_eq!(rows[0].idempotency_key.to_hex(), expected);
}

#[test]
fn attempts_are_rows_redeliveries_are_not() {
    let mut sim = Setup::of(json!({"nodes": ["work"], "retries": {"work": 1}})).start();
    sim.take_over();
    sim.fail("work", FailureCause::Timeout);
    sim.done("work", "{}");
    let rows = effects::list(&sim.entries).unwrap();
    let shape: Vec<(u32, u32)> = rows.iter().map(|row| (row.key.attempt, row.dispatches)).collect();
    assert_eq!(shape, [(1, 2), (2, 1)]);
}

#[test]
fn an_answered_ask_names_who_answered() {
    let mut sim = Setup::default().with("work", Executor::Person).start();
    sim.answer("user:bea", r#"{"ok":true}"#);
    let rows = effects::list(&sim.entries).unwrap();
    assert_eq!(rows[0].settled.as_ref().unwrap().by.as_deref(), Some("user:bea"));
    assert_eq!(rows[0].class, None);
}
