//! The core and the model play the same generated plans: the same dispatches, fired edges, states and ends.

use std::{collections::BTreeMap, sync::Mutex};

use runner_core::{
    budget::Axis,
    event::{Event, Fired},
    outcome::RunOutcome,
};

use crate::{
    dice,
    driving::{self, Order},
    generated::Case,
    model::{self, Dispatch, End, Step},
    sim::Sim,
};

/// Generated plans.
const CASES: u64 = 4000;

#[test]
fn the_core_does_what_the_model_does() {
    let ends = Mutex::new(BTreeMap::new());
    dice::play(CASES, |seed| {
        let case = Case::of(seed);
        let (steps, end) = model::play(&case);
        let mut sim = case.setup().start();
        driving::to_the_end(&case, &mut sim, Order::ByPlan);
        same_steps(&case, &sim, &steps);
        assert_eq!(ended(&sim), end, "{:#}", case.plan);
        assert_eq!(sim.state.document().text(), steps.last().map_or(first_state(&sim), |step| step.state.clone()));
        let kind = format!("{end:?}").split('(').next().unwrap().to_owned();
        *ends.lock().unwrap().entry(kind).or_insert(0) += 1;
    });
    println!("ends: {:?}", ends.lock().unwrap());
}

/// Before any superstep the state is the input.
fn first_state(sim: &Sim) -> String {
    match sim.entries[0].event() {
        Event::RunStarted { input, .. } => input.text().to_owned(),
        other => panic!("a run begins with {}", other.kind()),
    }
}

fn same_steps(case: &Case, sim: &Sim, steps: &[Step]) {
    let mut expected = steps.iter().enumerate();
    let mut dispatched = Vec::new();
    for entry in &sim.entries {
        match entry.event() {
            Event::SuperstepOpened { .. } => dispatched.clear(),
            Event::IntentRecorded { key, input, .. } | Event::AskRaised { key, input, .. } => {
                dispatched.push((key.task_path.clone(), key.node.clone(), key.attempt, *input));
            }
            Event::SuperstepClosed { fired, state, .. } => {
                let (number, step) = expected.next().expect("the model has fewer supersteps");
                let model: Vec<_> = step.dispatched.iter().map(hashed).collect();
                assert_eq!(dispatched, model, "dispatches of superstep {number} of {:#}", case.plan);
                let Fired::Here(fired) = fired else { panic!("few edges stand in the record") };
                assert_eq!(*fired, step.fired, "fired in superstep {number} of {:#}", case.plan);
                let digest = content_digest::Digest::of(&step.state);
                assert_eq!(*state, digest, "superstep {number} of {:#}: the model has {}", case.plan, step.state);
            }
            _ => {}
        }
    }
    assert!(expected.next().is_none(), "the model has more supersteps: {:#}", case.plan);
}

fn hashed(dispatch: &Dispatch) -> (String, String, u32, content_digest::Digest) {
    let Dispatch { task_path, node, attempt, input } = dispatch;
    (task_path.clone(), node.clone(), *attempt, content_digest::Digest::of(input))
}

fn ended(sim: &Sim) -> End {
    match sim.outcome() {
        RunOutcome::Completed { .. } => End::Completed,
        RunOutcome::Failed { node, .. } => End::Failed(node.clone()),
        RunOutcome::Stalled { node } => End::Stalled(node.clone()),
        RunOutcome::BudgetExhausted { axis, .. } => End::Exhausted(Axis::option(*axis)),
        RunOutcome::Canceled { .. } => panic!("nobody canceled"),
    }
}
