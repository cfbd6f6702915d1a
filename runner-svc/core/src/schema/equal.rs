//! Whether two values are the same, as schemas see it: numbers by value, members in any order.

use serde_json::Value;

use super::{
    check::{Spent, Steps},
    number::{Order, order},
};

/// Compares until the first difference, within the steps that are left.
pub(super) fn same(steps: &mut Steps, left: &Value, right: &Value) -> Result<bool, Spent> {
    steps.compare()?;
    Ok(match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::Number(left), Value::Number(right)) => order(left, right) == Order::Same,
        (Value::String(left), Value::String(right)) => {
            steps.text(left)?;
            left == right
        }
        (Value::Array(left), Value::Array(right)) => {
            if left.len() != right.len() {
                return Ok(false);
            }
            for (left, right) in left.iter().zip(right) {
                if !same(steps, left, right)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Object(left), Value::Object(right)) => {
            if left.len() != right.len() {
                return Ok(false);
            }
            for (key, left) in left {
                steps.text(key)?;
                match right.get(key) {
                    Some(right) if same(steps, left, right)? => {}
                    Some(_) | None => return Ok(false),
                }
            }
            true
        }
        _ => false,
    })
}
