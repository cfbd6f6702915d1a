//! Reducers: how a result's value joins the value that the state already has under the key.
//!
//! They work on compact JSON texts, so that what they do not have to touch keeps every digit.

use serde::{Deserialize, Serialize};
use serde_json::Number;

/// Rule of one state key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reducer {
    /// The last write wins.
    #[default]
    Lww,
    /// Lists concatenate, everything else is pushed.
    Append,
    /// Numbers add up; integers stay integers.
    Sum,
    /// The greater number stays.
    Max,
    /// The smaller number stays.
    Min,
}

impl Reducer {
    /// The names a plan may use.
    pub const NAMES: &str = "lww, append, sum, max, min";

    /// Reads a plan's word.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "lww" => Self::Lww,
            "append" => Self::Append,
            "sum" => Self::Sum,
            "max" => Self::Max,
            "min" => Self::Min,
            _ => return None,
        })
    }

    /// The new value, from compact JSON texts. What a rule cannot combine falls back to the last write.
    pub fn reduce(self, existing: Option<&str>, incoming: &str) -> String {
        match self {
            Self::Lww => incoming.to_owned(),
            Self::Append => append(existing, incoming),
            Self::Sum => existing.and_then(|existing| sum(existing, incoming)).unwrap_or_else(|| incoming.to_owned()),
            Self::Max => self.pick(existing, incoming).to_owned(),
            Self::Min => self.pick(existing, incoming).to_owned(),
        }
    }

    /// The existing text when it is a number that stays, else the incoming one.
    fn pick<'a>(self, existing: Option<&'a str>, incoming: &'a str) -> &'a str {
        let Some(existing) = existing else { return incoming };
        let (Some(old), Some(new)) = (number(existing), number(incoming)) else { return incoming };
        let stays = match (integer(&old), integer(&new)) {
            (Some(old), Some(new)) if self == Self::Max => old >= new,
            (Some(old), Some(new)) => old <= new,
            _ if self == Self::Max => old.as_f64() >= new.as_f64(),
            _ => old.as_f64() <= new.as_f64(),
        };
        if stays { existing } else { incoming }
    }
}

/// A list that grows at its end, as compact text without its closing bracket: appending does not copy what is there.
#[derive(Debug)]
pub(crate) struct List(String);

impl List {
    /// From the value that is there: a list goes on, anything else becomes the first item.
    pub(crate) fn of(existing: Option<&str>) -> Self {
        let mut list = Self("[".to_owned());
        if let Some(existing) = existing {
            list.append(existing);
        }
        list
    }

    /// Adds the items of a list, or anything else as one item.
    pub(crate) fn append(&mut self, incoming: &str) {
        let items = incoming.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(incoming);
        if items.is_empty() {
            return;
        }
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(items);
    }

    /// The whole list.
    pub(crate) fn into_text(mut self) -> String {
        self.0.push(']');
        self.0
    }
}

fn append(existing: Option<&str>, incoming: &str) -> String {
    let mut list = List::of(existing);
    list.append(incoming);
    list.into_text()
}

/// The sum, unless one is no number or the result fits neither 64 bits nor a finite double.
fn sum(existing: &str, incoming: &str) -> Option<String> {
    let (old, new) = (number(existing)?, number(incoming)?);
    if let (Some(old), Some(new)) = (integer(&old), integer(&new)) {
        let sum = old + new;
        let fits = sum >= i128::from(i64::MIN) && sum <= i128::from(u64::MAX);
        return fits.then(|| sum.to_string());
    }
    let sum = old.as_f64()? + new.as_f64()?;
    Number::from_f64(sum).map(|sum| sum.to_string())
}

fn number(text: &str) -> Option<Number> {
    serde_json::from_str(text).ok()
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_write_wins_unless_the_plan_says_otherwise() {
        assert_eq!(Reducer::default().reduce(Some("1"), "{\"a\":1.50}"), "{\"a\":1.50}");
    }

    #[test]
    fn append_concatenates_lists_and_pushes_everything_else() {
        let append = |existing, incoming| Reducer::Append.reduce(existing, incoming);
        assert_eq!(append(None, "1"), "[1]");
        assert_eq!(append(None, "[1]"), "[1]");
        assert_eq!(append(Some("[]"), "[]"), "[]");
        assert_eq!(append(Some("[1]"), "[2,3]"), "[1,2,3]");
        assert_eq!(append(Some("[1]"), "{\"a\":[2]}"), "[1,{\"a\":[2]}]");
        assert_eq!(append(Some("\"x\""), "[null]"), "[\"x\",null]");
    }

    #[test]
    fn sums_of_integers_stay_integers_and_exact() {
        let sum = |existing, incoming| Reducer::Sum.reduce(Some(existing), incoming);
        assert_eq!(sum("9007199254740992", "1"), "9007199254740993");
        assert_eq!(sum("18446744073709551614", "1"), "18446744073709551615");
        assert_eq!(sum("-9223372036854775807", "-1"), "-9223372036854775808");
        assert_eq!(sum("1", "0.5"), "1.5");
        assert_eq!(Reducer::Sum.reduce(None, "7"), "7");
    }

    #[test]
    fn what_cannot_be_added_or_compared_falls_back_to_the_last_write() {
        for (existing, incoming) in
            [("\"1\"", "2"), ("1", "\"2\""), ("18446744073709551615", "1"), ("1e308", "1.7e308")]
        {
            assert_eq!(Reducer::Sum.reduce(Some(existing), incoming), incoming);
        }
        assert_eq!(Reducer::Max.reduce(Some("9"), "null"), "null");
        assert_eq!(Reducer::Min.reduce(Some("[]"), "3"), "3");
    }

    #[test]
    fn max_and_min_compare_integers_exactly() {
        assert_eq!(Reducer::Max.reduce(Some("9007199254740993"), "9007199254740992"), "9007199254740993");
        assert_eq!(Reducer::Min.reduce(Some("9007199254740993"), "9007199254740992"), "9007199254740992");
        assert_eq!(Reducer::Max.reduce(Some("-1"), "18446744073709551615"), "18446744073709551615");
        assert_eq!(Reducer::Min.reduce(Some("1.5"), "2"), "1.5");
    }
}
