//! Generated plans: every shape that a plan may have, and what its nodes answer.

use runner_core::pinned::Executor;
use serde_json::{Map, Value, json};

use crate::{
    dice::Dice,
    sim::{Setup, native, wasm, wasm_io},
};

/// State keys that results write and conditions read: few, so that they meet.
const KEYS: [&str; 6] = ["a", "b", "sum", "log", "max", "min"];

/// What an attempt gives.
#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    /// One JSON text.
    Gives(String),
    /// A failure that may be tried again.
    Breaks,
    /// A failure that may not.
    Refuses,
}

/// A generated case.
#[derive(Debug)]
pub struct Case {
    pub seed: u64,
    pub plan: Value,
    pub input: &'static str,
    pub max_supersteps: Option<u64>,
    pub max_effects: Option<u64>,
    pub max_tool_calls: Option<u64>,
    /// Effects of one wave.
    pub wave: Option<u32>,
    /// Nodes that people answer.
    pub people: Vec<String>,
    executors: Vec<(String, Executor)>,
}

impl Case {
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice::of(seed);
        let nodes = node_names(&mut dice);
        let edges = edges(&mut dice, &nodes);
        let mut retries = Map::new();
        let mut executors = Vec::new();
        for node in &nodes {
            if dice.once_in(2) {
                retries.insert(node.clone(), json!(dice.below(3)));
            }
            executors.push((node.clone(), executor(&mut dice)));
        }
        let people = executors.iter().filter(|(_, executor)| *executor == Executor::Person);
        let budget = |dice: &mut Dice, times| dice.once_in(times).then(|| dice.below(12) as u64);
        Self {
            seed,
            people: people.map(|(node, _)| node.clone()).collect(),
            max_supersteps: budget(&mut dice, 6),
            max_effects: budget(&mut dice, 6),
            max_tool_calls: budget(&mut dice, 6),
            wave: dice.pick(&[None, Some(1), Some(2), Some(3), Some(1024)]),
            input: dice.pick(&["{}", r#"{"a":1,"sum":5}"#, r#"{"log":["begun"],"b":{"x":2}}"#, "7", "[1,2]"]),
            plan: json!({"nodes": shuffled_behind_the_entry(&mut dice, &nodes), "edges": edges, "retries": retries,
                "reducers": {"sum": "sum", "log": "append", "max": "max", "min": "min"}}),
            executors,
        }
    }

    pub fn setup(&self) -> Setup {
        let (input, wave_effects_max) = (self.input, self.wave);
        let mut setup = Setup { input, wave_effects_max, ..Setup::of(self.plan.clone()) };
        setup.budgets.max_supersteps = self.max_supersteps.unwrap_or(setup.budgets.max_supersteps);
        setup.budgets.max_effects = self.max_effects;
        setup.budgets.max_tool_calls = self.max_tool_calls;
        self.executors.iter().cloned().fold(setup, |setup, (node, executor)| setup.with(&node, executor))
    }

    /// What an attempt of a node, or of a fan-out task for it, gives: the same whenever it is asked.
    pub fn act(&self, task_path: &str, node: &str, attempt: u32) -> Act {
        let mut dice = Dice::about(self.seed, &format!("{task_path}|{node}/{attempt}"));
        match dice.below(14) {
            0 => Act::Breaks,
            1 if dice.once_in(4) => Act::Refuses,
            2 => Act::Gives("null".to_owned()),
            3 => Act::Gives(value(&mut dice).to_string()),
            // Tasks of tasks of tasks would have no end.
            4 if task_path.matches('/').count() < 2 && !self.is_person(node) => {
                Act::Gives(self.sending(&mut dice, node).to_string())
            }
            _ => Act::Gives(object(&mut dice).to_string()),
        }
    }

    fn is_person(&self, node: &str) -> bool {
        self.people.iter().any(|person| person == node)
    }

    /// A result that asks for tasks, all of which may be.
    fn sending(&self, dice: &mut Dice, sender: &str) -> Value {
        let takes_tasks = |(node, executor): &&(String, Executor)| node != sender && *executor != Executor::Person;
        let targets: Vec<&str> = self.executors.iter().filter(takes_tasks).map(|(node, _)| node.as_str()).collect();
        let mut result = object(dice);
        if !targets.is_empty() {
            let items: Vec<Value> = (0..dice.below(5))
                .map(|_| json!({"node": targets[dice.below(targets.len())], "input": value(dice)}))
                .collect();
            result["$send"] = json!(items);
        }
        result
    }
}

fn node_names(dice: &mut Dice) -> Vec<String> {
    (0..=dice.below(8)).map(|number| format!("n{number}")).collect()
}

/// An edge to each node from one before it, so that all are reached; then any others. What leads back is bounded.
fn edges(dice: &mut Dice, nodes: &[String]) -> Vec<Value> {
    let mut ends: Vec<(usize, usize)> = (1..nodes.len()).map(|node| (dice.below(node), node)).collect();
    for _ in 0..dice.below(6) {
        ends.push((dice.below(nodes.len()), dice.below(nodes.len())));
    }
    for place in (1..ends.len()).rev() {
        ends.swap(place, dice.below(place + 1));
    }
    let edge = |(source, destination): (usize, usize)| {
        let mut edge = json!({"src": nodes[source], "dst": nodes[destination]});
        if destination <= source || dice.once_in(8) {
            edge["max_cycles"] = json!(dice.below(4));
        }
        if dice.once_in(2) {
            edge["cond"] = json!(condition(dice));
        }
        edge
    };
    ends.into_iter().map(edge).collect()
}

fn condition(dice: &mut Dice) -> String {
    let path = dice.pick(&["a", "b", "sum", "log", "b.x", "input", "n1", "a.x.y", "never"]);
    match dice.below(6) {
        0 => format!("{path} == {}", dice.pick(&["1", "2", "1.5", "\"1\"", "null", "true", "0"])),
        1 => format!("{path} != {}", dice.pick(&["1", "\"x\"", "null", "false"])),
        2 => format!("{path} exists"),
        3 => format!("!{path}"),
        _ => path.to_owned(),
    }
}

fn shuffled_behind_the_entry(dice: &mut Dice, nodes: &[String]) -> Vec<String> {
    let mut shuffled = nodes.to_vec();
    for place in (2..shuffled.len()).rev() {
        shuffled.swap(place, 1 + dice.below(place));
    }
    shuffled
}

fn executor(dice: &mut Dice) -> Executor {
    match dice.below(8) {
        0 => wasm(),
        1 => wasm_io(),
        2 => native(),
        3 => Executor::Person,
        _ => Executor::HostTool,
    }
}

fn object(dice: &mut Dice) -> Value {
    let mut object = Map::new();
    for _ in 0..dice.below(4) {
        object.insert(dice.pick(&KEYS).to_owned(), value(dice));
    }
    Value::Object(object)
}

fn value(dice: &mut Dice) -> Value {
    match dice.below(12) {
        0 => json!(null),
        1 => json!(dice.once_in(2)),
        2 => json!(""),
        3 => json!("x"),
        4 => json!([]),
        5 => json!([dice.below(3), "y"]),
        6 => json!({"x": dice.below(3)}),
        7 => json!(1.5),
        8 => json!(9_007_199_254_740_993_u64),
        9 => json!(-3),
        _ => json!(dice.below(3)),
    }
}
