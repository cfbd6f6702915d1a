//! JSON texts are checked and made compact, and otherwise left as they were written: no number is read and written again.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};

/// Bytes of a text that is no JSON that are shown.
const SHOWN_BYTES_MAX: usize = 200;

/// Arrays and objects within each other: the parser's bound, which it does not tell.
const DEPTH_MAX: usize = 127;
/// What the parser says of more.
const TOO_DEEP: &str = "recursion limit exceeded";

/// Checks that a text is one JSON value, nested at most 127 deep.
pub fn check(text: &[u8]) -> Result<&str, String> {
    let text = std::str::from_utf8(text).map_err(|_| "it is not UTF-8".to_owned())?;
    serde_json::from_str::<Checked>(text).map(|_| text).map_err(|cause| why(&cause))
}

fn why(cause: &serde_json::Error) -> String {
    let text = cause.to_string();
    match text.strip_prefix(TOO_DEEP) {
        Some(place) => format!("nested over {DEPTH_MAX} deep{place}"),
        None => text,
    }
}

/// How a text that is no JSON begins, quoted: what its author meant to say.
pub fn beginning(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(SHOWN_BYTES_MAX)]);
    format!("{text:?}")
}

/// Removes the whitespace between the tokens of a valid JSON text: one line, every other byte kept.
pub fn compact(text: &str) -> String {
    let mut compact = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for character in text.chars() {
        if in_string {
            in_string = escaped || character != '"';
            escaped = character == '\\' && !escaped;
        } else if matches!(character, ' ' | '\t' | '\r' | '\n') {
            continue;
        } else {
            in_string = character == '"';
        }
        compact.push(character);
    }
    compact
}

/// A value that was looked through and dropped. Unlike `IgnoredAny` it recurses, so that the parser counts the depth.
struct Checked;

struct Check;

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Check)
    }
}

impl<'de> Visitor<'de> for Check {
    type Value = Checked;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_str<E>(self, _: &str) -> Result<Checked, E> {
        Ok(Checked)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Checked, A::Error> {
        while items.next_element::<Checked>()?.is_some() {}
        Ok(Checked)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Checked, A::Error> {
        while members.next_entry::<Key, Checked>()?.is_some() {}
        Ok(Checked)
    }
}

/// A member's name, fully decoded so that a bad escape in it is seen.
struct Key;

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(deserializer).map(|_| Self)
    }
}

/// Whether a text is blank: nothing but JSON whitespace.
pub fn is_blank(text: &str) -> bool {
    text.chars().all(|character| matches!(character, ' ' | '\t' | '\r' | '\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_one_value_is_refused() {
        for text in ["", "{", "{} {}", "NaN", "'a'", "[1,]", "\"\\ud800\"", "{\"\\ud800\":1}", "1e999", "nul"] {
            assert!(check(text.as_bytes()).is_err(), "{text}");
        }
        assert!(check(b"\"\xff\"").unwrap_err().contains("UTF-8"));
    }

    #[test]
    fn a_value_is_kept_as_it_was_written() {
        let text = "{\"b\":18446744073709551615,\"a\":1.10,\"a\":-9223372036854775808}";
        assert_eq!(check(text.as_bytes()).unwrap(), text);
        assert_eq!(compact(" { \"a b\\\" \\\\\" : [ 1.0 ,\n\t\"é \" ] }\r\n"), "{\"a b\\\" \\\\\":[1.0,\"é \"]}");
    }

    #[test]
    fn a_text_is_nested_as_deep_as_is_told_and_no_deeper() {
        let arrays = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        let objects = |depth: usize| "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth);
        for nested in [arrays(DEPTH_MAX), objects(DEPTH_MAX)] {
            assert!(check(nested.as_bytes()).is_ok(), "{nested}");
        }
        for nested in [arrays(DEPTH_MAX + 1), objects(DEPTH_MAX + 1), arrays(2000), objects(2000)] {
            let refusal = check(nested.as_bytes()).unwrap_err();
            assert!(refusal.starts_with("nested over 127 deep at line 1 column "), "{refusal}");
        }
    }
}
