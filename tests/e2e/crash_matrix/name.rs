//! What an effect is called in the journal, in the tool's notes and in the test's table.

use std::fmt;

use proto::runner::v1::{Event, JournalEntry};
use serde_json::Value;

/// An effect by node, attempt and its number in the attempt.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    task_path: String,
    node: String,
    attempt: String,
    effect: u32,
}

impl Name {
    /// The effect of an entry.
    pub fn of(entry: &JournalEntry) -> Self {
        let (task_path, node) = (entry.task_path.clone(), entry.node.clone());
        Self { task_path, node, attempt: entry.attempt.to_string(), effect: entry.effect_seq }
    }

    /// A node's first attempt.
    pub fn first(node: &str) -> Self {
        Self { task_path: String::new(), node: node.to_owned(), attempt: "1".to_owned(), effect: 0 }
    }

    /// A question to the model, by its number in the first attempt.
    pub fn question(effect: u32) -> Self {
        Self { effect, ..Self::first("think") }
    }

    /// Whether it is this attempt of the node.
    pub fn is_attempt(&self, node: &str, attempt: u32) -> bool {
        self.is_of(node) && self.attempt == attempt.to_string()
    }

    /// Whether it is an effect of this node.
    pub fn is_of(&self, node: &str) -> bool {
        self.node == node
    }

    /// The effect that an event is about.
    pub fn in_event(event: &Event) -> Self {
        let body: Value = serde_json::from_str(&event.body_json).unwrap();
        let effect = body["effect_seq"].as_u64().unwrap_or_default();
        Self {
            task_path: field(&body, "task_path"),
            node: field(&body, "node"),
            attempt: field(&body, "attempt"),
            effect: effect.try_into().unwrap(),
        }
    }

    /// Whether it may run again in silence.
    pub fn is_pure(&self) -> bool {
        self.node == "pure"
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.task_path.is_empty() { &self.node } else { &self.task_path };
        write!(f, "{name} {}", self.attempt)?;
        if self.effect > 0 { write!(f, ".{}", self.effect) } else { Ok(()) }
    }
}

/// A field of an event's JSON text.
fn field(body: &Value, name: &str) -> String {
    match &body[name] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
