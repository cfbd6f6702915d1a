//! A second scheduler, written from the rules alone: small, slow, obvious. It shares no code with the core, keeps no event
//! and knows no clock: it plays a plan from superstep to superstep on plain JSON.

mod condition;
mod merge;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::generated::{Act, Case};

/// One superstep.
#[derive(Debug, PartialEq)]
pub struct Step {
    /// Everything that was dispatched, in order.
    pub dispatched: Vec<Dispatch>,
    /// Edges that fired, by their place in the plan, in the order of their evaluation.
    pub fired: Vec<u32>,
    /// The state after it.
    pub state: String,
}

/// One dispatch: of a node, or of a fan-out task for it.
#[derive(Debug, PartialEq)]
pub struct Dispatch {
    pub task_path: String,
    pub node: String,
    pub attempt: u32,
    pub input: String,
}

/// How a run ends.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    Completed,
    Failed(String),
    Stalled(String),
    Exhausted(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Node {
    Waiting,
    Ready,
    /// It is executed by fan-out tasks only.
    Tasks,
    Done,
    Dead,
    Failed,
}

struct Edge {
    from: String,
    to: String,
    condition: Option<String>,
    max: Option<u64>,
    leads_back: bool,
    fired: u64,
}

/// A part of a fan-out that has not settled for good.
struct Task {
    node: String,
    input: String,
    attempts: u32,
    failures: u64,
}

/// A run of a plan.
pub struct Model<'a> {
    case: &'a Case,
    names: Vec<String>,
    edges: Vec<Edge>,
    nodes: BTreeMap<String, Node>,
    /// Nodes into which an edge has fired since they last became ready.
    reached: BTreeSet<String>,
    /// Nodes whose last evaluation fired nothing although edges lead on.
    stuck: BTreeSet<String>,
    attempts: BTreeMap<String, u32>,
    failures: BTreeMap<String, u64>,
    /// Fan-out tasks by path.
    tasks: BTreeMap<String, Task>,
    /// Tasks that each node and each task asked for so far.
    sent: BTreeMap<String, usize>,
    state: Map<String, Value>,
    effects: u64,
    tool_calls: u64,
}

/// Plays a case to its end.
pub fn play(case: &Case) -> (Vec<Step>, End) {
    let mut model = Model::new(case);
    let mut steps = Vec::new();
    loop {
        if let Some(node) = model.first(Node::Failed) {
            return (steps, End::Failed(node));
        }
        let ready = model.ready();
        if ready.is_empty() {
            return (steps, model.at_rest());
        }
        if let Some(budget) = model.exhausted(steps.len() as u64, &ready) {
            return (steps, End::Exhausted(budget));
        }
        steps.push(model.superstep(&ready));
    }
}

impl<'a> Model<'a> {
    fn new(case: &'a Case) -> Self {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let names: Vec<String> = case.plan["nodes"].as_array().unwrap().iter().map(text).collect();
        let edge = |edge: &Value| Edge {
            from: text(&edge["src"]),
            to: text(&edge["dst"]),
            condition: edge.get("cond").map(text),
            max: edge.get("max_cycles").map(|max| max.as_u64().unwrap()),
            leads_back: false,
            fired: 0,
        };
        let mut model = Self {
            case,
            edges: case.plan["edges"].as_array().unwrap().iter().map(edge).collect(),
            nodes: names.iter().map(|name| (name.clone(), Node::Waiting)).collect(),
            reached: BTreeSet::new(),
            stuck: BTreeSet::new(),
            attempts: BTreeMap::new(),
            failures: BTreeMap::new(),
            tasks: BTreeMap::new(),
            sent: BTreeMap::new(),
            state: match serde_json::from_str(case.input).unwrap() {
                Value::Object(object) => object,
                other => Map::from_iter([("input".to_owned(), other)]),
            },
            effects: 0,
            tool_calls: 0,
            names,
        };
        let entry = model.names[0].clone();
        model.find_what_leads_back(&entry, &mut Vec::new(), &mut BTreeSet::new());
        model.nodes.insert(entry, Node::Ready);
        model
    }

    /// Depth first in the order of declaration: an edge to a node on the way here leads back.
    fn find_what_leads_back(&mut self, node: &str, way: &mut Vec<String>, seen: &mut BTreeSet<String>) {
        seen.insert(node.to_owned());
        way.push(node.to_owned());
        for edge in 0..self.edges.len() {
            if self.edges[edge].from != node {
                continue;
            }
            let to = self.edges[edge].to.clone();
            if way.contains(&to) {
                self.edges[edge].leads_back = true;
            } else if !seen.contains(&to) {
                self.find_what_leads_back(&to, way, seen);
            }
        }
        way.pop();
    }

