//! A definition's schema as it is stored: without remarks, after every keyword in it was read.

use runner_core::schema::{DEPTH_MAX, Schema};
use serde_json::Value;

use crate::catalogue::grain::BadGrain;

/// Keywords that say nothing about values, with those that begin with `x-`: they are left out of the grain.
const REMARKS: [&str; 6] = ["$schema", "$id", "$comment", "deprecated", "readOnly", "writeOnly"];

/// The schema without remarks, which can be used as it is.
pub fn checked(field: &str, schema: &Value) -> Result<Value, BadGrain> {
    let schema = without_remarks(schema, 0);
    Schema::read(&schema).map_err(|bad| BadGrain::new(field, bad.to_string()))?;
    Ok(schema)
}

/// Leaves remarks out where keywords stand, never inside values such as defaults.
fn without_remarks(value: &Value, depth: usize) -> Value {
    match value {
        _ if depth > DEPTH_MAX => value.clone(),
        Value::Object(members) => {
            let kept = members.iter().filter(|(key, _)| !key.starts_with("x-") && !REMARKS.contains(&key.as_str()));
            Value::Object(kept.map(|(key, value)| (key.clone(), without_inner_remarks(key, value, depth))).collect())
        }
        Value::Array(values) => values.iter().map(|value| without_remarks(value, depth + 1)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn without_inner_remarks(keyword: &str, value: &Value, depth: usize) -> Value {
    match (keyword, value) {
        ("properties", Value::Object(properties)) => {
            let stripped = |(name, schema): (&String, &Value)| (name.clone(), without_remarks(schema, depth + 1));
            Value::Object(properties.iter().map(stripped).collect())
        }
        ("items" | "additionalProperties", _) => without_remarks(value, depth + 1),
        _ => value.clone(),
    }
}
