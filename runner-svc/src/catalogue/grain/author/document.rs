//! A document's members, read by the format's several degrees of patience.

use serde_json::{Map, Value};

use crate::catalogue::grain::BadGrain;

/// A document and the namespace that holds where it names none.
pub struct Document<'a> {
    members: &'a Map<String, Value>,
    namespace: &'a str,
}

impl<'a> Document<'a> {
    /// Wraps the members.
    pub fn new(members: &'a Map<String, Value>, namespace: &'a str) -> Self {
        Self { members, namespace }
    }

    /// All members.
    pub fn members(&self) -> &'a Map<String, Value> {
        self.members
    }

    /// The namespace: the document's own member if it has one, even one that names nothing.
    pub fn namespace(&self) -> Option<&'a str> {
        match self.members.get("namespace") {
            Some(own) => own.as_str(),
            None => Some(self.namespace),
        }
    }

    /// The time of authoring: the document's own if it is a whole number.
    pub fn created_at_ms(&self, now_ms: i64) -> i64 {
        self.integer("created_at").unwrap_or(now_ms)
    }

    /// A member that is there and not null.
    pub fn get(&self, name: &str) -> Option<&'a Value> {
        self.members.get(name).filter(|value| !value.is_null())
    }

    /// A text; whatever else is as if absent.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.members.get(name)?.as_str()
    }

    /// A text that must be there and say something.
    pub fn required_text(&self, name: &str) -> Result<&'a str, BadGrain> {
        let text = self.text(name).filter(|text| !text.trim().is_empty());
        text.ok_or_else(|| BadGrain::new(name, "is required: text that is not blank"))
    }

    /// A text, or null, or absent; whatever else is refused.
    pub fn strict_text(&self, name: &str) -> Result<Option<&'a str>, BadGrain> {
        self.strict(name, "text", Value::as_str)
    }

    /// A truth value, or null, or absent; whatever else is refused.
    pub fn strict_bool(&self, name: &str) -> Result<Option<bool>, BadGrain> {
        self.strict(name, "true or false", Value::as_bool)
    }

    /// A list, or null, or absent; whatever else is refused.
    pub fn strict_list(&self, name: &str) -> Result<Option<&'a Vec<Value>>, BadGrain> {
        self.strict(name, "a list", Value::as_array)
    }

    /// An object, or null, or absent; whatever else is refused.
    pub fn strict_object(&self, name: &str) -> Result<Option<&'a Map<String, Value>>, BadGrain> {
        self.strict(name, "an object", Value::as_object)
    }

    /// One of some words, or null, or absent; whatever else is refused.
    pub fn one_of(&self, name: &str, words: &[&str]) -> Result<Option<&'a str>, BadGrain> {
        match self.strict_text(name)? {
            Some(word) if !words.contains(&word) => {
                let found = crate::catalogue::grain::shown(word.to_owned());
                Err(BadGrain::new(name, format!("{found:?} is none of {}", words.join(", "))))
            }
            word => Ok(word),
        }
    }

    /// A whole number, held within 64 bits with sign; whatever else is as if absent.
    pub fn integer(&self, name: &str) -> Option<i64> {
        self.members.get(name).and_then(integer)
    }

    /// A number; whatever else is as if absent.
    pub fn float(&self, name: &str) -> Option<f64> {
        self.members.get(name)?.as_f64()
    }

    fn strict<T>(&self, name: &str, what: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>, BadGrain> {
        let Some(value) = self.get(name) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| BadGrain::new(name, format!("must be {what}")))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a float beyond 64 bits is held at the nearest end on purpose")]
fn integer(value: &Value) -> Option<i64> {
    if let Some(integer) = value.as_i64() {
        return Some(integer);
    }
    let float = value.as_f64()?;
    (float.fract() == 0.0).then_some(float as i64)
}
