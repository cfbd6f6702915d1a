//! A run's id: chosen by the caller, bounded, printable.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    refusal::{Refusal, RefusalCode},
    text::shown,
};

/// Longest run id, in bytes.
pub const RUN_ID_BYTES_MAX: usize = 128;

/// An id that passed the check: 1 to 128 bytes, not blank, no control or invisible formatting characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

impl RunId {
    /// Checks a caller's text.
    ///
    /// # Errors
    /// `RUN-E020`, saying which rule the text breaks.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let problem = if text.trim().is_empty() {
            "is blank".to_owned()
        } else if text.len() > RUN_ID_BYTES_MAX {
            format!("has {} bytes", text.len())
        } else if text.chars().any(|c| c.is_control() || is_invisible(c)) {
            "has a control or invisible character".to_owned()
        } else {
            return Ok(Self(text.to_owned()));
        };
        let text = format!(
            "the run id {} {problem}: give 1 to {RUN_ID_BYTES_MAX} bytes of printable text, such as `order-4711`",
            shown(text),
        );
        Err(Refusal::new(RefusalCode::BadRunId, text))
    }

    /// The id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Characters that change how a line looks without being seen: zero-width, bidirectional marks, byte-order mark.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for RunId {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        Self::parse(&text)
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> Self {
        id.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_id_of_one_to_128_printable_bytes_is_taken_as_it_is() {
        for text in ["r", "order 4711/a", "größe", &"x".repeat(128)] {
            assert_eq!(RunId::parse(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn blank_long_and_unprintable_run_ids_are_refused_as_run_e020() {
        for text in ["", " ", "\t", &"x".repeat(129), &"x".repeat(10_240), "a\0b", "a\nb", "\u{202e}evil"] {
            let refusal = RunId::parse(text).unwrap_err();
            assert_eq!(refusal.code.code(), "RUN-E020", "{text:?}");
            assert!(refusal.text.len() < 600);
        }
    }
}
