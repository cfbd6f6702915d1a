//! One value of a grain's payload, between JSON and MessagePack.

use serde_json::{Map, Number, Value};
use unicode_normalization::{IsNormalized, UnicodeNormalization as _, is_nfc_quick};

/// A value as it goes on the wire.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// Nothing.
    Nil,
    /// True or false.
    Bool(bool),
    /// An integer from 0.
    Unsigned(u64),
    /// An integer below 0.
    Negative(i64),
    /// A finite float.
    Float(f64),
    /// Text in NFC.
    Text(String),
    /// Bytes.
    Binary(Vec<u8>),
    /// Values in order.
    List(Vec<Item>),
    /// Values by key; keys ascend by their bytes and are unique.
    Map(Vec<(String, Item)>),
}

impl Item {
    /// A text, normalised.
    pub fn text(text: &str) -> Self {
        Self::Text(nfc(text))
    }

    /// An integer.
    pub fn integer(value: i64) -> Self {
        u64::try_from(value).map_or(Self::Negative(value), Self::Unsigned)
    }

    /// A map.
    pub fn map(entries: std::collections::BTreeMap<String, Self>) -> Self {
        Self::Map(entries.into_iter().collect())
    }

    /// A JSON value, with text and keys normalised. Where two keys become one, the greater spelling by bytes wins.
    pub fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Nil,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => Self::number(number),
            Value::String(text) => Self::text(text),
            Value::Array(values) => Self::List(values.iter().map(Self::of).collect()),
            Value::Object(members) => Self::object(members, |key| key),
        }
    }

    /// A JSON object whose normalised keys go through `rename`.
    pub fn object(members: &Map<String, Value>, rename: impl Fn(&str) -> &str) -> Self {
        let mut entries = std::collections::BTreeMap::new();
        for (key, value) in in_key_order(members) {
            entries.insert(rename(&nfc(key)).to_owned(), Self::of(value));
        }
        Self::map(entries)
    }

    fn number(number: &Number) -> Self {
        if let Some(value) = number.as_u64() {
            Self::Unsigned(value)
        } else if let Some(value) = number.as_i64() {
            Self::integer(value)
        } else {
            Self::Float(number.as_f64().expect("a JSON number is an integer or a finite float"))
        }
    }
}

/// A JSON object's members by the bytes of their keys, however the map keeps them.
pub fn in_key_order(members: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut ordered: Vec<_> = members.iter().collect();
    ordered.sort_by_key(|(key, _)| *key);
    ordered
}

/// Text in normalisation form C.
pub fn nfc(text: &str) -> String {
    if is_nfc(text) { text.to_owned() } else { text.nfc().collect() }
}

/// Whether a text is in normalisation form C.
pub fn is_nfc(text: &str) -> bool {
    match is_nfc_quick(text.chars()) {
        IsNormalized::Yes => true,
        IsNormalized::No => false,
        IsNormalized::Maybe => text.chars().eq(text.nfc()),
    }
}
