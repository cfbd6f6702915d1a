//! The structural checks of a plan, in the order of their codes: E019, E005, E003, E002.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{Edge, Graph, NODE_ID_BYTES_MAX, Plan, PlanDocument};
use crate::{
    condition::Condition,
    reducer::Reducer,
    refusal::{Refusal, RefusalCode},
    text::{listed, shown},
};

/// Reads the fields that decide how a plan runs; other fields describe it and are left alone.
pub(super) fn read(fields: &Value) -> Result<PlanDocument, Vec<Refusal>> {
    let mut reader = Reader { problems: Vec::new() };
    let document = match fields.as_object() {
        Some(fields) => reader.document(fields),
        None => {
            reader.problem("the plan is no object".to_owned());
            PlanDocument::default()
        }
    };
    // A list or map that could not be read leaves holes: judging the rest would report what is not wrong.
    if reader.problems.is_empty() { Ok(document) } else { Err(reader.problems) }
}

struct Reader {
    problems: Vec<Refusal>,
}

impl Reader {
    fn problem(&mut self, text: String) {
        self.problems.push(Refusal::new(RefusalCode::BadPlan, text));
    }

    fn document(&mut self, fields: &Map<String, Value>) -> PlanDocument {
        let nodes = self.nodes(fields.get("nodes"));
        let edges = self.edges(fields.get("edges"));
        let bindings = self.map(fields.get("bindings"), "bindings", "the hash of a definition", |value| {
            value.as_str().map(str::to_owned)
        });
        let retries = self.map(fields.get("retries"), "retries", "a number of re-attempts, 0 to 4294967295", as_u32);
        let reducers = self.map(fields.get("reducers"), "reducers", &format!("one of {}", Reducer::NAMES), |value| {
            value.as_str().and_then(Reducer::parse)
        });
        PlanDocument { nodes, edges, bindings, retries, reducers }
    }

    fn nodes(&mut self, field: Option<&Value>) -> Vec<String> {
        let Some(items) = self.list(field, "nodes", "node ids") else { return Vec::new() };
        let mut nodes = Vec::with_capacity(items.len());
        for (place, item) in items.iter().enumerate() {
            match item.as_str() {
                Some(node) => nodes.push(node.to_owned()),
                None => {
                    self.problem(format!("nodes[{place}] is {}, not a text: name the node", shown(&item.to_string())))
                }
            }
        }
        nodes
    }

    fn edges(&mut self, field: Option<&Value>) -> Vec<Edge> {
        let Some(items) = self.list(field, "edges", "edges {src, dst, cond?, max_cycles?}") else { return Vec::new() };
        let mut edges = Vec::with_capacity(items.len());
        for (place, item) in items.iter().enumerate() {
            let text = |name: &str| item.get(name).and_then(Value::as_str).map(str::to_owned);
            let (Some(src), Some(dst)) = (text("src"), text("dst")) else {
                self.problem(format!("edges[{place}] is {}: it needs `src` and `dst`", shown(&item.to_string())));
                continue;
            };
            let max_cycles = item.get("max_cycles").filter(|value| !value.is_null());
            if let Some(value) = max_cycles.filter(|value| as_u32(value).is_none()) {
                let value = shown(&value.to_string());
                self.problem(format!("edges[{place}]: `max_cycles` is {value}: give a number, 0 to 4294967295"));
            }
            let cond = item.get("cond").filter(|value| !value.is_null());
            if let Some(value) = cond.filter(|value| !value.is_string()) {
                self.problem(format!("edges[{place}]: `cond` is {}, not a text", shown(&value.to_string())));
            }
            edges.push(Edge { src, dst, cond: text("cond"), max_cycles: max_cycles.and_then(as_u32) });
        }
        edges
    }

    fn list<'a>(&mut self, field: Option<&'a Value>, name: &str, of: &str) -> Option<&'a Vec<Value>> {
        let value = field.filter(|value| !value.is_null())?;
        if !value.is_array() {
            self.problem(format!("`{name}` is no list: give a list of {of}"));
        }
        value.as_array()
    }

    fn map<T>(
        &mut self,
        field: Option<&Value>,
        name: &str,
        wanted: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> BTreeMap<String, T> {
        let Some(value) = field.filter(|value| !value.is_null()) else { return BTreeMap::new() };
        let Some(members) = value.as_object() else {
            self.problem(format!("`{name}` is no object: give an object"));
            return BTreeMap::new();
        };
        let mut map = BTreeMap::new();
        for (key, value) in members {
            match read(value) {
                Some(value) => {
                    map.insert(key.clone(), value);
                }
                None => {
                    let (key, value) = (shown(key), shown(&value.to_string()));
                    self.problem(format!("`{name}` of {key} is {value}: give {wanted}"));
                }
            }
        }
        map
    }
}

