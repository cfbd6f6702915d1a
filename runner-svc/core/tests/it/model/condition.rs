//! Conditions, read anew each time they are asked.

use serde_json::{Map, Value};

/// Whether a condition holds in a state.
pub fn holds(text: &str, state: &Map<String, Value>) -> bool {
    if let Some((path, literal)) = text.split_once(" == ") {
        let literal: Value = serde_json::from_str(literal).unwrap();
        return at(path, state) == Some(&literal);
    }
    if let Some((path, literal)) = text.split_once(" != ") {
        let literal: Value = serde_json::from_str(literal).unwrap();
        return at(path, state) != Some(&literal);
    }
    if let Some(path) = text.strip_suffix(" exists") {
        return at(path, state).is_some();
    }
    if let Some(path) = text.strip_prefix('!') {
        return !is_true(at(path, state));
    }
    is_true(at(text, state))
}

/// What lies at a path, through objects only.
fn at<'a>(path: &str, state: &'a Map<String, Value>) -> Option<&'a Value> {
    let mut object = state;
    let mut segments: Vec<&str> = path.split('.').collect();
    let last = segments.pop()?;
    for segment in segments {
        match object.get(segment) {
            Some(Value::Object(inner)) => object = inner,
            _ => return None,
        }
    }
    object.get(last)
}

fn is_true(value: Option<&Value>) -> bool {
    let Some(value) = value else { return false };
    let text = value.to_string();
    !["null", "false", "\"\"", "0", "0.0", "-0.0", "[]", "{}"].contains(&text.as_str())
}
