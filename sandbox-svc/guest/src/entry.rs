//! From the input's bytes to the bytes of the result.

use alloc::{borrow::ToOwned, format, string::String, vec::Vec};

use serde::{Serialize, de::DeserializeOwned};

use crate::Error;

/// A JSON text that is handed through as it is: an input that is not looked into, or a result that is text already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json(pub String);

/// What a tool can take.
pub trait Input: Sized {
    /// Reads it from the input: one compact JSON text.
    ///
    /// # Errors
    /// The input is not what the tool takes.
    fn read(input: &[u8]) -> Result<Self, Error>;
}

/// What a tool can give.
pub trait Output {
    /// Writes it as one JSON text.
    ///
    /// # Errors
    /// It is none, such as a map whose keys are no texts.
    fn write(&self) -> Result<Vec<u8>, Error>;
}

impl<T: DeserializeOwned> Input for T {
    fn read(input: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(input).map_err(|cause| Error::new(format!("the input does not fit: {cause}")))
    }
}

impl<T: Serialize> Output for T {
    fn write(&self) -> Result<Vec<u8>, Error> {
        serde_json::to_vec(self).map_err(|cause| Error::new(format!("the result is no JSON: {cause}")))
    }
}

impl Input for Json {
    fn read(input: &[u8]) -> Result<Self, Error> {
        let text = core::str::from_utf8(input).map_err(|_| Error::new("the input is not UTF-8"))?;
        Ok(Self(text.to_owned()))
    }
}

impl Output for Json {
    fn write(&self) -> Result<Vec<u8>, Error> {
        Ok(self.0.as_bytes().to_vec())
    }
}

/// What a tool answers to an input, as it is emitted: the result as JSON; or the error's text, which is no JSON, so that the
/// node fails and the text is in the failure's detail.
pub fn answer<I: Input, O: Output>(input: &[u8], tool: impl FnOnce(I) -> Result<O, Error>) -> Vec<u8> {
    let answered = I::read(input).and_then(tool).and_then(|output| output.write());
    answered.unwrap_or_else(|error| format!("error: {error}").into_bytes())
}

#[cfg(test)]
mod tests {
    use alloc::{collections::BTreeMap, string::ToString as _};

    use super::*;

    fn said(input: &[u8], tool: impl FnOnce(BTreeMap<String, u64>) -> Result<u64, Error>) -> String {
        String::from_utf8(answer(input, tool)).unwrap()
    }

    #[test]
    fn a_result_is_json_and_an_error_is_not() {
        assert_eq!(said(b"{\"a\":1,\"b\":2}", |map| Ok(map.values().sum())), "3");
        assert_eq!(said(b"{}", |_| Err(Error::new("nothing to add"))), "error: nothing to add");
        let wrong = said(b"[]", |_| Ok(0));
        assert!(wrong.starts_with("error: the input does not fit: invalid type"), "{wrong}");
    }

    #[test]
    fn a_text_is_handed_through_digit_for_digit() {
        let text = "{\"b\":1,\"a\":9007199254740993}";
        assert_eq!(answer(text.as_bytes(), |json: Json| Ok(json)), text.as_bytes());
        assert_eq!(Json::read(b"\"\xff\"").unwrap_err().to_string(), "the input is not UTF-8");
    }
}
