//! The state's JSON object, kept as exact texts per top-level key: numbers keep every digit, and what did not change is
//! neither parsed nor written again.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use serde_json::{Value, value::RawValue};

use crate::{
    fan_out::SEND_KEY,
    input::DOCUMENT_BYTES_MAX,
    payload::Payload,
    plan::Plan,
    reducer::{List, Reducer},
    refusal::{Refusal, RefusalCode},
};

/// Largest state, in bytes of its JSON text.
pub const STATE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Key of a start input that is no object.
const BARE_INPUT_KEY: &str = "input";

/// A JSON object and its text: compact, top-level keys sorted.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    slots: Slots,
    text: Payload,
}

pub(crate) type Slots = BTreeMap<String, Arc<Slot>>;

/// One top-level member: `"key":value` as compact text, its value parsed when first asked for.
#[derive(Debug)]
pub(crate) struct Slot {
    member: Box<str>,
    value_at: usize,
    value: OnceLock<Value>,
}

/// Members laid over a document, not yet part of it.
#[derive(Debug)]
pub(crate) struct Overlay<'a> {
    base: &'a Document,
    changed: Slots,
    /// Lists that results are appended to, kept open until [`Overlay::settle`]: thousands of tasks may append to one.
    lists: BTreeMap<String, List>,
}

/// Reads the input of a run: at most 8 MiB of JSON; what is no object becomes `{"input": value}`. The text that comes back is
/// compact with sorted top-level keys; everything else keeps every digit.
///
/// # Errors
/// `RUN-E015` over the cap, `INVALID_ARGUMENT` when the text is no JSON.
pub fn read_input(text: &str) -> Result<Payload, Refusal> {
    if text.len() > DOCUMENT_BYTES_MAX {
        let text = format!("the input has {} bytes: give at most {DOCUMENT_BYTES_MAX}", text.len());
        return Err(Refusal::new(RefusalCode::TooLarge, text));
    }
    let bad =
        |error: serde_json::Error| Refusal::new(RefusalCode::InvalidArgument, format!("the input is no JSON: {error}"));
    let value: Value = serde_json::from_str(text).map_err(bad)?;
    if value.is_object() {
        return Ok(Document::read(text).map_err(bad)?.text);
    }
    Ok(Payload::new(format!("{{\"{BARE_INPUT_KEY}\":{}}}", compact(text))))
}

impl Document {
    /// Reads the text of a JSON object.
    pub(crate) fn read(text: &str) -> serde_json::Result<Self> {
        let slots: Slots = members(text)?.into_iter().map(|(key, value)| slot(key, &compact(value))).collect();
        let text = assemble(slots.values().map(Arc::as_ref), usize::MAX).unwrap_or_default();
        Ok(Self { slots, text: Payload::new(text) })
    }

    /// The whole text.
    pub(crate) fn text(&self) -> &Payload {
        &self.text
    }

    /// Takes an overlay's members over; `text` is the text that the overlay gave.
    pub(crate) fn take(&mut self, changed: Slots, text: Payload) {
        self.slots.extend(changed);
        self.text = text;
    }

    /// The text with these members laid over it.
    pub(crate) fn with(&self, members: &serde_json::Map<String, Value>) -> Payload {
        let mut overlay = self.overlay();
        for (key, value) in members {
            overlay.put(key, value);
        }
        overlay.text(usize::MAX).unwrap_or_else(|| self.text.clone())
    }

    /// Lays something over the document.
    pub(crate) fn overlay(&self) -> Overlay<'_> {
        Overlay { base: self, changed: Slots::new(), lists: BTreeMap::new() }
    }
}

