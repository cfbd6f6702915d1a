//! Asks whether a value fits: the first rule that it breaks, within a bound of work.

use serde_json::{Map, Number, Value};

use super::{
    Misfit,
    equal::same,
    number::{self, Order},
    read::{Items, Node, Range, Rules, Type},
};
use crate::text::{cut, shown};

/// Steps of one check at most: some seconds in the worst case, microseconds as a rule. A step is what a pattern's slowest
/// matcher does with one state at one byte, a few nanoseconds.
const STEPS_MAX: u64 = 1 << 30;
/// Steps of meeting one value.
const VALUE_STEPS: u64 = 64;
/// Steps of looking at a member's name, or of comparing two values.
const NAME_STEPS: u64 = 16;
/// Bytes of a text that are looked at in one step.
const TEXT_STEP_BYTES: u64 = 4;

/// Checks a value against the outermost schema.
pub(super) fn value(root: &Node, value: &Value) -> Result<(), Misfit> {
    let mut check = Check { steps: Steps(STEPS_MAX), place: String::new() };
    check.node(root, value)
}

/// What is left of the work that a check may take.
pub(super) struct Steps(u64);

/// Nothing is left.
pub(super) struct Spent;

impl Steps {
    pub(super) fn spend(&mut self, steps: u64) -> Result<(), Spent> {
        self.0 = self.0.checked_sub(steps).ok_or(Spent)?;
        Ok(())
    }

    /// For a comparison, without what is inside.
    pub(super) fn compare(&mut self) -> Result<(), Spent> {
        self.spend(NAME_STEPS)
    }

    pub(super) fn text(&mut self, text: &str) -> Result<(), Spent> {
        self.spend(NAME_STEPS + text.len() as u64 / TEXT_STEP_BYTES)
    }
}

struct Check {
    steps: Steps,
    /// Where the value is, as a JSON pointer.
    place: String,
}

type Checked = Result<(), Misfit>;

impl Check {
    fn node(&mut self, node: &Node, value: &Value) -> Checked {
        match node {
            Node::Anything => Ok(()),
            Node::Nothing => self.misfit("is not allowed here"),
            Node::Rules(rules) => self.rules(rules, value),
        }
    }

    fn rules(&mut self, rules: &Rules, value: &Value) -> Checked {
        self.spend(VALUE_STEPS)?;
        if let Some(types) = &rules.types
            && !types.iter().any(|expected| is_of(*expected, value))
        {
            let names = types.iter().map(|expected| expected.as_str()).collect::<Vec<_>>().join(" or ");
            return self.misfit(format!("must be of type {names}, and is {}", type_name(value)));
        }
        if let Some(constant) = &rules.constant
            && !self.same(constant, value)?
        {
            return self.misfit("is not the one value that is allowed");
        }
        if let Some(allowed) = &rules.allowed {
            self.one_of(allowed, value)?;
        }
        match value {
            Value::Null | Value::Bool(_) => Ok(()),
            Value::Number(number) => self.number(rules, number),
            Value::String(text) => self.text(rules, text),
            Value::Array(items) => self.items(rules, items),
            Value::Object(members) => self.members(rules, members),
        }
    }

    fn one_of(&mut self, allowed: &[Value], value: &Value) -> Checked {
        for candidate in allowed {
            if self.same(candidate, value)? {
                return Ok(());
            }
        }
        self.misfit(format!("is none of the {} values that are allowed", allowed.len()))
    }

    fn number(&mut self, rules: &Rules, found: &Number) -> Checked {
        let bounds = [
            (&rules.minimum, "at least", [Order::Same, Order::Above]),
            (&rules.maximum, "at most", [Order::Same, Order::Below]),
            (&rules.above, "over", [Order::Above, Order::Above]),
            (&rules.below, "under", [Order::Below, Order::Below]),
        ];
        for (bound, words, wanted) in bounds {
            if let Some(bound) = bound
                && !wanted.contains(&number::order(found, bound))
            {
                return self.misfit(format!("must be {words} {bound}"));
            }
        }
        match &rules.multiple_of {
            Some(unit) if !number::is_multiple(found, unit) => self.misfit(format!("must be a multiple of {unit}")),
            Some(_) | None => Ok(()),
        }
    }

