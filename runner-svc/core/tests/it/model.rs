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
    /// Node, attempt and input of everything that was dispatched, in order.
    pub dispatched: Vec<(String, u32, String)>,
    /// Edges that fired, by their place in the plan, in the order of their evaluation.
    pub fired: Vec<u32>,
    /// The state after it.
    pub state: String,
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
        let ready = model.all(Node::Ready);
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

    fn exhausted(&self, supersteps: u64, ready: &[String]) -> Option<&'static str> {
        let tools = ready.iter().filter(|name| !self.case.people.contains(name)).count() as u64;
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

    fn superstep(&mut self, ready: &[String]) -> Step {
        let mut dispatched = Vec::new();
        let mut done = Vec::new();
        let input = text(&self.state);
        for name in ready {
            let attempt = self.attempts.entry(name.clone()).or_default();
            *attempt += 1;
            dispatched.push((name.clone(), *attempt, input.clone()));
            self.effects += 1;
            let person = self.case.people.contains(name);
            self.tool_calls += u64::from(!person);
            match self.case.act(name, *attempt) {
                Act::Gives(output) => done.push((name, output)),
                // It stays ready; when something else failed for good, the run ends all the same.
                Act::Breaks if !person && self.may_try_again(name) => {}
                Act::Breaks | Act::Refuses => drop(self.nodes.insert(name.clone(), Node::Failed)),
            }
        }
        for (name, output) in &done {
            self.nodes.insert((*name).clone(), Node::Done);
            merge::result(&mut self.state, &self.case.plan["reducers"], name, output);
        }
        let fired = self.evaluate(done.iter().map(|(name, _)| *name));
        self.settle();
        Step { dispatched, fired, state: text(&self.state) }
    }

    /// A failure counts in its generation; so many may be followed by another attempt.
    fn may_try_again(&mut self, name: &str) -> bool {
        let failures = self.failures.entry(name.to_owned()).or_default();
        *failures += 1;
        *failures <= self.case.plan["retries"].get(name).map_or(0, |retries| retries.as_u64().unwrap())
    }

    /// Evaluates the out-edges of done nodes, then delivers: an edge that fires into a resolved node starts it anew.
    fn evaluate<'n>(&mut self, done: impl Iterator<Item = &'n String>) -> Vec<u32> {
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
            if leads_on && !fires {
                self.stuck.insert(name.clone())
            } else {
                self.stuck.remove(name)
            };
        }
        for edge in &fired {
            let to = self.edges[*edge as usize].to.clone();
            if matches!(self.nodes[&to], Node::Done | Node::Dead) {
                self.nodes.insert(to.clone(), Node::Waiting);
                self.failures.remove(&to);
            }
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
