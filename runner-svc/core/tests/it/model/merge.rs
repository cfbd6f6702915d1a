//! How a result joins the state.

use serde_json::{Map, Number, Value};

/// An object joins key by key, null not at all, anything else under the node's id.
pub fn result(state: &mut Map<String, Value>, reducers: &Value, node: &str, output: Value) {
    match output {
        Value::Null => {}
        Value::Object(object) => object.into_iter().for_each(|(key, value)| put(state, reducers, &key, value)),
        other => put(state, reducers, node, other),
    }
}

fn put(state: &mut Map<String, Value>, reducers: &Value, key: &str, new: Value) {
    let old = state.get(key);
    let joined = match reducers.get(key).and_then(Value::as_str) {
        Some("append") => Value::Array([list(old), list(Some(&new))].concat()),
        Some("sum") => sum(old, &new).unwrap_or(new),
        Some("max") => picked(old, &new, |old, new| old >= new).unwrap_or(new),
        Some("min") => picked(old, &new, |old, new| old <= new).unwrap_or(new),
        _ => new,
    };
    state.insert(key.to_owned(), joined);
}

fn list(value: Option<&Value>) -> Vec<Value> {
    match value {
        None => Vec::new(),
        Some(Value::Array(items)) => items.clone(),
        Some(other) => vec![other.clone()],
    }
}

fn whole(value: &Value) -> Option<i128> {
    value.as_u64().map(i128::from).or_else(|| value.as_i64().map(i128::from))
}

fn sum(old: Option<&Value>, new: &Value) -> Option<Value> {
    let old = old?;
    if let (Some(old), Some(new)) = (whole(old), whole(new)) {
        let sum = old + new;
        let number = u64::try_from(sum).map(Number::from).or_else(|_| i64::try_from(sum).map(Number::from));
        return number.ok().map(Value::Number);
    }
    Number::from_f64(old.as_f64()? + new.as_f64()?).map(Value::Number)
}

/// The old value when it stays.
fn picked(old: Option<&Value>, new: &Value, stays: impl Fn(f64, f64) -> bool) -> Option<Value> {
    let old = old?;
    stays(old.as_f64()?, new.as_f64()?).then(|| old.clone())
}
