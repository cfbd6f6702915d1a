//! A receipt that somebody kept, as `GetRun` and `WaitRun` answer it: it tells of a store that was put back to an earlier time
//! or changed with all that it says of itself, which signs whatever it holds.

use content_digest::Digest;
use serde::{Deserialize, Deserializer, de};

use super::receipt::{BadReceipt, Receipt};

/// Longest file with a receipt, in bytes.
pub const BYTES_MAX: u64 = 64 * 1024;

/// A receipt without the run's id, which whoever kept it knows. Members by their JSON names, or as the `.proto` file has them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    outcome: String,
    #[serde(deserialize_with = "number")]
    events: u64,
    #[serde(alias = "headHash")]
    head_hash: Digest,
    #[serde(alias = "manifestDigest")]
    manifest_digest: Digest,
    #[serde(alias = "publicKey")]
    public_key: String,
    signature: String,
}

/// What a file makes of the run.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// The run.
    pub run_id: &'a str,
    /// Number of its events.
    pub events: u64,
    /// SHA-256 of the last one.
    pub head: Digest,
    /// How it ended, or `unfinished`.
    pub outcome: &'a str,
}

impl Kept {
    /// Reads the JSON text.
    ///
    /// # Errors
    /// It is no receipt.
    pub fn read(text: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(text).map_err(|cause| {
            format!("no receipt as GetRun answers it ({cause}): give the JSON object that is its member `receipt`")
        })
    }

    /// What does not fit between the receipt and the file.
    pub fn misfit(&self, found: Found<'_>, key: Option<&str>) -> Option<String> {
        let receipt = Receipt {
            run_id: found.run_id.to_owned(),
            manifest_digest: self.manifest_digest,
            head_hash: self.head_hash,
            events: self.events,
            outcome: self.outcome.clone(),
            public_key: self.public_key.clone(),
            signature: self.signature.clone(),
        };
        match receipt.check(key) {
            Ok(()) => {}
            Err(BadReceipt::Signature) => {
                let run_id = found.run_id;
                return Some(format!(
                    "the receipt that was kept is none of run {run_id:?}: its signature does not fit"
                ));
            }
            Err(bad) => return Some(format!("the receipt that was kept: {bad}")),
        }
        let Self { events, head_hash, outcome, .. } = self;
        let whole = (*events, *head_hash, outcome.as_str()) == (found.events, found.head, found.outcome);
        let Found { events: has, head, outcome: ended, .. } = found;
        let says = format!("the receipt that was kept says {events} events, head {head_hash}, {outcome}");
        let cut = if has < *events { ": its end was cut off, or the store put back to an earlier time" } else { "" };
        (!whole).then(|| format!("{says}; the file has {has} events, head {head}, {ended}{cut}"))
    }
}

/// JSON of protocol buffers has 64-bit numbers as texts.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Number(u64),
        Text(String),
    }
    match Number::deserialize(from)? {
        Number::Number(number) => Ok(number),
        Number::Text(text) => text.parse().map_err(de::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_read_by_either_names_with_its_number_as_number_or_text_and_nothing_else_is() {
        let zeros = "0".repeat(64);
        let one = format!(
            r#"{{"outcome":"completed","events":"7","headHash":"{zeros}","manifestDigest":"{zeros}","publicKey":"k","signature":"s"}}"#
        );
        let other =
            one.replace("\"7\"", "7").replace("headHash", "head_hash").replace("manifestDigest", "manifest_digest");
        let other = other.replace("publicKey", "public_key");
        assert_eq!(Kept::read(one.as_bytes()).unwrap(), Kept::read(other.as_bytes()).unwrap());
        assert_eq!(Kept::read(one.as_bytes()).unwrap().events, 7);
        for bad in ["{}", "", &one.replace("\"7\"", "\"x\""), &format!("{{\"receipt\":{one}}}")] {
            assert!(Kept::read(bad.as_bytes()).unwrap_err().contains("member `receipt`"), "{bad}");
        }
    }
}
