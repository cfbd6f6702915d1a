//! An exact text with its digest: what travels between the journal, the state and the effects.

use std::{fmt, sync::Arc};

use content_digest::Digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A text (nearly always one JSON text) kept byte for byte, with its SHA-256. Cheap to clone.
///
/// Records of the journal name it by [`PayloadRef`]; the bytes are stored beside the record.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload {
    text: Arc<str>,
    digest: Digest,
}

/// A payload by its address and length, as a record of the journal spells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PayloadRef {
    /// SHA-256 of the text.
    pub digest: Digest,
    /// Length of the text in bytes.
    pub bytes: u64,
}

impl Payload {
    /// Takes a text as it is and hashes it.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        let digest = Digest::of(text.as_bytes());
        Self { text, digest }
    }

    /// The text of a JSON value: compact, keys sorted.
    pub fn of(value: &Value) -> Self {
        Self::new(value.to_string())
    }

    /// The exact text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// SHA-256 of the text.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Length of the text in bytes.
    pub fn len_bytes(&self) -> usize {
        self.text.len()
    }

    /// Reads the text as JSON. Integers of 64 bits stay exact.
    ///
    /// # Errors
    /// The text is no JSON, nests deeper than 127, or holds a number out of range.
    pub fn parse(&self) -> serde_json::Result<Value> {
        serde_json::from_str(&self.text)
    }

    /// Address and length.
    pub fn reference(&self) -> PayloadRef {
        PayloadRef { digest: self.digest, bytes: self.text.len() as u64 }
    }
}

/// A payload as its text, where it stands inside another document.
pub(crate) mod text {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Payload;

    pub(crate) fn serialize<S: Serializer>(payload: &Payload, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(payload.text())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Payload, D::Error> {
        Ok(Payload::new(String::deserialize(deserializer)?))
    }
}

/// Shows the address, never the text: payloads may be large and are not for logs.
impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({}, {} bytes)", self.digest, self.text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_64_bits_survive_digit_for_digit() {
        for digits in ["9007199254740993", "18446744073709551615", "-9223372036854775808"] {
            let payload = Payload::new(digits);
            assert_eq!(payload.text(), digits);
            assert_eq!(payload.parse().unwrap().to_string(), digits);
        }
    }

    #[test]
    fn a_payload_is_shown_without_its_text() {
        assert!(!format!("{:?}", Payload::new("\"private\"")).contains("private"));
    }
}
