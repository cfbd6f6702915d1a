//! Generated plans whose nodes cost something: fuel, brokered calls, time, journal; some are plans themselves.

use runner_core::{
    budget::Budgets,
    manifest::NodePolicy,
    outcome::FailureCause,
    pinned::{Executor, RuntimeLimits},
    retry::Backoff,
};
use serde_json::{Map, Value, json};

use crate::{
    dice::Dice,
    sim::{Setup, wasm, wasm_io},
};

/// Milliseconds of the first delay between attempts; each further one is twice as long, up to the last.
pub const DELAY_MS: [u64; 3] = [4, 8, 12];

/// What executes a node.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    Tool,
    /// A module and the fuel that it may burn.
    Pure(u64),
    /// A module, its fuel, and the brokered calls that it may make.
    Io(u64, u64),
    /// A plan of its own.
    Sub(Box<Level>),
}

/// One plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    pub nodes: Vec<Node>,
    /// Edges by the places of their ends, each from an earlier node to a later one.
    pub edges: Vec<(usize, usize)>,
}

/// One node of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub name: String,
    pub kind: Kind,
    pub retries: u64,
    /// Whether its attempts wait for each other; only at the top.
    pub delays: bool,
}

/// What an attempt does: the same whenever it is asked.
#[derive(Debug, Clone, Copy)]
pub struct Act {
    /// Fuel that it would burn, and calls that it would make.
    pub fuel: u64,
    pub calls: u64,
    /// How it fails, if it does.
    pub fails: Option<FailureCause>,
}

/// A generated case.
#[derive(Debug)]
pub struct Case {
    pub seed: u64,
    pub top: Level,
    pub budgets: Budgets,
    /// Effects of one wave.
    pub wave: u32,
}

impl Case {
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice::about(seed, "metered");
        let mut names = 0;
        let top = level(&mut dice, &mut names, 2);
        let some = |dice: &mut Dice, times, max: usize| dice.once_in(times).then(|| dice.below(max) as u64);
        let budgets = Budgets {
            max_supersteps: some(&mut dice, 6, 12).unwrap_or(1024),
            max_effects: some(&mut dice, 4, 24),
            max_tool_calls: some(&mut dice, 5, 24),
            max_wall_ms: some(&mut dice, 3, 40),
            max_fuel: some(&mut dice, 2, 300),
            max_storage_bytes: storage(&mut dice),
            max_egress_calls: some(&mut dice, 3, 10),
            ..Budgets::default()
        };
        Self { seed, wave: dice.pick(&[1, 2, 3, 1024]), top, budgets }
    }

    pub fn setup(&self) -> Setup {
        let setup = Setup { budgets: self.budgets, wave_effects_max: Some(self.wave), ..Setup::of(self.top.plan()) };
        with_executors(setup, &self.top)
    }

    /// What an attempt of a node in a run does.
    pub fn act(&self, run_id: &str, node: &str, attempt: u32) -> Act {
        let mut dice = Dice::about(self.seed, &format!("{run_id}/{node}/{attempt}"));
        let fails = match dice.below(12) {
            0 => Some(FailureCause::Timeout),
            1 => Some(FailureCause::ExecutorError),
            2 if dice.once_in(3) => Some(FailureCause::Unknown),
            _ => None,
        };
        Act { fuel: dice.below(40) as u64, calls: dice.below(4) as u64, fails }
    }
}

/// A bound that a few events reach, or one that a few effects side by side might.
fn storage(dice: &mut Dice) -> Option<u64> {
    match dice.below(6) {
        0 => Some(2000 + dice.below(20_000) as u64),
        1 => Some(((1 + dice.below(10)) << 22) as u64),
        _ => None,
    }
}

impl Level {
    /// The plan's document.
    fn plan(&self) -> Value {
        let name = |place: &usize| self.nodes[*place].name.clone();
        let names: Vec<&String> = self.nodes.iter().map(|node| &node.name).collect();
        let edges: Vec<Value> =
            self.edges.iter().map(|(from, to)| json!({"src": name(from), "dst": name(to)})).collect();
        let retries: Map<String, Value> =
            self.nodes.iter().map(|node| (node.name.clone(), json!(node.retries))).collect();
        json!({"nodes": names, "edges": edges, "retries": retries})
    }
}

fn level(dice: &mut Dice, names: &mut usize, below: usize) -> Level {
    let mut nodes = Vec::new();
    for _ in 0..=dice.below(4) {
        *names += 1;
        let name = format!("n{names}");
        let kind = match dice.below(6) {
            0 => Kind::Pure(dice.below(60) as u64 + 1),
            1 => Kind::Io(dice.below(60) as u64 + 1, dice.below(5) as u64 + 1),
            2 if below > 0 => Kind::Sub(Box::new(level(dice, names, below - 1))),
            _ => Kind::Tool,
        };
        nodes.push(Node { name, kind, retries: dice.below(3) as u64, delays: below == 2 && dice.once_in(2) });
    }
    let mut edges: Vec<(usize, usize)> = (1..nodes.len()).map(|node| (dice.below(node), node)).collect();
    if nodes.len() > 2 {
        let to = 1 + dice.below(nodes.len() - 1);
        let other = (dice.below(to), to);
        if !edges.contains(&other) {
            edges.push(other);
        }
    }
    Level { nodes, edges }
}

fn with_executors(mut setup: Setup, level: &Level) -> Setup {
    for node in &level.nodes {
        let limited = |executor: Executor, fuel: u64, calls: Option<u64>| {
            let Executor::Code { digest, runtime, capabilities, .. } = executor else { panic!("a module is code") };
            let limits = Some(RuntimeLimits { fuel: Some(fuel), max_calls: calls, ..RuntimeLimits::default() });
            Executor::Code { digest, runtime, limits, capabilities }
        };
        if node.delays {
            let [initial_ms, _, max_ms] = DELAY_MS;
            let backoff = Some(Backoff { initial_ms, factor_milli: 2000, max_ms, jitter_milli: 0 });
            setup.policies.insert(node.name.clone(), NodePolicy { timeout_ms: None, backoff });
        }
        setup = match &node.kind {
            Kind::Tool => setup,
            Kind::Pure(fuel) => setup.with(&node.name, limited(wasm(), *fuel, None)),
            Kind::Io(fuel, calls) => setup.with(&node.name, limited(wasm_io(), *fuel, Some(*calls))),
            Kind::Sub(inner) => with_executors(setup.with_subgraph(&node.name, inner.plan()), inner),
        };
    }
    setup
}
