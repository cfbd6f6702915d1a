//! The part of JSON Schema that a definition may use: read once, then asked of inputs, results and answers.
//!
//! The dialect has no references and no combinators: a value meets one schema at most, and nothing is ever fetched. Reading and
//! asking are bounded: depth, number of schemas, size of the patterns' programs, work of one check.

mod cache;
mod check;
mod equal;
mod format;
mod number;
mod pattern;
mod read;

use std::fmt;

use serde_json::Value;

use self::read::Node;
use crate::text::cut;

pub use self::cache::of;

/// Deepest nesting of schemas.
pub const DEPTH_MAX: usize = 16;
/// Most schemas within one.
pub const SCHEMAS_MAX: usize = 4096;
/// Longest place in a text, in bytes.
const PLACE_BYTES_MAX: usize = 256;

/// A schema that was read: every keyword known and well formed, every pattern compiled.
#[derive(Debug)]
pub struct Schema {
    root: Node,
    /// What its patterns may take in memory, in bytes.
    pattern_bytes: usize,
}

/// A schema that cannot be used, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadSchema(String);

/// A value does not fit a schema: where, and which rule. Never shows the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    place: String,
    rule: String,
}

impl Schema {
    /// Reads a schema: an object of `type` `object`. Remarks (`$schema`, `$id`, `$comment`, `x-…` and the like) are not looked at.
    ///
    /// # Errors
    /// The first keyword that is unknown, malformed or over a bound.
    pub fn read(document: &Value) -> Result<Self, BadSchema> {
        read::root(document)
    }

    /// Whether a value fits. The answer and its text depend on the schema and the value alone.
    ///
    /// # Errors
    /// The first rule that the value breaks: members in the order of their names, items by number. A check that would take
    /// more than its bound of work is a misfit too.
    pub fn check(&self, value: &Value) -> Result<(), Misfit> {
        check::value(&self.root, value)
    }
}

impl Misfit {
    fn new(place: String, rule: impl Into<String>) -> Self {
        Self { place: cut(&place, PLACE_BYTES_MAX), rule: rule.into() }
    }
}

/// `/order/amount must be a number`; the whole value is `the value`.
impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.place.is_empty() { "the value" } else { &self.place };
        write!(f, "{place} {}", self.rule)
    }
}

impl std::error::Error for Misfit {}
