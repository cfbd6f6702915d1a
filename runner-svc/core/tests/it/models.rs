//! Abstract nodes: a model's loop as effects of one attempt, its words never taken for more than words.

use runner_core::{
    budget::{Axis, Budgets},
    key::EffectKind,
    model::{EFFECTS_PER_ATTEMPT_MAX, ModelPin, Price, Tokens, read_response},
    outcome::{EffectOutcome, FailureCause, RunOutcome, Usage},
    owed::{Owed, owed},
    payload::Payload,
    pinned::Executor,
};
use serde_json::{Value, json};

use crate::sim::{Setup, Sim};

pub fn model() -> Executor {
    let model = ModelPin {
        url: "https://models.example.com/v1/chat/completions".to_owned(),
        name: "small-1".to_owned(),
        credential: Some("models".to_owned()),
        price: None,
    };
    Executor::Model { model }
}

/// `think`, which a model does, beside the definition `work` of the node that comes after it.
pub fn thinking() -> Setup {
    let plan = json!({"nodes": ["think", "after"], "edges": [{"src": "think", "dst": "after"}]});
    Setup { input: r#"{"q":"why"}"#, ..Setup::of(plan) }.with("think", model())
}

fn says(sim: &mut Sim, content: &str) {
    sim.done("think", json!({"content": content}));
}

fn calls(sim: &mut Sim, calls: &[(&str, &str, &str)]) {
    let calls: Vec<Value> =
        calls.iter().map(|(id, name, arguments)| json!({"id": id, "name": name, "arguments": arguments})).collect();
    sim.done("think", json!({"content": "", "tool_calls": calls}));
}

/// What the model is asked now.
fn question(sim: &Sim) -> Value {
    serde_json::from_str(&sim.input("think")).unwrap()
}

fn effect(sim: &Sim) -> (EffectKind, u32, u32) {
    let key = sim.key("think");
    (key.kind, key.attempt, key.effect_seq)
}

#[test]
fn a_model_is_asked_calls_a_tool_is_told_its_answer_and_ends_with_the_nodes_result() {
    let mut sim = thinking().start();
    assert_eq!(effect(&sim), (EffectKind::Llm, 1, 0));
    let first = question(&sim);
    assert_eq!((&first["temperature"], &first["model"]), (&json!(0), &json!("small-1")));
    assert!(first["messages"][1]["content"].as_str().unwrap().contains(r#"{"q":"why"}"#));
    let tools: Vec<&Value> = first["tools"].as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(tools, ["work"], "the plan's pinned host tools and nothing else");

    calls(&mut sim, &[("c1", "work", r#"{"n":9007199254740993}"#)]);
    assert_eq!(effect(&sim), (EffectKind::Tool, 1, 1));
    assert_eq!(sim.input("think"), r#"{"n":9007199254740993}"#, "arguments keep every digit");
    assert_eq!(sim.dispatches()[0].node.tool.executor, Executor::HostTool);
    sim.done("think", r#"{"found":42}"#);
    assert_eq!(effect(&sim), (EffectKind::Llm, 1, 2));
    let told = question(&sim)["messages"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(told, json!({"role": "tool", "tool_call_id": "c1", "content": r#"{"found":42}"#}));

    says(&mut sim, r#" {"answer": 42} "#);
    assert_eq!(sim.in_flight(), ["after"]);
    sim.done("after", "{}");
    assert_eq!(sim.output(), r#"{"answer":42,"q":"why"}"#);
    assert_eq!((sim.state.spent().effects, sim.state.spent().tool_calls), (4, 2));
    assert!(sim.verify().is_clean());
}

#[test]
fn words_that_are_no_json_are_the_result_as_text_and_no_words_are_none() {
    let mut sim = thinking().start();
    says(&mut sim, "because");
    sim.done("after", "{}");
    assert_eq!(sim.output(), r#"{"q":"why","think":"because"}"#);
    let mut sim = thinking().start();
    says(&mut sim, "  ");
    let RunOutcome::Failed { failure, .. } = sim.outcome() else { panic!("{:?}", sim.outcome()) };
    assert_eq!(failure.cause, FailureCause::SchemaValidationFailed);
}

#[test]
fn several_calls_of_one_answer_are_made_one_after_the_other() {
    let mut sim = thinking().start();
    calls(&mut sim, &[("c1", "work", r#"{"n":1}"#), ("c2", "work", "")]);
    assert_eq!((effect(&sim), sim.input("think")), ((EffectKind::Tool, 1, 1), r#"{"n":1}"#.to_owned()));
    sim.done("think", "1");
    assert_eq!((effect(&sim), sim.input("think")), ((EffectKind::Tool, 1, 2), "{}".to_owned()));
    sim.done("think", "2");
    let messages = question(&sim)["messages"].as_array().unwrap().len();
    assert_eq!((effect(&sim), messages), ((EffectKind::Llm, 1, 3), 5));
}

#[test]
fn a_tools_failure_is_shown_to_the_model() {
    let mut sim = thinking().start();
    calls(&mut sim, &[("c1", "work", "{}")]);
    sim.fail("think", FailureCause::ExecutorError);
    let told = question(&sim)["messages"].as_array().unwrap().last().unwrap()["content"].clone();
    assert_eq!(told, json!("error: executor_error: it broke"));
    says(&mut sim, "{}");
    assert_eq!(sim.in_flight(), ["after"], "what the model makes of it decides");
}

#[test]
fn calls_that_do_not_fit_are_corrected_once_and_fail_the_attempt_the_second_time() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    for bad in [("c1", "work", r#"{"n":"x"}"#), ("c1", "work", "[1]"), ("c1", "rm", "{}")] {
        let mut setup = thinking();
        setup.plan["retries"] = json!({"think": 1});
        setup.input_schemas.insert("after", schema.clone());
        let mut sim = setup.start();
        calls(&mut sim, &[bad, ("c2", "work", r#"{"n":1}"#)]);
        assert_eq!((effect(&sim), sim.input("think")), ((EffectKind::Tool, 1, 1), r#"{"n":1}"#.to_owned()));
        sim.done("think", "{}");
        let messages = question(&sim)["messages"].clone();
        let told = messages.as_array().unwrap().iter().find(|message| message["tool_call_id"] == "c1").unwrap();
        assert!(told["content"].as_str().unwrap().starts_with("error: the call was not made"), "{told}");
        calls(&mut sim, &[bad]);
        assert_eq!(
            effect(&sim),
            (EffectKind::Llm, 2, 0),
            "a wrong schema of a model is tried again, from the beginning"
        );
        assert_eq!(question(&sim)["messages"].as_array().unwrap().len(), 2);
        assert!(sim.verify().is_clean());
    }
}

#[test]
fn an_attempt_has_so_many_effects_and_no_more() {
    let mut sim = thinking().start();
    for _ in 0..EFFECTS_PER_ATTEMPT_MAX / 2 {
        calls(&mut sim, &[("c", "work", "{}")]);
        sim.done("think", "{}");
    }
    let RunOutcome::Failed { failure, .. } = sim.outcome() else { panic!("{:?}", sim.outcome()) };
    assert!(failure.permanent && failure.shown().contains("16 effects"), "{}", failure.shown());
    assert_eq!(sim.state.spent().effects, u64::from(EFFECTS_PER_ATTEMPT_MAX));
}

#[test]
fn a_crash_at_any_event_goes_on_exactly_there() {
    let mut sim = thinking().start();
    calls(&mut sim, &[("c1", "work", "{}"), ("c2", "work", r#"{"n":2}"#)]);
    sim.done("think", "1");
    sim.done("think", "2");
    says(&mut sim, r#"{"answer":3}"#);
    sim.done("after", "{}");
    let whole = sim.output().to_owned();
    // Batches end where nothing is decided any more: after each result.
    let ends: Vec<usize> =
        (1..sim.entries.len()).filter(|end| sim.entries[*end].event().kind() == "ResultRecorded").collect();
    for end in ends {
        let mut again = sim.reopen(end);
        let in_flight = again.key(again.in_flight()[0]);
        again.take_over();
        assert!(matches!(&owed(&again.state)[..], [Owed::Dispatch(dispatch)] if dispatch.key == in_flight));
        assert_eq!(again.count("Redelivered"), 1, "only what was in flight");
        for entry in &sim.entries[end..] {
            if let runner_core::event::Event::ResultRecorded { key, outcome, usage } = entry.event() {
                let (key, outcome, usage) = (key.clone(), outcome.clone(), *usage);
                assert_eq!(again.feed(runner_core::input::Input::Result { key, outcome, usage }).declined, None);
            }
        }
        assert_eq!(again.output(), whole);
        assert!(again.verify().is_clean());
    }
}

#[test]
fn a_models_loop_has_no_more_effects_and_tool_calls_than_the_run_may_have() {
    let call = [("c1", "work", "{}")];
    let budgets = Budgets { max_effects: Some(2), ..Budgets::default() };
    let mut sim = Setup { budgets, ..thinking() }.start();
    calls(&mut sim, &call);
    sim.done("think", "{}");
    assert_eq!(sim.outcome(), &RunOutcome::BudgetExhausted { axis: Axis::Effects, limit: 2 });
    assert_eq!((sim.state.spent().effects, sim.count("SuperstepOpened")), (2, 1));
    assert!(sim.verify().is_clean());

    let budgets = Budgets { max_tool_calls: Some(1), ..Budgets::default() };
    let mut sim = Setup { budgets, ..thinking() }.start();
    for _ in 0..2 {
        calls(&mut sim, &call);
        if sim.state.outcome().is_none() {
            sim.done("think", "{}");
        }
    }
    assert_eq!(sim.outcome(), &RunOutcome::BudgetExhausted { axis: Axis::ToolCalls, limit: 1 });
    assert_eq!((sim.state.spent().tool_calls, sim.count("SuperstepOpened")), (1, 1));
    assert!(sim.verify().is_clean());
}

#[test]
fn a_models_loop_whose_tool_has_no_fuel_left_ends_the_run_there() {
    let budgets = Budgets { max_fuel: Some(10), ..Budgets::default() };
    let mut sim = Setup { budgets, ..thinking() }.with("after", crate::sim::wasm()).start();
    for fuel in [10, 0] {
        calls(&mut sim, &[("c1", "work", "{}")]);
        if sim.state.outcome().is_none() {
            let outcome = EffectOutcome::Completed { output: Payload::new("{}") };
            sim.settle("think", outcome, Usage { fuel, ..Usage::default() });
        }
    }
    assert_eq!(sim.outcome(), &RunOutcome::BudgetExhausted { axis: Axis::Fuel, limit: 10 });
    assert_eq!(sim.count("SuperstepOpened"), 1);
    assert!(sim.verify().is_clean());
}

#[test]
fn tokens_are_reserved_for_each_turn_and_spent_as_the_model_says() {
    let budgets = Budgets { max_tokens: Some(10_000), ..Budgets::default() };
    let mut sim = Setup { budgets, ..thinking() }.start();
    let answer = json!({"content": "", "tool_calls": [{"id": "c", "name": "work", "arguments": "{}"}]});
    let outcome = EffectOutcome::Completed { output: Payload::of(&answer) };
    sim.settle("think", outcome, Usage { tokens: 9_999, ..Usage::default() });
    assert_eq!(sim.state.spent().tokens, 9_999);
    sim.done("think", "{}");
    // One token is left; the next turn may have no more, and spends it.
    let outcome = EffectOutcome::Completed { output: Payload::of(&answer) };
    sim.settle("think", outcome, Usage { tokens: 1, ..Usage::default() });
    sim.done("think", "{}");
    assert_eq!(sim.outcome(), &RunOutcome::BudgetExhausted { axis: Axis::Tokens, limit: 10_000 });
    assert!(sim.verify().is_clean());
}

#[test]
fn money_is_reserved_for_each_turn_at_the_frozen_price_and_spent_as_it_was_charged() {
    let executor = |price| {
        let Executor::Model { model } = model() else { panic!("a model") };
        Executor::Model { model: ModelPin { price, ..model } }
    };
    let price = Some(Price { input: 1_000_000, output: 1_000_000 });
    let budgets = Budgets { max_usd_micros: Some(6_000), ..Budgets::default() };
    let plan = json!({"nodes": ["a", "x", "y"], "edges": [{"src": "a", "dst": "x"}, {"src": "a", "dst": "y"}]});
    let start = |price: Option<Price>| {
        let setup = Setup { budgets, ..Setup::of(plan.clone()) };
        setup.with("x", executor(price)).with("y", executor(price)).start()
    };
    let mut sim = start(price);
    sim.done("a", "{}");
    assert_eq!(sim.in_flight(), ["x"], "a turn may cost over 4096 tokens: there is no room for two");
    let answer = || EffectOutcome::Completed { output: Payload::of(&json!({"content": "{}", "tool_calls": []})) };
    sim.settle("x", answer(), Usage { tokens: 900, usd_micros: 900, ..Usage::default() });
    assert_eq!(sim.in_flight(), ["y"], "what was not spent is given back");
    sim.settle("y", answer(), Usage { tokens: 5_100, usd_micros: 5_100, ..Usage::default() });
    assert_eq!(sim.state.spent().usd_micros, 6_000);
    assert!(sim.verify().is_clean());
    let mut free = start(None);
    free.done("a", "{}");
    assert_eq!(free.in_flight(), ["x", "y"], "without a price nothing is reserved");
}

#[test]
fn tasks_may_be_sent_to_a_model() {
    let plan = json!({"nodes": ["split", "think"], "edges": [{"src": "split", "dst": "think", "cond": "never"}]});
    let mut sim = Setup::of(plan).with("think", model()).start();
    sim.done("split", r#"{"$send":[{"node":"think","input":{"part":1}},{"node":"think","input":{"part":2}}]}"#);
    assert_eq!(sim.in_flight(), ["think", "think"]);
    assert!(sim.input("think").contains("part"));
}

#[test]
fn what_is_no_chat_completion_or_over_its_bounds_is_refused() {
    for body in ["", "{}", r#"{"choices":[]}"#, r#"{"choices":[{"message":{"tool_calls":[{}]}}]}"#] {
        assert!(read_response(body.as_bytes()).is_err(), "{body}");
    }
    let call = json!({"id": "c", "type": "function", "function": {"name": "work", "arguments": "{}"}});
    let body = |calls: Vec<Value>| {
        json!({"choices": [{"message": {"role": "assistant", "content": null, "tool_calls": calls}}],
                                         "usage": {"total_tokens": 12}})
        .to_string()
    };
    let (answer, tokens) = read_response(body(vec![call.clone()]).as_bytes()).unwrap();
    assert_eq!(tokens, Tokens { total: 12, ..Tokens::default() });
    assert_eq!(answer.text(), r#"{"content":"","tool_calls":[{"id":"c","name":"work","arguments":"{}"}]}"#);
    assert!(read_response(body(vec![call; 17]).as_bytes()).unwrap_err().to_string().contains("17"));
}