fn as_u32(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok())
}

/// Checks a document whole: every problem of a stage is reported, and the graph is judged only when its nodes and edges hold.
pub(super) fn check(document: PlanDocument) -> Result<Plan, Vec<Refusal>> {
    let mut problems = node_problems(&document.nodes);
    problems.extend(reference_problems(&document));
    let names_hold = problems.is_empty();
    let mut conditions = Vec::with_capacity(document.edges.len());
    for edge in &document.edges {
        match edge.cond.as_deref().map(Condition::parse).transpose() {
            Ok(condition) => conditions.push(condition),
            Err(error) => {
                let (name, cond) = (edge_name(edge), shown(edge.cond.as_deref().unwrap_or_default()));
                let text = format!("the condition {cond} of edge {name} does not parse: {error}");
                problems.push(Refusal::new(RefusalCode::BadCondition, text).with("edge", name));
            }
        }
    }
    if !names_hold {
        return Err(problems);
    }
    let graph = Graph::of(&document);
    problems.extend(unreachable_problem(&document, &graph));
    problems.extend(cycle_problem(&document, &graph));
    if problems.is_empty() { Ok(Plan { document, conditions, graph }) } else { Err(problems) }
}

fn node_problems(nodes: &[String]) -> Vec<Refusal> {
    let bad = |text: String| Refusal::new(RefusalCode::BadPlan, text);
    if nodes.is_empty() {
        return vec![bad("the plan has no nodes: give at least one; the first is the entry".to_owned())];
    }
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    for (place, node) in nodes.iter().enumerate() {
        if node.trim().is_empty() {
            problems.push(bad(format!("nodes[{place}] is blank: name the node")));
        } else if node.len() > NODE_ID_BYTES_MAX {
            let (name, bytes) = (shown(node), node.len());
            problems.push(bad(format!("node {name} has an id of {bytes} bytes: use at most {NODE_ID_BYTES_MAX}")));
        } else if node.chars().any(char::is_control) {
            problems.push(bad(format!("node {} has a control character in its id: use printable text", shown(node))));
        } else if !seen.insert(node) {
            problems.push(bad(format!("node {} is named twice: node ids must be unique", shown(node))).at(node));
        }
    }
    problems
}

fn reference_problems(document: &PlanDocument) -> Vec<Refusal> {
    let known: BTreeSet<&str> = document.nodes.iter().map(String::as_str).collect();
    let mut problems = Vec::new();
    let mut unknown = |place: String, node: &str| {
        if !known.contains(node) {
            let text = format!("{place} names node {}, which `nodes` does not list", shown(node));
            problems.push(Refusal::new(RefusalCode::BadPlan, text).with("node", node));
        }
    };
    for edge in &document.edges {
        let name = edge_name(edge);
        unknown(format!("edge {name}"), &edge.src);
        if edge.dst != edge.src {
            unknown(format!("edge {name}"), &edge.dst);
        }
    }
    for node in document.bindings.keys() {
        unknown("a binding".to_owned(), node);
    }
    for node in document.retries.keys() {
        unknown("a retry".to_owned(), node);
    }
    problems
}

fn unreachable_problem(document: &PlanDocument, graph: &Graph) -> Option<Refusal> {
    let unreachable = graph.unreachable();
    if unreachable.is_empty() {
        return None;
    }
    let (entry, count) = (shown(&document.nodes[0]), unreachable.len());
    let names = listed(unreachable.iter().map(|node| document.nodes[*node].as_str()));
    let text = format!("{count} of the nodes cannot be reached from the entry {entry}: connect or remove {names}");
    Some(Refusal::new(RefusalCode::UnreachableNodes, text))
}

fn cycle_problem(document: &PlanDocument, graph: &Graph) -> Option<Refusal> {
    let cycle = graph.cycle(|edge| document.edges[edge].max_cycles.is_none())?;
    let names = listed(cycle.iter().map(|node| document.nodes[*node].as_str()));
    let text = format!("the cycle through {names} has no bound: give one of its edges `max_cycles`");
    Some(Refusal::new(RefusalCode::UnboundedCycle, text))
}

fn edge_name(edge: &Edge) -> String {
    format!("`{} -> {}`", shown(&edge.src).trim_matches('`'), shown(&edge.dst).trim_matches('`'))
}
