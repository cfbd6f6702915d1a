//! Reads a schema's document: every keyword by name, anything else refused.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};

use super::{
    BadSchema, DEPTH_MAX, SCHEMAS_MAX, Schema,
    format::Format,
    pattern::{Pattern, Programs},
};
use crate::text::shown;

/// Keywords that say nothing about values, with those that begin with `x-`.
const REMARKS: [&str; 6] = ["$schema", "$id", "$comment", "deprecated", "readOnly", "writeOnly"];
/// Keywords for people: they bind nothing.
const NOTES: [&str; 4] = ["title", "description", "default", "examples"];
/// Every other keyword.
const KEYWORDS: &str = "type, properties, required, enum, items, additionalProperties, minimum, maximum, exclusiveMinimum, \
    exclusiveMaximum, minItems, maxItems, minLength, maxLength, pattern, format, multipleOf, maxProperties, minProperties, \
    const";

/// One schema.
#[derive(Debug)]
pub(super) enum Node {
    /// Everything fits.
    Anything,
    /// Nothing fits.
    Nothing,
    /// What these rules say.
    Rules(Box<Rules>),
}

/// The rules of one schema; those that are absent bind nothing.
#[derive(Debug, Default)]
pub(super) struct Rules {
    pub types: Option<Vec<Type>>,
    pub allowed: Option<Vec<Value>>,
    pub constant: Option<Value>,
    pub minimum: Option<Number>,
    pub maximum: Option<Number>,
    pub above: Option<Number>,
    pub below: Option<Number>,
    pub multiple_of: Option<Number>,
    pub length: Range,
    pub pattern: Option<Pattern>,
    pub format: Option<Format>,
    pub count: Range,
    pub items: Items,
    pub members: Range,
    pub required: Vec<String>,
    pub properties: BTreeMap<String, Node>,
    pub additional: Option<Node>,
}

/// Schemas of an array's items.
#[derive(Debug, Default)]
pub(super) enum Items {
    /// None.
    #[default]
    Free,
    /// One for every item.
    Every(Node),
    /// One for each of the first items.
    Each(Vec<Node>),
}

/// Least and most of something.
#[derive(Debug, Default)]
pub(super) struct Range {
    pub min: Option<u64>,
    pub max: Option<u64>,
}

/// A type of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

/// Reads the outermost schema.
pub(super) fn root(document: &Value) -> Result<Schema, BadSchema> {
    let Some(members) = document.as_object() else { return bad("must be a schema, an object") };
    if members.get("type").and_then(Value::as_str) != Some("object") {
        return bad("must have the type \"object\"");
    }
    let mut reader = Reader { schemas_left: SCHEMAS_MAX, programs: Programs::new() };
    let root = Node::Rules(Box::new(reader.rules(members, 0)?));
    Ok(Schema { root, pattern_bytes: reader.programs.bytes() })
}

fn bad<T>(problem: impl Into<String>) -> Result<T, BadSchema> {
    Err(BadSchema(problem.into()))
}

struct Reader {
    schemas_left: usize,
    programs: Programs,
}

impl Reader {
    fn rules(&mut self, members: &Map<String, Value>, depth: usize) -> Result<Rules, BadSchema> {
        if depth > DEPTH_MAX {
            return bad(format!("schemas are nested deeper than {DEPTH_MAX} levels"));
        }
        let Some(left) = self.schemas_left.checked_sub(1) else {
            return bad(format!("holds more than {SCHEMAS_MAX} schemas"));
        };
        self.schemas_left = left;
        let mut rules = Rules::default();
        for (keyword, value) in members {
            self.keyword(&mut rules, keyword, value, depth)?;
        }
        Ok(rules)
    }

    fn keyword(&mut self, rules: &mut Rules, keyword: &str, value: &Value, depth: usize) -> Result<(), BadSchema> {
        match keyword {
            "type" => rules.types = Some(types(value)?),
            "enum" => rules.allowed = Some(list(keyword, value)?.clone()),
            "const" => rules.constant = Some(value.clone()),
            "minimum" => rules.minimum = Some(number(keyword, value)?),
            "maximum" => rules.maximum = Some(number(keyword, value)?),
            "exclusiveMinimum" => rules.above = Some(number(keyword, value)?),
            "exclusiveMaximum" => rules.below = Some(number(keyword, value)?),
            "multipleOf" => rules.multiple_of = Some(above_zero(keyword, value)?),
            "minLength" => rules.length.min = Some(count(keyword, value)?),
            "maxLength" => rules.length.max = Some(count(keyword, value)?),
            "minItems" => rules.count.min = Some(count(keyword, value)?),
            "maxItems" => rules.count.max = Some(count(keyword, value)?),
            "minProperties" => rules.members.min = Some(count(keyword, value)?),
            "maxProperties" => rules.members.max = Some(count(keyword, value)?),
            "pattern" => rules.pattern = Some(self.programs.compile(text(keyword, value)?).map_err(BadSchema)?),
            "format" => rules.format = Some(Format::read(text(keyword, value)?).map_err(BadSchema)?),
            "required" => rules.required = required(value)?,
            "properties" => rules.properties = self.properties(value, depth)?,
            "items" => rules.items = self.items(value, depth)?,
            "additionalProperties" => rules.additional = self.additional(value, depth)?,
            note if NOTES.contains(&note) || REMARKS.contains(&note) || note.starts_with("x-") => {}
            unknown => {
                let notes = NOTES.join(", ");
                return bad(format!("the keyword {} is not among {KEYWORDS}, {notes}", shown(unknown)));
            }
        }
        Ok(())
    }

