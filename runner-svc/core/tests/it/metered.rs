//! The core and an independent accountant play the same generated plans with subgraphs, delays and every budget: the same
//! dispatches, ends and accounts. And whatever completes first, and wherever a process dies, the accounts are the same.

mod case;
mod model;

use std::{collections::BTreeMap, sync::Mutex};

use runner_core::{
    budget::{Axis, Budgets},
    event::{Event, Exchange},
    input::Input,
    key::{EffectKey, EffectKind},
    outcome::{EffectOutcome, Failure, FailureCause, RunOutcome, Usage},
    owed::next_tick_ms,
    payload::Payload,
};
use serde_json::{Map, json};

use self::{
    case::{Case, Kind, Level},
    model::{Bytes, Dispatch, End, Played, Spent},
};
use crate::{
    dice::{self, Dice},
    sim::{Sim, T0},
};

/// Generated plans of each property.
const CASES: u64 = 3000;

/// A run of the core with its child runs, in the order in which they ended.
struct Family {
    sim: Sim,
    children: Vec<Family>,
}

/// Settles everything, the first in flight or a drawn one first; perhaps over crashes.
fn driven(case: &Case, level: &Level, run_id: &str, mut sim: Sim, chance: &mut Option<(Dice, usize)>) -> Family {
    let mut children = Vec::new();
    while sim.state.outcome().is_none() {
        if let Some((dice, crashes)) = chance
            && *crashes > 0
            && dice.once_in(6)
        {
            *crashes -= 1;
            // What was told is on the disk: a crash loses nothing that a child run or the world knows.
            sim = sim.reopen(sim.entries.len());
            let fence = sim.state.fence() + 1;
            sim.feed_now(Input::TakeOver { holder: "user:runner@node-1/abc".to_owned(), fence });
            continue;
        }
        let keys: Vec<EffectKey> = sim.state.flights().map(|flight| flight.key.clone()).collect();
        if keys.is_empty() {
            sim.now = sim.now.max(next_tick_ms(&sim.state).expect("an unfinished run waits for something"));
            sim.feed_now(Input::Tick);
            continue;
        }
        let place = chance.as_mut().map_or(0, |(dice, _)| dice.below(keys.len()));
        let key = keys[place].clone();
        if key.kind == EffectKind::Subgraph {
            let name = format!("{run_id}/{}/{}", key.node, key.attempt);
            let inner = level.nodes.iter().find(|node| node.name == key.node).map(|node| &node.kind);
            let Some(Kind::Sub(inner)) = inner else { panic!("{} is a subgraph", key.node) };
            let child = driven(case, inner, &name, sim.start_child(&key.node), chance);
            sim.now = child.sim.now;
            sim.child_ended(&key.node, &child.sim);
            children.push(child);
        } else {
            effect(case, run_id, &mut sim, key);
        }
    }
    let verdict = sim.verify();
    assert!(verdict.is_clean(), "{:?}", verdict.divergence);
    Family { sim, children }
}