impl Overlay<'_> {
    /// Merges a node's result: an object by top-level key (but for the one that asks for tasks), null not at all, anything
    /// else under the node's id. Once all are merged, [`Overlay::settle`] has to follow.
    pub(crate) fn merge(&mut self, plan: &Plan, node: &str, result: &Payload) -> serde_json::Result<()> {
        let text = result.text().trim();
        if text == "null" {
            return Ok(());
        }
        if !text.starts_with('{') {
            self.reduce(plan, node.to_owned(), &compact(text));
            return Ok(());
        }
        for (key, value) in members(text)?.into_iter().filter(|(key, _)| key != SEND_KEY) {
            self.reduce(plan, key, &compact(value));
        }
        Ok(())
    }

    /// Everything is merged: what was appended becomes part of the overlay.
    pub(crate) fn settle(&mut self) {
        let lists = std::mem::take(&mut self.lists);
        self.changed.extend(lists.into_iter().map(|(key, list)| slot(key, &list.into_text())));
    }

    /// Puts a value in its place, whatever was there.
    fn put(&mut self, key: &str, value: &Value) {
        self.changed.extend([slot(key.to_owned(), &value.to_string())]);
    }

    /// The parsed value of a top-level key.
    pub(crate) fn value(&self, key: &str) -> Option<&Value> {
        self.slot(key).map(Slot::value)
    }

    /// The whole text with the changes, unless it is over `max` bytes.
    pub(crate) fn text(&self, max: usize) -> Option<Payload> {
        if self.changed.is_empty() {
            return Some(self.base.text.clone());
        }
        let mut base = self.base.slots.iter().filter(|(key, _)| !self.changed.contains_key(*key)).peekable();
        let mut changed = self.changed.iter().peekable();
        let in_order = std::iter::from_fn(|| match (base.peek(), changed.peek()) {
            (Some((base_key, _)), Some((changed_key, _))) if base_key < changed_key => base.next(),
            (_, Some(_)) => changed.next(),
            (_, None) => base.next(),
        });
        assemble(in_order.map(|(_, slot)| slot.as_ref()), max).map(Payload::new)
    }

    /// The changed members.
    pub(crate) fn into_changed(self) -> Slots {
        self.changed
    }

    fn slot(&self, key: &str) -> Option<&Slot> {
        self.changed.get(key).or_else(|| self.base.slots.get(key)).map(Arc::as_ref)
    }

    fn reduce(&mut self, plan: &Plan, key: String, incoming: &str) {
        let reducer = plan.reducer_of(&key);
        if reducer == Reducer::Append {
            let existing = self.changed.get(&key).or_else(|| self.base.slots.get(&key));
            let list = self.lists.entry(key).or_insert_with(|| List::of(existing.map(|slot| slot.text())));
            return list.append(incoming);
        }
        let existing = self.slot(&key).map(Slot::text);
        let value = reducer.reduce(existing, incoming);
        self.changed.extend([slot(key, &value)]);
    }
}

impl Slot {
    fn text(&self) -> &str {
        &self.member[self.value_at..]
    }

    fn value(&self) -> &Value {
        // Every document was read as JSON before it came here; a text that is not would count as null, the same everywhere.
        self.value.get_or_init(|| serde_json::from_str(self.text()).unwrap_or(Value::Null))
    }
}

fn slot(key: String, value: &str) -> (String, Arc<Slot>) {
    let mut member = Value::String(key.clone()).to_string();
    member.push(':');
    let value_at = member.len();
    member.push_str(value);
    (key, Arc::new(Slot { member: member.into_boxed_str(), value_at, value: OnceLock::new() }))
}

/// The members of an object as exact texts; of a repeated key the last.
pub(crate) fn members(text: &str) -> serde_json::Result<BTreeMap<String, &str>> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
    Ok(members.into_iter().map(|(key, value)| (key, value.get())).collect())
}

fn assemble<'a>(slots: impl Iterator<Item = &'a Slot>, max: usize) -> Option<String> {
    let mut text = String::from("{");
    for slot in slots {
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str(&slot.member);
        if text.len() >= max {
            return None;
        }
    }
    text.push('}');
    Some(text)
}

