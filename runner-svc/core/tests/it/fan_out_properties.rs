//! Generated fan-outs with waves, budgets and delays: any completion order and any crash lead to the same bytes and accounts.

use runner_core::{
    budget::{Budgets, Spent},
    event::Event,
    input::Input,
    key::EffectKey,
    manifest::NodePolicy,
    outcome::{EffectOutcome, Failure, FailureCause, RunOutcome, Usage},
    owed::next_tick_ms,
    payload::Payload,
    pinned::{Executor, RuntimeLimits},
    retry::Backoff,
};
use serde_json::{Map, Value, json};

use crate::{
    dice::{self, Dice},
    sim::{Setup, Sim, wasm},
};

/// Generated cases of each property.
const CASES: u64 = 2000;
/// Settled effects after which nothing sends any more: a run ends.
const SENDERS_MAX: u32 = 3;

struct Case {
    seed: u64,
    nodes: usize,
    edges: Vec<Value>,
    limits: Vec<Option<u64>>,
    wave: u32,
    budgets: Budgets,
    backoff: Option<Backoff>,
}

impl Case {
    fn of(seed: u64) -> Self {
        let mut dice = Dice::about(seed, "case");
        let nodes = 2 + dice.below(4);
        let mut edges = Vec::new();
        for node in 1..nodes {
            let mut edge = json!({"src": name(dice.below(node)), "dst": name(node)});
            if dice.once_in(3) {
                edge["cond"] = json!(dice.pick(&["never", "k", "!k"]));
            }
            edges.push(edge);
        }
        if dice.once_in(2) {
            let (a, b) = (dice.below(nodes), dice.below(nodes));
            edges.push(json!({"src": name(a.max(b)), "dst": name(a.min(b)), "max_cycles": 1, "cond": "k"}));
        }
        let number = |dice: &mut Dice, times, max| dice.once_in(times).then(|| dice.below(max) as u64);
        let backoff = Backoff { initial_ms: 5, factor_milli: 2000, max_ms: 40, jitter_milli: 500 };
        Self {
            seed,
            nodes,
            edges,
            limits: (0..nodes).map(|_| number(&mut dice, 2, 60)).collect(),
            wave: u32::try_from(1 + dice.below(6)).unwrap(),
            budgets: Budgets {
                max_fuel: number(&mut dice, 2, 600),
                max_effects: number(&mut dice, 4, 60),
                ..Budgets::default()
            },
            backoff: dice.once_in(2).then_some(backoff),
        }
    }

    fn start(&self) -> Sim {
        let names: Vec<String> = (0..self.nodes).map(name).collect();
        let retries: Map<String, Value> = names.iter().map(|name| (name.clone(), json!(2))).collect();
        let plan = json!({"nodes": names, "edges": self.edges, "retries": retries, "reducers": {"log": "append"}});
        let policy = NodePolicy { timeout_ms: None, backoff: self.backoff };
        let mut setup = Setup {
            budgets: self.budgets,
            wave_effects_max: Some(self.wave),
            policies: names.iter().map(|name| (name.clone(), policy)).collect(),
            ..Setup::of(plan)
        };
        for (name, fuel) in names.iter().zip(&self.limits) {
            let Some(fuel) = fuel else { continue };
            let Executor::Code { digest, runtime, capabilities, .. } = wasm() else { panic!("a module is code") };
            let limits = Some(RuntimeLimits { fuel: Some(*fuel), ..RuntimeLimits::default() });
            setup = setup.with(name, Executor::Code { digest, runtime, limits, capabilities });
        }
        setup.start()
    }

    /// What an attempt gives and burns: the same whenever it is asked.
    fn settle(&self, key: &EffectKey, fuel_left: Option<u64>) -> (EffectOutcome, Usage) {
        let mut dice = Dice::about(self.seed, &format!("{}/{}/{}", key.task_path, key.node, key.attempt));
        let node: usize = key.node[1..].parse().unwrap();
        let Some(limit) = self.limits[node] else { return (self.outcome(key, &mut dice), Usage::default()) };
        let wants = dice.below(50) as u64;
        let left = fuel_left.unwrap_or(u64::MAX).min(limit);
        let usage = Usage { fuel: wants.min(left), ..Usage::default() };
        let outcome = if wants > left { failed(FailureCause::ExecutorError) } else { self.outcome(key, &mut dice) };
        (outcome, usage)
    }

    fn outcome(&self, key: &EffectKey, dice: &mut Dice) -> EffectOutcome {
        match dice.below(24) {
            0 => failed(FailureCause::Unknown),
            1..4 => failed(FailureCause::Timeout),
            _ => EffectOutcome::Completed { output: Payload::new(self.output(key, dice).to_string()) },
        }
    }

