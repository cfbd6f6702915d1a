//! One line of an export: a JSON object, so that the file can be read with any tool and written piece by piece.

use content_digest::Digest;
use serde::{Deserialize, Serialize};

use super::receipt::Receipt;

/// Version of the format. The second one has child runs behind the run's receipt, each like a file of its own; in the third
/// each of them says at its beginning whether its blobs are there.
pub const FORMAT: u32 = 3;
/// The first version that says whether blobs are there.
pub const FORMAT_SAYS_BLOBS: u32 = 3;
/// Oldest version that is read.
pub const FORMAT_OLDEST: u32 = 1;
/// Most bytes of a text or a blob in one line.
pub const PIECE_BYTES_MAX: usize = 128 * 1024;
/// Longest line, in bytes: a piece whose every byte is escaped, and its names.
pub const LINE_BYTES_MAX: usize = 6 * PIECE_BYTES_MAX + 4096;

/// A line. In the file's order: `export`, then each event behind the texts that it names, then grains and blobs, at last
/// `receipt`; then the same of each child run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case", deny_unknown_fields)]
pub enum Line {
    /// What follows.
    Export {
        /// [`FORMAT`].
        format: u32,
        /// The run.
        run_id: String,
        /// Its namespace.
        namespace: String,
        /// When it was exported, in milliseconds since 1970.
        exported_at_ms: u64,
        /// The run whose child it is; none of the run that was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<String>,
        /// Whether the blobs are there: code that the run froze, and what its calls sent, stored or read. None before the third
        /// version.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        with_blobs: Option<bool>,
    },
    /// A piece of a text that the next event names.
    Text {
        /// SHA-256 of the whole text.
        digest: Digest,
        /// Number of the piece, from 1.
        piece: u32,
        /// How many there are.
        pieces: u32,
        /// The piece.
        text: String,
    },
    /// An event.
    Event {
        /// Its record, byte for byte: what the next event's `previous` hashes.
        record: String,
    },
    /// A piece of a grain: the plan, or a definition that the run froze.
    Grain {
        /// SHA-256 of the whole grain.
        digest: Digest,
        /// Number of the piece, from 1.
        piece: u32,
        /// How many there are.
        pieces: u32,
        /// The piece, in base64.
        base64: String,
    },
    /// A piece of a blob: code that the run froze, or what one of its calls sent, stored or read.
    Blob {
        /// SHA-256 of the whole blob.
        digest: Digest,
        /// Number of the piece, from 1.
        piece: u32,
        /// How many there are.
        pieces: u32,
        /// The piece, in base64.
        base64: String,
    },
    /// The last line.
    Receipt {
        /// The receipt.
        receipt: Receipt,
    },
}

impl Line {
    /// The line's text, its line feed included.
    pub fn to_text(&self) -> String {
        let mut text = serde_json::to_string(self).expect("a line has text keys and integers only");
        text.push('\n');
        text
    }
}

/// A text in pieces of at most [`PIECE_BYTES_MAX`], each whole characters.
pub fn pieces(mut text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    while text.len() > PIECE_BYTES_MAX {
        let (piece, rest) = text.split_at(text.floor_char_boundary(PIECE_BYTES_MAX));
        pieces.push(piece);
        text = rest;
    }
    pieces.push(text);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_characters_and_together_the_text() {
        for text in [String::new(), "é".repeat(PIECE_BYTES_MAX), "x".repeat(PIECE_BYTES_MAX)] {
            let pieces = pieces(&text);
            assert!(pieces.iter().all(|piece| piece.len() <= PIECE_BYTES_MAX));
            assert_eq!(pieces.concat(), text);
        }
    }

    #[test]
    fn the_longest_line_is_within_its_bound() {
        let text = "\u{1}".repeat(PIECE_BYTES_MAX);
        let line = Line::Text { digest: Digest::ZERO, piece: 1, pieces: 1, text };
        assert!(line.to_text().len() <= LINE_BYTES_MAX);
        assert_eq!(serde_json::from_str::<Line>(&line.to_text()).unwrap(), line);
    }
}