/// Makes the calls of an effect and settles it.
fn effect(case: &Case, run_id: &str, sim: &mut Sim, key: EffectKey) {
    let dispatches = sim.dispatches();
    let dispatch = dispatches.iter().find(|dispatch| dispatch.key == key).expect("what is in flight is owed");
    let wants = dispatch.node.tool.wants();
    let act = case.act(run_id, &key.node, key.attempt);
    let fuel = act.fuel.min(dispatch.fuel_left.unwrap_or(wants.fuel).min(wants.fuel));
    let calls = act.calls.min(dispatch.egress_calls_left.unwrap_or(wants.egress_calls).min(wants.egress_calls));
    let short = wants.fuel > 0 && act.fuel > fuel || wants.egress_calls > 0 && act.calls > calls;
    let made = sim.state.flight(&key).unwrap().exchanges.len() as u64;
    for ordinal in made..calls {
        let exchange = Exchange {
            ordinal: u32::try_from(ordinal).unwrap(),
            request: content_digest::Digest::of("q"),
            response: Payload::new(r#"{"status":200,"body":""}"#),
            record: None,
            refused: false,
            blobs: Vec::new(),
        };
        assert_eq!(sim.feed(Input::Exchange { key: key.clone(), exchange }).declined, None);
    }
    let outcome = match act.fails.or(short.then_some(FailureCause::ExecutorError)) {
        Some(cause) => EffectOutcome::Failed { failure: Failure::new(cause, "it broke") },
        None => EffectOutcome::Completed { output: Payload::new(json!({&*key.node: key.attempt}).to_string()) },
    };
    let usage = Usage { fuel, ..Usage::default() };
    assert_eq!(sim.feed(Input::Result { key, outcome, usage }).declined, None);
}

fn core(case: &Case, chance: &mut Option<(Dice, usize)>) -> Family {
    driven(case, &case.top, "r1", case.setup().start(), chance)
}

/// What each event takes, from the records themselves.
fn bytes(family: &Family) -> Bytes {
    let (mut after, mut sum) = (vec![0], 0);
    for entry in &family.sim.entries {
        let texts: usize = entry.payloads().iter().map(|payload| payload.text().len()).sum();
        sum += (entry.record().len() + texts) as u64;
        after.push(sum);
    }
    Bytes { after, children: family.children.iter().map(bytes).collect() }
}

fn steps(sim: &Sim) -> Vec<Vec<(String, u32, content_digest::Digest)>> {
    let mut steps = Vec::new();
    for entry in &sim.entries {
        match entry.event() {
            Event::SuperstepOpened { .. } => steps.push(Vec::new()),
            Event::IntentRecorded { key, input, .. } => {
                steps.last_mut().unwrap().push((key.node.clone(), key.attempt, *input));
            }
            _ => {}
        }
    }
    steps
}

fn ended(sim: &Sim) -> End {
    match sim.outcome() {
        RunOutcome::Completed { output } => End::Completed(output.text().to_owned()),
        RunOutcome::Failed { node, failure } => End::Failed(node.clone(), failure.cause, !failure.permanent),
        RunOutcome::BudgetExhausted { axis, .. } => End::Exhausted(Axis::option(*axis)),
        other => panic!("{}", other.reason()),
    }
}

fn spent(sim: &Sim) -> Spent {
    let runner_core::budget::Spent {
        supersteps, effects, tool_calls, wall_ms, fuel, storage_bytes, egress_calls, ..
    } = *sim.state.spent();
    Spent { supersteps, effects, tool_calls, wall: wall_ms, fuel, storage: storage_bytes, calls: egress_calls }
}

fn agree(family: &Family, played: &Played, told: &str) {
    let hashed = |(node, attempt, input): &Dispatch| (node.clone(), *attempt, content_digest::Digest::of(input));
    let model: Vec<Vec<_>> = played.steps.iter().map(|step| step.iter().map(hashed).collect()).collect();
    assert_eq!(steps(&family.sim), model, "{told}");
    assert_eq!(ended(&family.sim), played.end, "{told}");
    // The end itself is an event that spends nothing any more.
    let last = family.sim.entries.last().unwrap().stored_bytes();
    let spent = spent(&family.sim);
    assert_eq!(Spent { storage: spent.storage - last, ..spent }, at_the_end(played), "{told}");
    assert_eq!(family.children.len(), played.children.len(), "{told}");
    for (child, played) in family.children.iter().zip(&played.children) {
        agree(child, played, told);
    }
}

fn at_the_end(played: &Played) -> Spent {
    played.spent
}

#[test]
fn the_core_keeps_the_accounts_that_the_model_keeps() {
    let ends = Mutex::new(BTreeMap::new());
    dice::play(CASES, |seed| {
        let case = Case::of(seed);
        let family = core(&case, &mut None);
        let bytes = bytes(&family);
        let begin = ("r1", case.budgets, Map::new(), T0);
        let played = model::play(&case, &case.top, begin, &bytes);
        agree(&family, &played, &format!("{case:#?}"));
        let end = match &played.end {
            End::Completed(_) => "completed",
            End::Failed(..) => "failed",
            End::Exhausted(budget) => budget,
        };
        *ends.lock().unwrap().entry((end, !played.children.is_empty())).or_insert(0) += 1;
    });
    println!("ends, with child runs or without: {:?}", ends.lock().unwrap());
}

/// Nothing of this depends on order, time or journal: those budgets are left out.
fn timeless(case: Case) -> Case {
    let budgets = Budgets { max_wall_ms: None, max_storage_bytes: None, ..case.budgets };
    Case { budgets, ..case }
}

/// What must depend on neither order nor crashes.
fn essence(family: &Family) -> (End, Vec<String>, Spent) {
    let closes = family.sim.entries.iter().map(|entry| entry.event());
    let closes = closes.filter(|event| matches!(event, Event::SuperstepClosed { .. })).map(Event::to_json).collect();
    (ended(&family.sim), closes, Spent { wall: 0, storage: 0, ..spent(&family.sim) })
}

#[test]
fn any_completion_order_and_any_crash_of_any_run_of_a_family_give_the_same_bytes_and_accounts() {
    dice::play(CASES / 3, |seed| {
        let mut case = timeless(Case::of(seed));
        // Delays are points in time: which of them end together depends on it.
        undelayed(&mut case.top);
        let whole = core(&case, &mut None);
        for (order, crashes) in [("order", 0), ("crashes", 6)] {
            let other = core(&case, &mut Some((Dice::about(seed, order), crashes)));
            assert_eq!(essence(&other), essence(&whole), "{order} of {case:#?}");
        }
    });
}

fn undelayed(level: &mut Level) {
    for node in &mut level.nodes {
        node.delays = false;
        if let Kind::Sub(inner) = &mut node.kind {
            undelayed(inner);
        }
    }
}