    fn all(&self, state: Node) -> Vec<String> {
        self.names.iter().filter(|name| self.nodes[*name] == state).cloned().collect()
    }

    fn first(&self, state: Node) -> Option<String> {
        self.all(state).into_iter().next()
    }

    fn at_rest(&self) -> End {
        let is_end = |name: &String| !self.edges.iter().any(|edge| edge.from == *name && !edge.leads_back);
        if self.all(Node::Done).iter().any(is_end) {
            return End::Completed;
        }
        let stuck = self.all(Node::Done).into_iter().find(|name| self.stuck.contains(name));
        End::Stalled(stuck.expect("some node fired nothing"))
    }

    /// What is dispatched next: nodes in the plan's order, then tasks by path.
    fn ready(&self) -> Vec<(String, String)> {
        let nodes = self.all(Node::Ready).into_iter().map(|node| (String::new(), node));
        nodes.chain(self.tasks.iter().map(|(path, task)| (path.clone(), task.node.clone()))).collect()
    }

    fn exhausted(&self, supersteps: u64, ready: &[(String, String)]) -> Option<&'static str> {
        let tools = ready.iter().filter(|(_, node)| !self.case.people.contains(node)).count() as u64;
        let over = |max: Option<u64>, used: u64, wanted: u64| wanted > 0 && max.is_some_and(|max| used + wanted > max);
        if supersteps >= self.case.max_supersteps.unwrap_or(1024) {
            Some("max_supersteps")
        } else if over(self.case.max_effects, self.effects, ready.len() as u64) {
            Some("max_effects")
        } else if over(self.case.max_tool_calls, self.tool_calls, tools) {
            Some("max_tool_calls")
        } else {
            None
        }
    }

    fn superstep(&mut self, ready: &[(String, String)]) -> Step {
        let mut dispatched = Vec::new();
        let mut results = Vec::new();
        let state = text(&self.state);
        let (mut in_wave, mut failed, mut failed_in_wave) = (0, false, false);
        for (path, node) in ready {
            let person = self.case.people.contains(node);
            if !person && self.case.wave == Some(in_wave) {
                failed |= failed_in_wave;
                in_wave = 0;
            }
            // What failed for good ends the run; the waves after it are not dispatched.
            if failed {
                break;
            }
            in_wave += u32::from(!person);
            let (attempt, input) = self.attempt(path, node, &state);
            dispatched.push(Dispatch { task_path: path.clone(), node: node.clone(), attempt, input });
            self.effects += 1;
            self.tool_calls += u64::from(!person);
            match self.case.act(path, node, attempt) {
                Act::Gives(output) => results.push((path, node, output)),
                // It stays ready; when something else failed for good, the run ends all the same.
                Act::Breaks if !person && self.may_try_again(path, node) => {}
                Act::Breaks | Act::Refuses => {
                    self.nodes.insert(node.clone(), Node::Failed);
                    failed_in_wave |= !person;
                }
            }
        }
        let (mut settled, mut senders) = (BTreeSet::new(), BTreeSet::new());
        for (path, node, output) in &results {
            settled.insert((*node).clone());
            if self.settled(path, node, output) {
                senders.insert((*node).clone());
            }
        }
        let done: Vec<String> = self.names.iter().filter(|name| settled.contains(*name)).cloned().collect();
        let done: Vec<String> = done.into_iter().filter(|name| self.is_complete(name)).collect();
        for name in &done {
            self.nodes.insert(name.clone(), Node::Done);
        }
        let fired = self.evaluate(&done, &senders);
        self.settle();
        Step { dispatched, fired, state: text(&self.state) }
    }

    /// Counts an attempt; its number and its input.
    fn attempt(&mut self, path: &str, node: &str, state: &str) -> (u32, String) {
        if let Some(task) = self.tasks.get_mut(path) {
            task.attempts += 1;
            return (task.attempts, task.input.clone());
        }
        let attempt = self.attempts.entry(node.to_owned()).or_default();
        *attempt += 1;
        (*attempt, state.to_owned())
    }

    /// A failure counts in its generation; so many may be followed by another attempt.
    fn may_try_again(&mut self, path: &str, node: &str) -> bool {
        let failures = match self.tasks.get_mut(path) {
            Some(task) => &mut task.failures,
            None => self.failures.entry(node.to_owned()).or_default(),
        };
        *failures += 1;
        *failures <= self.case.plan["retries"].get(node).map_or(0, |retries| retries.as_u64().unwrap())
    }

    /// Merges a result, and makes the tasks that it asks for; whether there are any.
    fn settled(&mut self, path: &str, node: &str, output: &str) -> bool {
        if self.tasks.remove(path).is_none() && self.nodes[node] == Node::Ready {
            self.nodes.insert(node.to_owned(), Node::Tasks);
        }
        let mut output: Value = serde_json::from_str(output).unwrap();
        let sends = output.as_object_mut().and_then(|object| object.remove("$send")).unwrap_or_default();
        merge::result(&mut self.state, &self.case.plan["reducers"], node, output);
        let parent = if path.is_empty() { node } else { path };
        let sends = sends.as_array().cloned().unwrap_or_default();
        for send in &sends {
            let ordinal = self.sent.entry(parent.to_owned()).or_default();
            let (path, node) = (format!("{parent}/{ordinal:04}"), send["node"].as_str().unwrap().to_owned());
            *ordinal += 1;
            let task = Task { node: node.clone(), input: send["input"].to_string(), attempts: 0, failures: 0 };
            self.tasks.insert(path, task);
            self.restart(&node);
            if self.nodes[&node] == Node::Waiting {
                self.nodes.insert(node, Node::Tasks);
            }
        }
        !sends.is_empty()
    }

    /// Whether neither the node itself nor a task for it is still to settle.
    fn is_complete(&self, name: &str) -> bool {
        self.nodes[name] == Node::Tasks && self.tasks.values().all(|task| task.node != name)
    }

    /// A resolved node starts anew.
    fn restart(&mut self, name: &str) {
        if matches!(self.nodes[name], Node::Done | Node::Dead) {
            self.nodes.insert(name.to_owned(), Node::Waiting);
            self.failures.remove(name);
        }
    }

    /// Evaluates the out-edges of done nodes, then delivers: an edge that fires into a resolved node starts it anew.
    fn evaluate(&mut self, done: &[String], senders: &BTreeSet<String>) -> Vec<u32> {
        let mut fired = Vec::new();
        for name in done {
            let (mut leads_on, mut fires) = (false, false);
            for (place, edge) in (0..).zip(&mut self.edges).filter(|(_, edge)| edge.from == *name) {
                leads_on = true;
                let holds = edge.condition.as_ref().is_none_or(|text| condition::holds(text, &self.state));
                if holds && edge.max.is_none_or(|max| edge.fired < max) {
                    edge.fired += 1;
                    fires = true;
                    fired.push(place);
                }
            }
            let stuck = leads_on && !fires && !senders.contains(name);
            if stuck {
                self.stuck.insert(name.clone())
            } else {
                self.stuck.remove(name)
            };
        }
        for edge in &fired {
            let to = self.edges[*edge as usize].to.clone();
            self.restart(&to);
            if self.nodes[&to] == Node::Waiting {
                self.reached.insert(to);
            }
        }
        fired
    }

    /// A waiting node is decided when nothing can lead to it any more: ready if an edge fired into it, dead if none did.
    fn settle(&mut self) {
        loop {
            let waiting = self.all(Node::Waiting).into_iter().find(|name| {
                self.before(name).iter().all(|other| matches!(self.nodes[other], Node::Done | Node::Dead))
            });
            let Some(name) = waiting else { return };
            let state = if self.reached.remove(&name) { Node::Ready } else { Node::Dead };
            self.nodes.insert(name, state);
        }
    }

    /// All nodes from which one gets here without going back.
    fn before(&self, name: &str) -> BTreeSet<String> {
        let mut found: BTreeSet<String> = BTreeSet::new();
        loop {
            let is_before = |edge: &&Edge| !edge.leads_back && (edge.to == name || found.contains(&edge.to));
            let new = self.edges.iter().filter(is_before).map(|edge| edge.from.clone());
            let new: Vec<String> = new.filter(|from| !found.contains(from)).collect();
            if new.is_empty() {
                return found;
            }
            found.extend(new);
        }
    }
}

fn text(state: &Map<String, Value>) -> String {
    serde_json::to_string(state).unwrap()
}