    fn output(&self, key: &EffectKey, dice: &mut Dice) -> Value {
        let mut output = json!({"log": [key.task_path, key.node, key.attempt], "k": dice.below(2)});
        let depth = key.task_path.matches('/').count();
        if depth < 2 && key.attempt <= SENDERS_MAX && dice.once_in(2) {
            let sends = (0..dice.below(6)).map(|n| json!({"node": name(dice.below(self.nodes)), "input": {"n": n}}));
            let sends = sends.filter(|send| send["node"] != key.node.as_str());
            output["$send"] = sends.collect();
        }
        output
    }

    /// One step: a result, or the end of a delay.
    fn step(&self, sim: &mut Sim, dice: &mut Dice) {
        let keys: Vec<_> = sim.state.flights().map(|flight| flight.key.clone()).collect();
        if keys.is_empty() {
            let due = next_tick_ms(&sim.state).expect("an unfinished run waits for something");
            sim.now = sim.now.max(due);
            sim.feed_now(Input::Tick);
            return;
        }
        let key = keys[dice.below(keys.len())].clone();
        let dispatches = sim.dispatches();
        let dispatch = dispatches.iter().find(|dispatch| dispatch.key == key).expect("what is in flight is owed");
        let (outcome, usage) = self.settle(&key, dispatch.fuel_left);
        // Time passes while nothing but delays is waited for: what is due together must not depend on the order either.
        assert_eq!(sim.feed_now(Input::Result { key, outcome, usage }).declined, None);
    }
}

fn failed(cause: FailureCause) -> EffectOutcome {
    EffectOutcome::Failed { failure: Failure::new(cause, "it broke") }
}

fn name(node: usize) -> String {
    format!("n{node}")
}

/// What must depend on neither order nor crashes.
type Essence = (RunOutcome, Vec<String>, (u64, u64, u64));

fn essence(sim: &Sim) -> Essence {
    let closes = sim.entries.iter().map(|entry| entry.event());
    let closes = closes.filter(|event| matches!(event, Event::SuperstepClosed { .. })).map(Event::to_json).collect();
    let Spent { supersteps, effects, fuel, .. } = *sim.state.spent();
    (sim.outcome().clone(), closes, (supersteps, effects, fuel))
}

fn check(sim: &Sim, case: &Case) {
    let verdict = sim.verify();
    assert!(verdict.is_clean(), "{:?}", verdict.divergence);
    let folded = sim.reopen(sim.entries.len());
    assert_eq!((folded.state.spent(), folded.state.document()), (sim.state.spent(), sim.state.document()));
    if let Some(max) = case.budgets.max_fuel {
        assert!(sim.state.spent().fuel <= max, "{} of {max}", sim.state.spent().fuel);
    }
}

fn played(case: &Case, order: &str, crashes: bool) -> Sim {
    let mut dice = Dice::about(case.seed, order);
    let mut sim = case.start();
    while sim.state.outcome().is_none() {
        let in_flight = sim.dispatches().len();
        assert!(in_flight <= case.wave as usize, "{in_flight} in flight, over {}", case.wave);
        if crashes && dice.once_in(6) {
            sim = sim.reopen(1 + dice.below(sim.entries.len()));
            // The crash took no time either.
            sim.now = sim.state.last_at_ms();
            let fence = sim.state.fence() + 1;
            sim.feed_now(Input::TakeOver { holder: "user:runner@node-1/abc".to_owned(), fence });
        } else {
            case.step(&mut sim, &mut dice);
        }
    }
    check(&sim, case);
    sim
}

#[test]
fn any_completion_order_gives_the_same_bytes_and_accounts() {
    let ends = std::sync::Mutex::new(std::collections::BTreeMap::new());
    dice::play(CASES, |seed| {
        let case = Case::of(seed);
        let (one, other) = (played(&case, "one order", false), played(&case, "another", false));
        assert_eq!(essence(&one), essence(&other));
        let tasks = one.entries.iter().filter_map(|entry| entry.event().key()).any(|key| !key.task_path.is_empty());
        let end = format!("{:?}", one.outcome()).split([' ', '{']).next().unwrap().to_owned();
        *ends.lock().unwrap().entry((end, tasks)).or_insert(0) += 1;
    });
    println!("ends, with tasks or without: {:?}", ends.lock().unwrap());
}

#[test]
fn crashes_at_any_points_give_the_same_bytes_and_accounts() {
    dice::play(CASES / 5, |seed| {
        let case = Case::of(seed);
        assert_eq!(essence(&played(&case, "crashing", true)), essence(&played(&case, "one order", false)));
    });
}
