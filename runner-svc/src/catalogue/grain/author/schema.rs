//! The part of JSON Schema that a definition may use.

use serde_json::{Map, Value};

use crate::catalogue::grain::{BadGrain, shown};

/// Deepest nesting of schemas.
const DEPTH_MAX: usize = 16;
/// Largest program that a pattern may compile to, in bytes.
const PATTERN_BYTES_MAX: usize = 10 << 20;
/// Most patterns in one schema: each costs time to compile.
const PATTERNS_MAX: usize = 256;

const KEYWORDS: [&str; 24] = [
    "additionalProperties",
    "const",
    "default",
    "description",
    "enum",
    "examples",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "properties",
    "required",
    "title",
    "type",
];
const FORMATS: [&str; 6] = ["date-time", "date", "time", "email", "uri", "uuid"];
/// Keywords that say nothing about values, with those that begin with `x-`: they are left out of the grain.
const REMARKS: [&str; 6] = ["$schema", "$id", "$comment", "deprecated", "readOnly", "writeOnly"];

/// The schema as it is stored, without remarks, after every keyword in it was checked.
pub fn checked(field: &str, schema: &Value) -> Result<Value, BadGrain> {
    let schema = without_remarks(schema, 0);
    let Some(root) = schema.as_object() else { return Err(BadGrain::new(field, "must be a schema, an object")) };
    if root.get("type").and_then(Value::as_str) != Some("object") {
        return Err(BadGrain::new(field, "must have the type \"object\""));
    }
    let mut checker = Checker { field, patterns_left: PATTERNS_MAX };
    checker.schema(root, 0)?;
    Ok(schema)
}

struct Checker<'a> {
    field: &'a str,
    patterns_left: usize,
}

impl Checker<'_> {
    fn schema(&mut self, schema: &Map<String, Value>, depth: usize) -> Result<(), BadGrain> {
        if depth > DEPTH_MAX {
            return Err(self.bad(format!("schemas are nested deeper than {DEPTH_MAX} levels")));
        }
        for (keyword, value) in schema {
            match keyword.as_str() {
                "properties" => {
                    let properties = value.as_object().ok_or_else(|| self.bad("properties must be an object"))?;
                    properties.values().try_for_each(|property| self.nested(property, depth))?;
                }
                "items" | "additionalProperties" => self.nested(value, depth)?,
                "pattern" => self.pattern(value)?,
                "format" if !value.as_str().is_some_and(|format| FORMATS.contains(&format)) => {
                    return Err(self.bad(format!("a format is one of {}", FORMATS.join(", "))));
                }
                known if KEYWORDS.contains(&known) => {}
                unknown => {
                    let unknown = shown(unknown.to_owned());
                    return Err(self.bad(format!("the keyword {unknown:?} is not among {}", KEYWORDS.join(", "))));
                }
            }
        }
        Ok(())
    }

    /// A schema inside another, several of them in a list, or a plain yes or no.
    fn nested(&mut self, value: &Value, depth: usize) -> Result<(), BadGrain> {
        match value {
            Value::Object(schema) => self.schema(schema, depth + 1),
            Value::Array(schemas) => schemas.iter().try_for_each(|schema| match schema {
                Value::Object(schema) => self.schema(schema, depth + 1),
                _ => Err(self.bad("a list of schemas holds something else")),
            }),
            Value::Bool(_) => Ok(()),
            Value::Null | Value::Number(_) | Value::String(_) => Err(self.bad("a schema must be an object")),
        }
    }

    fn pattern(&mut self, value: &Value) -> Result<(), BadGrain> {
        let pattern = value.as_str().ok_or_else(|| self.bad("a pattern must be text"))?;
        let left = self.patterns_left.checked_sub(1);
        self.patterns_left = left.ok_or_else(|| self.bad(format!("has more than {PATTERNS_MAX} patterns")))?;
        let compiled = regex::RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).build();
        compiled
            .map(drop)
            .map_err(|_| self.bad(format!("the pattern {:?} does not compile", shown(pattern.to_owned()))))
    }

    fn bad(&self, rule: impl Into<String>) -> BadGrain {
        BadGrain::new(self.field, rule)
    }
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