    fn properties(&mut self, value: &Value, depth: usize) -> Result<BTreeMap<String, Node>, BadSchema> {
        let Some(properties) = value.as_object() else { return bad("properties must be an object") };
        properties.iter().map(|(name, schema)| Ok((name.clone(), self.node(schema, depth)?))).collect()
    }

    fn items(&mut self, value: &Value, depth: usize) -> Result<Items, BadSchema> {
        Ok(match value {
            Value::Array(schemas) => Items::Each(self.each(schemas, depth)?),
            schema => Items::Every(self.node(schema, depth)?),
        })
    }

    /// A list is allowed here, and checked; it binds nothing, for there is no order among members.
    fn additional(&mut self, value: &Value, depth: usize) -> Result<Option<Node>, BadSchema> {
        match value {
            Value::Array(schemas) => self.each(schemas, depth).map(|_| None),
            schema => self.node(schema, depth).map(Some),
        }
    }

    fn each(&mut self, schemas: &[Value], depth: usize) -> Result<Vec<Node>, BadSchema> {
        schemas
            .iter()
            .map(|schema| match schema {
                Value::Object(members) => Ok(Node::Rules(Box::new(self.rules(members, depth + 1)?))),
                _ => bad("a list of schemas holds something else"),
            })
            .collect()
    }

    fn node(&mut self, value: &Value, depth: usize) -> Result<Node, BadSchema> {
        match value {
            Value::Object(members) => Ok(Node::Rules(Box::new(self.rules(members, depth + 1)?))),
            Value::Bool(true) => Ok(Node::Anything),
            Value::Bool(false) => Ok(Node::Nothing),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => bad("a schema must be an object"),
        }
    }
}

impl Type {
    /// The word that schemas use.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::String => "string",
            Self::Array => "array",
            Self::Object => "object",
        }
    }

    fn read(word: &Value) -> Result<Self, BadSchema> {
        const ALL: [Type; 7] =
            [Type::Null, Type::Boolean, Type::Integer, Type::Number, Type::String, Type::Array, Type::Object];
        match ALL.into_iter().find(|known| word.as_str() == Some(known.as_str())) {
            Some(known) => Ok(known),
            None => bad(format!(
                "the type {} is none: there are {}",
                shown(&word.to_string()),
                ALL.map(Self::as_str).join(", ")
            )),
        }
    }
}

fn types(value: &Value) -> Result<Vec<Type>, BadSchema> {
    match value {
        Value::Array(words) => words.iter().map(Type::read).collect(),
        word => Ok(vec![Type::read(word)?]),
    }
}

fn required(value: &Value) -> Result<Vec<String>, BadSchema> {
    let names = list("required", value)?.iter().map(|name| name.as_str().map(ToOwned::to_owned));
    names.collect::<Option<_>>().map_or_else(|| bad("required must be a list of names"), Ok)
}

fn list<'a>(keyword: &str, value: &'a Value) -> Result<&'a Vec<Value>, BadSchema> {
    value.as_array().map_or_else(|| bad(format!("{keyword} must be a list")), Ok)
}

fn text<'a>(keyword: &str, value: &'a Value) -> Result<&'a str, BadSchema> {
    value.as_str().map_or_else(|| bad(format!("a {keyword} must be text")), Ok)
}

fn number(keyword: &str, value: &Value) -> Result<Number, BadSchema> {
    match value {
        Value::Number(number) => Ok(number.clone()),
        _ => bad(format!("{keyword} must be a number")),
    }
}

fn above_zero(keyword: &str, value: &Value) -> Result<Number, BadSchema> {
    let found = number(keyword, value)?;
    if found.as_f64().is_some_and(|found| found > 0.0) { Ok(found) } else { bad(format!("{keyword} must be over 0")) }
}

/// A whole number from 0; an integral float is one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
fn count(keyword: &str, value: &Value) -> Result<u64, BadSchema> {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    let integral = |found: f64| (found.fract() == 0.0 && (0.0..=EXACT_MAX).contains(&found)).then_some(found as u64);
    let found = value.as_u64().or_else(|| value.as_f64().and_then(integral));
    found.map_or_else(|| bad(format!("{keyword} must be a whole number from 0")), Ok)
}
