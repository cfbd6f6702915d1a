//! What counts as a result: one JSON text of bounded size, kept as the executor wrote it.

use std::fmt;

use runner_core::payload::Payload;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Largest result, in bytes.
pub const OUTPUT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How much of a text that is no JSON is shown, in bytes.
const SHOWN_BYTES_MAX: usize = 120;

/// The text is no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadOutput {
    /// Over the cap.
    #[error("the result is {found_bytes} bytes, the cap is {OUTPUT_BYTES_MAX} bytes")]
    TooLarge {
        /// Its size.
        found_bytes: u64,
    },
    /// Nothing but white space.
    #[error("the result is empty: write one JSON value, such as null")]
    Empty,
    /// Bytes that are no text.
    #[error("the result is not UTF-8: write one JSON value")]
    NotUtf8,
    /// A text that is not one JSON value.
    #[error("the result is not JSON ({cause}): {shown}")]
    NotJson {
        /// What the parser says.
        cause: String,
        /// The text's beginning, quoted.
        shown: String,
    },
}

/// Checks bytes that an executor wrote.
pub(super) fn output_of_bytes(bytes: Vec<u8>) -> Result<Payload, BadOutput> {
    output(&String::from_utf8(bytes).map_err(|_| BadOutput::NotUtf8)?)
}

/// Checks a text that an executor wrote. White space around the value is dropped, all else stays as it is.
pub(super) fn output(text: &str) -> Result<Payload, BadOutput> {
    let text = text.trim_matches(|c| matches!(c, ' ' | '\t' | '\r' | '\n'));
    bounded(text.len())?;
    if text.is_empty() {
        return Err(BadOutput::Empty);
    }
    match serde_json::from_str::<Sound>(text) {
        Ok(Sound) => Ok(Payload::new(text)),
        Err(cause) => {
            let mut shown = text.to_owned();
            proto::fault::cut(&mut shown, SHOWN_BYTES_MAX);
            Err(BadOutput::NotJson { cause: cause.to_string(), shown: format!("{shown:?}") })
        }
    }
}

fn bounded(bytes: usize) -> Result<(), BadOutput> {
    if bytes > OUTPUT_BYTES_MAX { Err(BadOutput::TooLarge { found_bytes: bytes as u64 }) } else { Ok(()) }
}

/// Any JSON value that can be read again later: no number out of range, no broken escape, no deeper than the parser goes.
/// Built without keeping anything of it, unlike `serde_json::Value`; checked all through, unlike `IgnoredAny`.
struct Sound;

impl<'de> Deserialize<'de> for Sound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SoundVisitor)
    }
}

struct SoundVisitor;

impl<'de> Visitor<'de> for SoundVisitor {
    type Value = Sound;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Sound, E> {
        Ok(Sound)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Sound, A::Error> {
        while let Some(Sound) = items.next_element()? {}
        Ok(Sound)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Sound, A::Error> {
        while let Some((IgnoredAny, Sound)) = entries.next_entry()? {}
        Ok(Sound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_keeps_its_exact_text_without_the_white_space_around_it() {
        for (written, kept) in [
            ("{\"b\": 1,\n \"a\":18446744073709551615}\n", "{\"b\": 1,\n \"a\":18446744073709551615}"),
            (" \t null\r\n", "null"),
            ("\"\\u00e9\"", "\"\\u00e9\""),
        ] {
            assert_eq!(output(written).unwrap().text(), kept);
        }
    }

    #[test]
    fn what_could_not_be_read_again_is_no_result() {
        let deep = "[".repeat(200) + &"]".repeat(200);
        for bad in ["{} {}", "nope", "1e999", "\"\\ud800\"", "{\"\\ud800\":1}", "[1,]", "\u{feff}1", &deep] {
            let error = output(bad).unwrap_err();
            assert!(matches!(error, BadOutput::NotJson { .. }), "{bad:.20}: {error}");
        }
        assert_eq!(output(" \n"), Err(BadOutput::Empty));
        assert_eq!(output_of_bytes(vec![b'"', 0xff, b'"']), Err(BadOutput::NotUtf8));
    }

    #[test]
    fn the_deepest_value_that_passes_can_be_read_as_a_value() {
        let deep = "[".repeat(127) + &"]".repeat(127);
        output(&deep).unwrap().parse().unwrap();
        assert!(output(&format!("[{deep}]")).is_err());
    }

    #[test]
    fn a_result_over_the_cap_is_refused_with_both_sizes() {
        let text = output_of_bytes(vec![b'1'; OUTPUT_BYTES_MAX + 1]).unwrap_err().to_string();
        assert!(text.contains("8388609") && text.contains("8388608"), "{text}");
        let fits = format!("\"{}\"", "x".repeat(OUTPUT_BYTES_MAX - 2));
        assert_eq!(output(&fits).unwrap().len_bytes(), OUTPUT_BYTES_MAX);
    }
}