    fn text(&mut self, rules: &Rules, text: &str) -> Checked {
        self.steps.text(text).or_else(|spent| self.spent(&spent))?;
        if rules.length.min.is_some() || rules.length.max.is_some() {
            self.range(&rules.length, text.chars().count(), "characters")?;
        }
        if let Some(format) = rules.format
            && !format.fits(text)
        {
            return self.misfit(format!("must have the format {}", format.as_str()));
        }
        if let Some(pattern) = &rules.pattern {
            self.spend(pattern.steps(text.len()))?;
            if !pattern.is_in(text) {
                return self.misfit("does not match its pattern");
            }
        }
        Ok(())
    }

    fn items(&mut self, rules: &Rules, items: &[Value]) -> Checked {
        self.range(&rules.count, items.len(), "items")?;
        match &rules.items {
            Items::Free => Ok(()),
            Items::Every(node) => self.each(items.iter().map(|item| (node, item))),
            Items::Each(nodes) => self.each(nodes.iter().zip(items)),
        }
    }

    fn each<'a>(&mut self, items: impl Iterator<Item = (&'a Node, &'a Value)>) -> Checked {
        for (number, (node, item)) in items.enumerate() {
            self.within(&number.to_string(), node, item)?;
        }
        Ok(())
    }

    fn members(&mut self, rules: &Rules, members: &Map<String, Value>) -> Checked {
        self.range(&rules.members, members.len(), "members")?;
        for name in &rules.required {
            self.spend(NAME_STEPS)?;
            if !members.contains_key(name) {
                return self.misfit(format!("must have the member {}", shown(name)));
            }
        }
        for (name, value) in members {
            self.spend(NAME_STEPS)?;
            match (rules.properties.get(name), &rules.additional) {
                (Some(node), _) => self.within(name, node, value)?,
                (None, Some(Node::Nothing)) => {
                    return self.misfit(format!("has the member {}, which is not allowed", shown(name)));
                }
                (None, Some(node)) => self.within(name, node, value)?,
                (None, None) => {}
            }
        }
        Ok(())
    }

    fn within(&mut self, token: &str, node: &Node, value: &Value) -> Checked {
        let outside = self.place.len();
        self.place.push('/');
        // Escaped as in a JSON pointer, and short: a place is for people.
        self.place
            .push_str(&cut(token, 64).replace('~', "~0").replace('/', "~1").replace(char::is_control, "\u{fffd}"));
        let checked = self.node(node, value);
        self.place.truncate(outside);
        checked
    }

    fn range(&mut self, range: &Range, found: usize, what: &str) -> Checked {
        let found = found as u64;
        if let Some(min) = range.min.filter(|min| found < *min) {
            return self.misfit(format!("must have at least {min} {what}, and has {found}"));
        }
        match range.max.filter(|max| found > *max) {
            Some(max) => self.misfit(format!("must have at most {max} {what}, and has {found}")),
            None => Ok(()),
        }
    }

    fn same(&mut self, left: &Value, right: &Value) -> Result<bool, Misfit> {
        same(&mut self.steps, left, right).or_else(|spent| self.spent(&spent))
    }

    fn spend(&mut self, steps: u64) -> Checked {
        self.steps.spend(steps).or_else(|spent| self.spent(&spent))
    }

    fn spent<T>(&self, Spent: &Spent) -> Result<T, Misfit> {
        self.misfit("is too large to be checked against its schema: make the value or the schema's patterns smaller")
    }

    fn misfit<T>(&self, rule: impl Into<String>) -> Result<T, Misfit> {
        Err(Misfit::new(self.place.clone(), rule))
    }
}

fn is_of(expected: Type, value: &Value) -> bool {
    match (expected, value) {
        (Type::Integer, Value::Number(number)) => number::is_integer(number),
        (Type::Null, Value::Null)
        | (Type::Boolean, Value::Bool(_))
        | (Type::Number, Value::Number(_))
        | (Type::String, Value::String(_))
        | (Type::Array, Value::Array(_))
        | (Type::Object, Value::Object(_)) => true,
        _ => false,
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
