//! A payload as a reader sees it: long names instead of short ones.

use std::io;

use serde_json::{Map, Value};

use super::{Item, names};

/// The fields by their long names.
pub fn fields(payload: &[(String, Item)]) -> Map<String, Value> {
    let field = |(key, item): &(String, Item)| (names::long(key).unwrap_or(key).to_owned(), value(key, item));
    payload.iter().map(field).collect()
}

/// One JSON text, unless it is longer than `bytes_max`: escapes can make it six times the grain.
pub fn text(fields: &Map<String, Value>, bytes_max: usize) -> Option<String> {
    let mut text = Bounded { bytes: Vec::new(), bytes_max };
    serde_json::to_writer(&mut text, fields).ok()?;
    String::from_utf8(text.bytes).ok()
}

struct Bounded {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if piece.len() > self.bytes_max - self.bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn value(key: &str, item: &Item) -> Value {
    match (key, item) {
        ("ctx" | "cctx" | "tcfg", Item::Map(entries)) => renamed(entries, integration_name),
        ("edges", Item::List(edges)) => each(edges, |key| if key == "mxc" { "max_cycles" } else { key }),
        ("rt", Item::List(links)) => each(links, relation_name),
        _ => item.to_json(),
    }
}

fn each(items: &[Item], rename: fn(&str) -> &str) -> Value {
    let one = |item: &Item| if let Item::Map(entries) = item { renamed(entries, rename) } else { item.to_json() };
    items.iter().map(one).collect()
}

fn renamed(entries: &[(String, Item)], rename: fn(&str) -> &str) -> Value {
    entries.iter().map(|(key, item)| (rename(key).to_owned(), item.to_json())).collect()
}

/// Inside a context only the names of integrations are written out again.
fn integration_name(key: &str) -> &str {
    names::long(key).filter(|long| long.starts_with("int:")).unwrap_or(key)
}

fn relation_name(key: &str) -> &str {
    match key {
        "h" => "hash",
        "rl" => "relation_type",
        "w" => "weight",
        other => other,
    }
}
