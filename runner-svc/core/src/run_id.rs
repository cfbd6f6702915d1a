//! A run's id: chosen by the caller, bounded, printable; or a child run's, derived from its parent's.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    key::EffectKey,
    refusal::{Refusal, RefusalCode},
    text::{is_invisible, shown},
};

/// Longest run id, a child run's included, in bytes.
pub const RUN_ID_BYTES_MAX: usize = 128;
/// Separates a child's part from its parent's id.
const CHILD_MARK: char = '~';
/// Hex digits of a child's part.
const CHILD_DIGITS: usize = 16;

/// An id that passed the check: 1 to 128 bytes, not blank, no control or invisible formatting characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

impl RunId {
    /// Checks a caller's text.
    ///
    /// # Errors
    /// `RUN-E020`, saying which rule the text breaks. The form of a child run's id is not the caller's to choose: whoever
    /// took it first would be taken for the child.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let problem = match problem(text) {
            None if text.chars().any(runs_right_to_left) => {
                "has a character that is written from right to left, which turns the line around it".to_owned()
            }
            None if has_child_form(text) => "ends like the id of a child run, `~` and 16 hex digits".to_owned(),
            None => return Ok(Self(text.to_owned())),
            Some(problem) => problem,
        };
        let text = format!(
            "the run id {} {problem}: give 1 to {RUN_ID_BYTES_MAX} bytes of printable text, such as `order-4711`",
            shown(text),
        );
        Err(Refusal::new(RefusalCode::BadRunId, text))
    }

    /// Whether the child runs of so many levels below can have ids: each level takes 17 bytes more than its parent.
    ///
    /// # Errors
    /// `RUN-E020`, saying how long the id may be.
    pub fn leaves_room(&self, levels: usize) -> Result<(), Refusal> {
        let bytes_max = RUN_ID_BYTES_MAX.saturating_sub(levels * (1 + CHILD_DIGITS));
        if self.0.len() <= bytes_max {
            return Ok(());
        }
        let text = format!(
            "the run id {} has {} bytes, and the plan has {levels} level(s) of subgraphs, whose runs have longer ids: give at \
             most {bytes_max}",
            shown(&self.0),
            self.0.len()
        );
        Err(Refusal::new(RefusalCode::BadRunId, text))
    }

    /// The id of the child run that an effect of this run is: this id, `~`, and the first 16 hex digits of the effect's
    /// `tool_call_id`, which is derived from this id, the node or task, and the attempt.
    #[must_use]
    pub fn child(&self, effect: &EffectKey) -> Self {
        let mut digits = effect.tool_call_id(&self.0).to_hex();
        digits.truncate(CHILD_DIGITS);
        Self(format!("{}{CHILD_MARK}{digits}", self.0))
    }

    /// The id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a text cannot be an id.
fn problem(text: &str) -> Option<String> {
    if text.trim().is_empty() {
        return Some("is blank".to_owned());
    }
    if text.len() > RUN_ID_BYTES_MAX {
        return Some(format!("has {} bytes", text.len()));
    }
    let unprintable = text.chars().any(|c| c.is_control() || is_invisible(c));
    unprintable.then(|| "has a control or invisible character".to_owned())
}

fn has_child_form(text: &str) -> bool {
    text.rsplit_once(CHILD_MARK).is_some_and(|(_, digits)| {
        digits.len() == CHILD_DIGITS && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Letters of scripts that run from right to left: within a line they change the order in which the rest of it is shown.
fn runs_right_to_left(c: char) -> bool {
    matches!(
        c,
        '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefe}' | '\u{10800}'..='\u{10fff}' | '\u{1e800}'..='\u{1efff}'
    )
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An id as a manifest holds it: a caller's or a child's.
impl TryFrom<String> for RunId {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        match problem(&text) {
            None => Ok(Self(text)),
            Some(problem) => Err(Refusal::new(RefusalCode::BadRunId, format!("the run id {} {problem}", shown(&text)))),
        }
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
    use crate::pinned::SUBGRAPH_DEPTH_MAX;

    #[test]
    fn a_run_id_of_one_to_128_printable_bytes_is_taken_as_it_is() {
        for text in ["r", "order 4711/a", "größe", &"x".repeat(128)] {
            assert_eq!(RunId::parse(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn a_childs_id_names_its_parent_and_its_effect() {
        let parent = RunId::parse("r1").unwrap();
        let first = EffectKey::of_node("sub", 1, crate::key::EffectKind::Subgraph);
        let child = parent.child(&first);
        assert_eq!(child.as_str(), format!("r1~{}", &first.tool_call_id("r1").to_hex()[..16]));
        let second = EffectKey { attempt: 2, ..first.clone() };
        assert_ne!(parent.child(&second), child, "another attempt is another run");
        assert_eq!(RunId::try_from(child.as_str().to_owned()).unwrap(), child);
        assert!(child.child(&first).as_str().starts_with(child.as_str()));
    }

    #[test]
    fn an_id_leaves_room_for_the_ids_of_the_runs_below_or_is_refused() {
        let key = EffectKey::of_node("sub", 1, crate::key::EffectKind::Subgraph);
        for levels in 0..=SUBGRAPH_DEPTH_MAX {
            let bytes_max = 128 - 17 * levels;
            let longest = RunId::parse(&"x".repeat(bytes_max)).unwrap();
            assert_eq!(longest.leaves_room(levels), Ok(()));
            let deepest = (0..levels).fold(longest, |id, _| id.child(&key));
            assert_eq!(deepest.as_str().len(), 128);
            assert!(RunId::try_from(deepest.as_str().to_owned()).is_ok());
            if levels > 0 {
                let refusal = RunId::parse(&"x".repeat(bytes_max + 1)).unwrap().leaves_room(levels).unwrap_err();
                assert!(refusal.to_string().starts_with("RUN-E020") && refusal.text.contains(&bytes_max.to_string()));
            }
        }
    }

    #[test]
    fn the_form_of_a_childs_id_is_not_the_callers_to_choose() {
        for text in ["x~0123456789abcdef", "~0123456789abcdef", "a~b~00000000000000ff"] {
            let refusal = RunId::parse(text).unwrap_err();
            assert_eq!(refusal.code.code(), "RUN-E020");
            assert!(refusal.text.contains("child run"), "{refusal}");
        }
        for text in ["x~0123456789abcde", "x~0123456789ABCDEF", "x~0123456789abcdef0", "0123456789abcdef", "a~b"] {
            assert!(RunId::parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn blank_long_and_unprintable_run_ids_are_refused_as_run_e020() {
        for text in [
            "",
            " ",
            "\t",
            &"x".repeat(129),
            &"x".repeat(10_240),
            "a\0b",
            "a\nb",
            "\u{202e}evil",
            "\u{61c}a",
            "שלום",
            "a\u{627}",
        ] {
            let refusal = RunId::parse(text).unwrap_err();
            assert_eq!(refusal.code.code(), "RUN-E020", "{text:?}");
            assert!(refusal.text.len() < 600);
        }
    }
}
