//! Tables as they stand in the file: each key is read by itself, and every mistake is kept with its line, so that none hides another.

use std::{cell::RefCell, ops::Range};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{BadRule, line_of, unsaid};
use crate::refusal::cut;

/// Longest part of a text of the parser that is repeated, in bytes.
const CAUSE_BYTES_MAX: usize = 256;

/// Reads the tables of one text, and keeps what is wrong in them.
pub struct Reader<'a> {
    text: &'a str,
    mistakes: RefCell<Vec<BadRule>>,
}

/// One table under its name.
pub struct Section<'a> {
    reader: &'a Reader<'a>,
    name: String,
    span: Range<usize>,
    table: &'a DeTable<'a>,
}

impl<'a> Reader<'a> {
    /// Of a text.
    pub fn new(text: &'a str) -> Self {
        Self { text, mistakes: RefCell::default() }
    }

    /// Keeps a mistake.
    pub fn bad(&self, key: &str, at: &Range<usize>, rule: impl Into<String>) {
        let mistake = BadRule { line: Some(line_of(self.text, at)), key: format!("{key}: "), rule: rule.into() };
        self.mistakes.borrow_mut().push(mistake);
    }

    /// Keeps what a parser says, without the values that it repeats.
    pub fn malformed(&self, mut cause: toml::de::Error, at: Option<Range<usize>>) {
        let at = cause.span().or(at);
        // Without the text the error does not show the line as it stands, which may hold a secret.
        cause.set_input(None);
        let rule = cut(&unsaid::of(&cause.to_string()), CAUSE_BYTES_MAX);
        let line = at.map(|at| line_of(self.text, &at));
        self.mistakes.borrow_mut().push(BadRule { line, key: String::new(), rule });
    }

    /// How many mistakes there are so far.
    pub fn count(&self) -> usize {
        self.mistakes.borrow().len()
    }

    /// All of them.
    pub fn into_mistakes(self) -> Vec<BadRule> {
        self.mistakes.into_inner()
    }

    /// The tables of a table, by name and in order.
    pub fn tables(
        &self,
        name: &str,
        value: &'a Spanned<DeValue<'a>>,
    ) -> impl Iterator<Item = (&'a str, &'a Spanned<DeValue<'a>>)> + use<'a> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.bad(name, &value.span(), other(value, "a table"));
        }
        table.into_iter().flatten().map(|(name, value)| (name.get_ref().as_ref(), value))
    }

    /// A table with these keys. A key that is none of them is a mistake, and hides no other.
    pub fn section(&'a self, name: String, value: &'a Spanned<DeValue<'a>>, keys: &[&str]) -> Option<Section<'a>> {
        let Some(table) = value.get_ref().as_table() else {
            self.bad(&name, &value.span(), other(value, "a table"));
            return None;
        };
        for (key, _) in table.iter().filter(|(key, _)| !keys.contains(&key.get_ref().as_ref())) {
            self.bad(&name, &key.span(), unsaid::unknown(key.get_ref(), keys));
        }
        Some(Section { reader: self, name, span: value.span(), table })
    }
}

impl<'a> Section<'a> {
    /// Keeps a mistake of a key; of the table, where the key is left out.
    pub fn bad(&self, key: &str, rule: impl Into<String>) {
        let span = self.value(key).map_or_else(|| self.span.clone(), Spanned::span);
        self.reader.bad(&self.key(key), &span, rule);
    }

    /// Whether the key is written.
    pub fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// A table below this one.
    pub fn below(&self, key: &str, keys: &[&str]) -> Option<Section<'a>> {
        self.reader.section(self.key(key), self.value(key)?, keys)
    }

    /// A text, where it is written and can be read.
    pub fn text<T>(&self, key: &str, read: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        self.read(key, self.value(key)?, &read)
    }

    /// What has to be there: says so where the key is left out.
    pub fn needed<T>(&self, key: &str, value: Option<T>, hint: &str) -> Option<T> {
        if !self.has(key) {
            self.bad(key, format!("missing: {hint}"));
        }
        value
    }

    /// Every entry of a list that can be read; none where it is left out.
    pub fn entries<T>(&self, key: &str, read: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let Some(items) = value.get_ref().as_array() else {
            self.bad(key, other(value, "a list"));
            return Vec::new();
        };
        items.iter().filter_map(|item| self.read(key, item, &read)).collect()
    }

    /// A list that, where it is written, holds something: an empty one would read as nothing to one and as all to another.
    pub fn filled<T>(&self, key: &str, read: impl Fn(&str) -> Result<T, String>) -> Option<Vec<T>> {
        let value = self.value(key)?;
        if value.get_ref().as_array().is_some_and(|items| items.is_empty()) {
            self.bad(key, "an empty list: write an entry or leave the key out");
            return None;
        }
        Some(self.entries(key, read))
    }

    /// True or false, and false where it is left out.
    pub fn flag(&self, key: &str) -> bool {
        let Some(value) = self.value(key) else { return false };
        value.get_ref().as_bool().unwrap_or_else(|| {
            self.bad(key, other(value, "true or false"));
            false
        })
    }

    /// A number of bytes, where it is written and is one.
    pub fn bytes(&self, key: &str) -> Option<u64> {
        let number = self.value(key)?.get_ref().as_integer();
        let bytes = number.and_then(|number| u64::from_str_radix(number.as_str(), number.radix()).ok());
        if bytes.is_none() {
            self.bad(key, "is no number of bytes: write one from 0 on, without quotes");
        }
        bytes
    }

    fn key(&self, key: &str) -> String {
        if key.is_empty() { self.name.clone() } else { format!("{} {key}", self.name) }
    }

    fn value(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.table.get(key)
    }

    fn read<T>(&self, key: &str, value: &Spanned<DeValue<'_>>, read: &impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let text = value.get_ref().as_str().ok_or_else(|| other(value, "a string"));
        text.and_then(read).map_err(|rule| self.reader.bad(&self.key(key), &value.span(), rule)).ok()
    }
}

/// A value of another kind than is wanted. The value is not repeated.
fn other(value: &Spanned<DeValue<'_>>, wanted: &str) -> String {
    let kind = value.get_ref().type_str();
    let article = if kind.starts_with(['a', 'i']) { "an" } else { "a" };
    format!("is {article} {kind}: write {wanted}")
}
