//! What a result may be: exact, bounded, without reserved keys.

use runner_core::{
    STATE_BYTES_MAX,
    event::Event,
    input::{DOCUMENT_BYTES_MAX, Declined, Input},
    key::EffectKey,
    outcome::{EffectOutcome, Failure, FailureCause, FailureCode, RunOutcome, Usage},
    payload::Payload,
    pinned::PinnedTool,
    run,
};
use serde_json::json;

use crate::sim::{Setup, Sim, T0};

fn failure(sim: &Sim) -> &Failure {
    match sim.outcome() {
        RunOutcome::Failed { failure, .. } => failure,
        other => panic!("not failed: {}", other.reason()),
    }
}

#[test]
fn integers_of_64_bits_go_through_a_node_digit_for_digit() {
    let mut setup = Setup::of(json!({"nodes": ["a", "b"], "edges": [{"src": "a", "dst": "b"}]}));
    setup.input = r#"{"in":[9007199254740993,18446744073709551615,-9223372036854775808]}"#;
    let mut sim = setup.start();
    sim.done("a", r#"{"out": [9007199254740993, 18446744073709551615, -9223372036854775808, 1.10]}"#);
    assert_eq!(
        sim.input("b"),
        r#"{"in":[9007199254740993,18446744073709551615,-9223372036854775808],"out":[9007199254740993,18446744073709551615,-9223372036854775808,1.10]}"#
    );
}

#[test]
fn a_result_of_exactly_the_cap_passes_and_one_byte_more_fails_the_effect_by_name() {
    let exact = format!("\"{}\"", "x".repeat(DOCUMENT_BYTES_MAX - 2));
    let mut sim = Setup::default().start();
    sim.done("work", &exact);
    assert_eq!(sim.output().len(), DOCUMENT_BYTES_MAX + r#"{"work":}"#.len());
    let plan = json!({"nodes": ["work"], "retries": {"work": 5}});
    let mut sim = Setup::of(plan).start();
    sim.done("work", format!("{exact} "));
    assert_eq!(failure(&sim).code, Some(FailureCode::TooLarge));
    assert!(sim.outcome().reason().starts_with("RUN-E015: "), "{}", sim.outcome().reason());
    assert!(failure(&sim).detail.text().contains("RESULT_TOO_LARGE"));
    assert_eq!(sim.attempts("work"), [1], "the same result would be as large");
    assert!(sim.entries.iter().map(runner_core::entry::Entry::stored_bytes).sum::<u64>() < 10_000);
}

#[test]
fn a_state_over_its_cap_ends_the_run_by_name() {
    let nodes: Vec<String> = (0..10).map(|n| format!("n{n}")).collect();
    let edges: Vec<_> = nodes.windows(2).map(|pair| json!({"src": pair[0], "dst": pair[1]})).collect();
    let mut sim = Setup::of(json!({"nodes": nodes, "edges": edges})).start();
    let result = format!("\"{}\"", "x".repeat(DOCUMENT_BYTES_MAX - 2));
    for node in &nodes {
        if sim.state.outcome().is_none() {
            sim.done(node, &result);
        }
    }
    assert_eq!((failure(&sim).code, sim.outcome().node()), (Some(FailureCode::TooLarge), Some("n7")));
    assert!(sim.state.document().len_bytes() <= STATE_BYTES_MAX);
    assert!(sim.verify().is_clean());
}

#[test]
fn a_result_that_is_no_json_fails_the_effect() {
    for output in ["", "{", "hello", "{} {}", "[1e999]"] {
        let mut sim = Setup::default().start();
        sim.done("work", output);
        assert_eq!(failure(&sim).cause, FailureCause::ExecutorError);
        assert!(failure(&sim).detail.text().contains("not JSON"), "{output:?}");
    }
}

#[test]
fn a_late_result_of_an_earlier_attempt_is_kept_as_discarded_and_changes_nothing() {
    let mut sim = Setup::of(json!({"nodes": ["work"], "retries": {"work": 1}})).start();
    let first = sim.key("work");
    sim.fail("work", FailureCause::Timeout);
    let late = EffectOutcome::Completed { output: Payload::new("{}") };
    let usage = Usage { fuel: 7, ..Usage::default() };
    let fed = sim.feed(Input::Result { key: first.clone(), outcome: late, usage });
    assert_eq!(fed.declined, Some(Declined::NotInFlight { key: first.clone() }));
    let output = Some(content_digest::Digest::of("{}"));
    assert_eq!(*sim.last(), Event::ResultDiscarded { key: first.clone(), output, usage });
    assert_eq!((sim.in_flight(), sim.state.spent().fuel), (vec!["work"], 7), "what it used is spent all the same");
    sim.done("work", json!({"second": true}));
    assert_eq!(sim.output(), r#"{"second":true}"#);
    assert!(sim.verify().is_clean());
}

#[test]
fn a_result_of_an_attempt_that_was_never_made_leaves_no_trace() {
    let mut sim = Setup::of(json!({"nodes": ["work"], "retries": {"work": 1}})).start();
    let now = sim.key("work");
    for key in [
        EffectKey { attempt: 2, ..now.clone() },
        EffectKey { attempt: 0, ..now.clone() },
        EffectKey { node: "nobody".to_owned(), ..now.clone() },
        EffectKey { task_path: "work/0000".to_owned(), ..now.clone() },
    ] {
        let outcome = EffectOutcome::Completed { output: Payload::new("{}") };
        let fed = sim.feed(Input::Result { key: key.clone(), outcome, usage: Usage::default() });
        assert_eq!(fed.declined, Some(Declined::NotInFlight { key }));
        assert!(fed.entries.is_empty());
    }
    assert_eq!(sim.key("work"), now);
}

#[test]
fn locked_parameters_are_laid_over_the_input() {
    let setup = Setup { input: r#"{"amount":5,"to":"mallory"}"#, ..Setup::default() };
    let input = runner_core::read_input(setup.input).unwrap();
    let mut manifest = setup.manifest(&input);
    let mut tool = PinnedTool::clone(&manifest.nodes[0].tool);
    tool.locked_params.insert("to".to_owned(), json!("alice"));
    manifest.nodes[0].tool = std::sync::Arc::new(tool);
    let (state, entries) = run::start(&manifest, input, T0).unwrap();
    let sim = Sim { state, entries, now: T0 };
    assert_eq!(sim.input("work"), r#"{"amount":5,"to":"alice"}"#);
    assert_eq!(sim.state.document().text(), r#"{"amount":5,"to":"mallory"}"#);
    assert!(sim.verify().is_clean());
}

#[test]
fn a_long_detail_is_cut_to_4_kib() {
    let failure = Failure::new(FailureCause::ExecutorError, &"é".repeat(10_000));
    assert!(failure.detail.len_bytes() <= 4096);
}
