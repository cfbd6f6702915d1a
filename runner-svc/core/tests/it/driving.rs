//! Drives a generated case: settles what is in flight, in whatever order, until the run ends.

use runner_core::{
    input::Input,
    key::EffectKey,
    outcome::{EffectOutcome, Failure, FailureCause, Usage},
    payload::Payload,
};

use crate::{
    dice::Dice,
    generated::{Act, Case},
    sim::Sim,
};

/// Which effect settles next.
pub enum Order {
    /// The first in the plan's order.
    ByPlan,
    /// Any.
    Drawn(Dice),
}

/// Settles effects until the run has ended.
pub fn to_the_end(case: &Case, sim: &mut Sim, mut order: Order) {
    while sim.state.outcome().is_none() {
        step(case, sim, &mut order);
    }
}

/// Settles one effect.
pub fn step(case: &Case, sim: &mut Sim, order: &mut Order) {
    let keys: Vec<_> = sim.state.flights().map(|flight| flight.key.clone()).collect();
    assert!(!keys.is_empty(), "an unfinished run has something in flight");
    let place = match order {
        Order::ByPlan => 0,
        Order::Drawn(dice) => dice.below(keys.len()),
    };
    let input = settling(case, sim, keys[place].clone());
    assert_eq!(sim.feed(input).declined, None);
}

fn settling(case: &Case, sim: &Sim, key: EffectKey) -> Input {
    let act = case.act(&key.task_path, &key.node, key.attempt);
    let ask = sim.state.asks().find(|ask| ask.flight.key == key).map(|ask| ask.tool_call_id);
    if let Some(tool_call_id) = ask {
        let (answer, is_error) = match act {
            Act::Gives(output) => (Payload::new(output), false),
            Act::Breaks | Act::Refuses => (Payload::new("null"), true),
        };
        return Input::Answer { tool_call_id, by: "user:bea".to_owned(), answer, is_error };
    }
    let failed = |cause| EffectOutcome::Failed { failure: Failure::new(cause, "it broke") };
    let outcome = match act {
        Act::Gives(output) => EffectOutcome::Completed { output: Payload::new(output) },
        Act::Breaks => failed(FailureCause::ExecutorError),
        Act::Refuses => failed(FailureCause::Unknown),
    };
    Input::Result { key, outcome, usage: Usage { fuel: 3, ..Usage::default() } }
}
