//! A payload as a reader sees it: long names instead of short ones.

use std::io;

use serde::{Serialize, Serializer, ser::SerializeMap as _};
use serde_json::{Map, Value};

use super::{Item, names};

/// A payload that serializes under its long names.
pub struct Fields<'a>(pub &'a [(String, Item)]);

impl Fields<'_> {
    /// As JSON members.
    pub fn to_members(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(members)) => members,
            Ok(_) | Err(_) => unreachable!("a payload is a map of texts to values that JSON has"),
        }
    }

    /// One JSON text, unless it is longer than `bytes_max`: escapes can make it six times the grain.
    pub fn to_text(&self, bytes_max: usize) -> Option<String> {
        let mut text = Bounded { bytes: Vec::new(), bytes_max };
        serde_json::to_writer(&mut text, self).ok()?;
        String::from_utf8(text.bytes).ok()
    }
}

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        renamed(
            serializer,
            self.0,
            |key| names::long(key).unwrap_or(key),
            |key, item| match key {
                "ctx" | "cctx" | "tcfg" => Shown { item, own: integration_name, inner: verbatim },
                "edges" => Shown { item, own: verbatim, inner: edge_name },
                "rt" => Shown { item, own: verbatim, inner: relation_name },
                _ => Shown::plain(item),
            },
        )
    }
}

type Rename = fn(&str) -> &str;

/// A value: how its own keys are shown if it is a map, and those of its entries if it is a list.
struct Shown<'a> {
    item: &'a Item,
    own: Rename,
    inner: Rename,
}

impl<'a> Shown<'a> {
    fn plain(item: &'a Item) -> Self {
        Self { item, own: verbatim, inner: verbatim }
    }
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.item {
            Item::Nil => serializer.serialize_unit(),
            Item::Bool(value) => serializer.serialize_bool(*value),
            Item::Unsigned(value) => serializer.serialize_u64(*value),
            Item::Negative(value) => serializer.serialize_i64(*value),
            Item::Float(value) => serializer.serialize_f64(*value),
            Item::Text(text) => serializer.serialize_str(text),
            Item::Binary(bytes) => serializer.serialize_str(&hex::encode(bytes)),
            Item::List(items) => {
                serializer.collect_seq(items.iter().map(|item| Self { item, own: self.inner, inner: verbatim }))
            }
            Item::Map(entries) => renamed(serializer, entries, self.own, |_, item| Shown::plain(item)),
        }
    }
}

/// A map under other keys. A key whose other name is taken keeps its own.
fn renamed<'a, S: Serializer>(
    serializer: S,
    entries: &'a [(String, Item)],
    rename: Rename,
    shown: impl Fn(&str, &'a Item) -> Shown<'a>,
) -> Result<S::Ok, S::Error> {
    let is_taken = |name: &str| entries.binary_search_by(|(key, _)| key.as_str().cmp(name)).is_ok();
    let mut map = serializer.serialize_map(Some(entries.len()))?;
    for (key, item) in entries {
        let name = Some(rename(key)).filter(|name| !is_taken(name)).unwrap_or(key);
        map.serialize_entry(name, &shown(key, item))?;
    }
    map.end()
}

fn verbatim(key: &str) -> &str {
    key
}

/// Inside a context only the names of integrations are written out again.
fn integration_name(key: &str) -> &str {
    names::long(key).filter(|long| long.starts_with("int:")).unwrap_or(key)
}

fn edge_name(key: &str) -> &str {
    if key == "mxc" { "max_cycles" } else { key }
}

fn relation_name(key: &str) -> &str {
    match key {
        "h" => "hash",
        "rl" => "relation_type",
        "w" => "weight",
        other => other,
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn payload(value: &Value) -> Vec<(String, Item)> {
        let Item::Map(entries) = Item::of(value) else { panic!("a map") };
        entries
    }

    #[test]
    fn names_are_written_out_where_the_format_says_and_nowhere_else() {
        let wire = json!({"tn": "t", "zz": 1, "ctx": {"ib": "u", "o": {"ib": 1}}, "edges": [{"src": "a", "mxc": 3}],
            "rt": [{"h": "x", "rl": "r", "w": 0.5, "hash": "taken"}], "inp": {"mxc": 1, "h": [{"mxc": 2}]}});
        let shown = json!({"tool_name": "t", "zz": 1, "context": {"int:base_url": "u", "o": {"ib": 1}},
            "edges": [{"src": "a", "max_cycles": 3}],
            "related_to": [{"h": "x", "relation_type": "r", "weight": 0.5, "hash": "taken"}],
            "input": {"mxc": 1, "h": [{"mxc": 2}]}});
        let payload = payload(&wire);
        assert_eq!(Value::Object(Fields(&payload).to_members()), shown);
        let text = Fields(&payload).to_text(1 << 10).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), shown);
        assert_eq!(Fields(&payload).to_text(text.len()), Some(text.clone()));
        assert_eq!(Fields(&payload).to_text(text.len() - 1), None);
    }

    #[test]
    fn numbers_keep_every_digit() {
        let wire = json!({"x": [u64::MAX, i64::MIN, 9_007_199_254_740_993_u64, 1.0, -0.0]});
        let text = Fields(&payload(&wire)).to_text(1 << 10).unwrap();
        assert_eq!(text, "{\"x\":[18446744073709551615,-9223372036854775808,9007199254740993,1.0,-0.0]}");
    }
}
