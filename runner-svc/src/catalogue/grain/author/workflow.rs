//! Plans: nodes, edges, bindings, retries. Whether the graph makes sense is checked when it starts.

use serde_json::{Map, Value};

use super::document::Document;
use crate::catalogue::grain::{BadGrain, Draft, Item, item::in_key_order};

/// Members with a typed field.
pub const FIELDS: [&str; 4] = ["bindings", "edges", "nodes", "retries"];

/// Sets a plan's own fields. Node ids are compared as they are spelt.
pub fn fill(draft: &mut Draft, document: &Document<'_>) -> Result<(), BadGrain> {
    let listed = |name| document.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let nodes: Vec<&str> = listed("nodes").iter().filter_map(Value::as_str).collect();
    let known: std::collections::BTreeSet<&str> = nodes.iter().copied().collect();
    if known.len() != nodes.len() {
        let mut seen = std::collections::BTreeSet::new();
        let twice = nodes.iter().find(|node| !seen.insert(**node)).copied().unwrap_or_default();
        return Err(BadGrain::new("nodes", format!("{:?} is there twice", shown(twice))));
    }
    let is_node = |id: &str| known.contains(id);
    draft.set("nodes", Item::List(nodes.iter().map(|node| Item::text(node)).collect()));
    let edges = listed("edges").iter().map(|value| edge(value, is_node)).collect::<Result<Vec<_>, _>>()?;
    if !edges.is_empty() {
        draft.set("edges", Item::List(edges));
    }
    let bindings = by_node(document, "bindings", is_node, |value| value.as_str().map(Item::text))?;
    if !bindings.is_empty() {
        draft.set("bindings", Item::Map(bindings));
    }
    let retries = by_node(document, "retries", is_node, |value| value.as_u64().map(low_32_bits))?;
    if !retries.is_empty() {
        draft.set("retries", Item::Map(retries));
    }
    Ok(())
}

fn edge(value: &Value, is_node: impl Fn(&str) -> bool) -> Result<Item, BadGrain> {
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let (Some(source), Some(target)) = (text("src"), text("dst")) else {
        return Err(BadGrain::new("edges", "an edge is an object with src and dst"));
    };
    if let Some(unknown) = [source, target].into_iter().find(|id| !is_node(id)) {
        return Err(BadGrain::new("edges", format!("{:?} is no node", shown(unknown))));
    }
    let mut entries = std::collections::BTreeMap::new();
    entries.insert("src".to_owned(), Item::text(source));
    entries.insert("dst".to_owned(), Item::text(target));
    if let Some(condition) = text("cond") {
        entries.insert("cond".to_owned(), Item::text(condition));
    }
    if let Some(cycles) = value.get("max_cycles").and_then(Value::as_u64) {
        entries.insert("mxc".to_owned(), low_32_bits(cycles));
    }
    Ok(Item::map(entries))
}

/// A map by node whose keys stay as they are spelt; values that `item` does not take are left out.
fn by_node(
    document: &Document<'_>,
    name: &str,
    is_node: impl Fn(&str) -> bool,
    item: impl Fn(&Value) -> Option<Item>,
) -> Result<Vec<(String, Item)>, BadGrain> {
    let empty = Map::new();
    let members = document.get(name).and_then(Value::as_object).unwrap_or(&empty);
    if let Some(unknown) = members.keys().find(|key| !is_node(key)) {
        return Err(BadGrain::new(name, format!("{:?} is no node", shown(unknown))));
    }
    let kept = in_key_order(members).into_iter().filter_map(|(key, value)| Some((key.clone(), item(value)?)));
    Ok(kept.collect())
}

fn low_32_bits(value: u64) -> Item {
    Item::Unsigned(value & u64::from(u32::MAX))
}

fn shown(text: &str) -> String {
    crate::catalogue::grain::shown(text.to_owned())
}
