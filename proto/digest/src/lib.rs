//! Content addresses: a SHA-256 and its two spellings, `cas://sha256:<64 hex>` and the bare 64 digits.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

/// What every address begins with when it is written as a URI.
pub const CAS_PREFIX: &str = "cas://sha256:";

/// SHA-256 of some bytes. Ordered and compared by its 32 bytes; written as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// The text is no content address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not a content address: write 64 hex digits or {CAS_PREFIX}<64 hex digits>")]
pub struct BadDigest {
    /// The text, cut to 128 bytes.
    pub found: String,
}

impl Digest {
    /// 32 zero bytes: the address before the first event of a hash chain.
    pub const ZERO: Self = Self([0; 32]);

    /// Hashes bytes.
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(bytes.as_ref()).into())
    }

    /// Wraps a hash that was computed elsewhere.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// 64 lower-case hex digits.
    pub fn to_hex(&self) -> String {
        hex::encode(self.0)
    }

    /// `cas://sha256:<64 lower-case hex>`.
    pub fn to_uri(&self) -> String {
        format!("{CAS_PREFIX}{}", self.to_hex())
    }

    /// Reads the canonical URI alone: the exact prefix and 64 lower-case hex digits. What a grain's `executor_uri` must be.
    pub fn from_uri(text: &str) -> Result<Self, BadDigest> {
        match text.strip_prefix(CAS_PREFIX) {
            Some(digits) if !digits.bytes().any(|byte| byte.is_ascii_uppercase()) => decode(digits, text),
            _ => Err(bad(text)),
        }
    }
}

/// Hashes a stream piece by piece.
#[derive(Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Starts with nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next piece.
    pub fn update(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.update(bytes);
    }

    /// The digest of all pieces.
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

/// Reads either spelling, hex digits in any case, as an operator writes a pin.
impl FromStr for Digest {
    type Err = BadDigest;

    fn from_str(text: &str) -> Result<Self, BadDigest> {
        decode(text.strip_prefix(CAS_PREFIX).unwrap_or(text), text)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_hex())
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

fn decode(digits: &str, text: &str) -> Result<Digest, BadDigest> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(digits, &mut bytes).map_err(|_| bad(text))?;
    Ok(Digest(bytes))
}

fn bad(text: &str) -> BadDigest {
    let mut end = text.len().min(128);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    BadDigest { found: text[..end].to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn the_empty_text_has_its_published_hash() {
        assert_eq!(Digest::of("").to_hex(), EMPTY);
        assert_eq!(Hasher::new().finish(), Digest::of(""));
    }

    #[test]
    fn an_operator_may_write_either_spelling_in_any_case() {
        for text in [EMPTY.to_owned(), EMPTY.to_uppercase(), format!("{CAS_PREFIX}{}", EMPTY.to_uppercase())] {
            assert_eq!(text.parse::<Digest>().unwrap(), Digest::of(""), "{text}");
        }
    }

    #[test]
    fn only_the_canonical_uri_names_code() {
        assert_eq!(Digest::from_uri(&format!("{CAS_PREFIX}{EMPTY}")).unwrap(), Digest::of(""));
        for text in [EMPTY.to_owned(), format!("{CAS_PREFIX}{}", EMPTY.to_uppercase()), format!("CAS://sha256:{EMPTY}")]
        {
            assert!(Digest::from_uri(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn other_lengths_and_letters_are_refused_with_the_text_cut() {
        for text in ["", "ab", &EMPTY[1..], &format!("{EMPTY}0"), "executor://crm.lookup@v3"] {
            assert_eq!(text.parse::<Digest>().unwrap_err().found, *text);
        }
        assert!("é".repeat(4000).parse::<Digest>().unwrap_err().found.len() <= 128);
    }
}