/// A JSON text without the white space between its tokens.
pub(crate) fn compact(text: &str) -> String {
    let mut compacted = String::with_capacity(text.len());
    let mut in_string = false;
    let mut escaped = false;
    for c in text.chars() {
        if in_string {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if c == '"' {
            in_string = true;
        } else if matches!(c, ' ' | '\t' | '\n' | '\r') {
            continue;
        }
        compacted.push(c);
    }
    compacted
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(reducers: Value) -> Plan {
        Plan::from_fields(&json!({"nodes": ["n"], "reducers": reducers})).unwrap()
    }

    fn merged(base: &str, reducers: Value, results: &[&str]) -> String {
        let document = Document::read(base).unwrap();
        let mut overlay = document.overlay();
        for result in results {
            overlay.merge(&plan(reducers.clone()), "n", &Payload::new(*result)).unwrap();
        }
        overlay.settle();
        overlay.text(STATE_BYTES_MAX).unwrap().text().to_owned()
    }

    #[test]
    fn every_digit_and_every_escape_of_an_input_survives() {
        let input = r#" { "b" : [ 9007199254740993 , 1.10 , 123456789012345678901234567890 ], "a":"x \" y\\" , "é\u0001": {"z":1 , "y": " "} } "#;
        let text = read_input(input).unwrap();
        assert_eq!(
            text.text(),
            r#"{"a":"x \" y\\","b":[9007199254740993,1.10,123456789012345678901234567890],"é\u0001":{"z":1,"y":" "}}"#
        );
        assert_eq!(read_input(text.text()).unwrap(), text);
    }

    #[test]
    fn an_input_that_is_no_object_is_wrapped() {
        assert_eq!(read_input(" [ 1 ] ").unwrap().text(), r#"{"input":[1]}"#);
        assert_eq!(read_input("null").unwrap().text(), r#"{"input":null}"#);
        assert_eq!(read_input("{}").unwrap().text(), "{}");
    }

    #[test]
    fn an_input_that_is_no_json_or_too_large_is_refused() {
        for text in ["", "{", "{} x", "nul", "[1e999]", &"[".repeat(200)] {
            assert_eq!(read_input(text).unwrap_err().code, RefusalCode::InvalidArgument, "{text}");
        }
        let exact = format!("\"{}\"", "x".repeat(DOCUMENT_BYTES_MAX - 2));
        assert!(read_input(&exact).is_ok());
        assert_eq!(read_input(&format!("{exact} ")).unwrap_err().code, RefusalCode::TooLarge);
    }

    #[test]
    fn an_object_merges_by_key_null_not_at_all_and_a_scalar_under_the_nodes_id() {
        assert_eq!(merged(r#"{"a":1,"c":3}"#, json!({}), &[r#"{"b": 2, "a": null}"#]), r#"{"a":null,"b":2,"c":3}"#);
        assert_eq!(merged(r#"{"a":1}"#, json!({}), &["null"]), r#"{"a":1}"#);
        assert_eq!(merged(r#"{"a":1}"#, json!({}), &["[1, 2]"]), r#"{"a":1,"n":[1,2]}"#);
    }

    #[test]
    fn results_merge_through_the_reducer_of_their_key() {
        let reducers = json!({"log": "append", "total": "sum", "n": "max"});
        let results = [r#"{"log":["x"],"total":2}"#, r#"{"log":"y","total":3}"#, "7", "5"];
        assert_eq!(merged(r#"{"total":1}"#, reducers, &results), r#"{"log":["x","y"],"n":7,"total":6}"#);
    }

    #[test]
    fn a_state_over_its_cap_has_no_text() {
        let document = Document::read("{}").unwrap();
        let mut overlay = document.overlay();
        overlay.put("a", &json!("xx"));
        assert_eq!(overlay.text(10).unwrap().text(), r#"{"a":"xx"}"#);
        assert!(overlay.text(9).is_none());
    }
}
