//! Patterns: compiled once, bounded in their programs' size, and in what matching may cost.

use regex::{Regex, RegexBuilder};

use crate::text::shown;

/// Sizes that a pattern's program is allowed one after the other, in bytes; the last is the largest that a schema may have.
const PROGRAM_BYTES: [usize; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 10 << 20];
/// Bytes that the programs of one schema may take together.
const PROGRAMS_BYTES_MAX: usize = 20 << 20;
/// Most patterns in one schema.
const PATTERNS_MAX: usize = 256;
/// Bytes of a program that hold about one state: what a matcher steps through for each byte of the text, at worst.
const STATE_BYTES: usize = 32;

/// A compiled pattern. It matches anywhere in a text unless it is anchored.
#[derive(Debug)]
pub(super) struct Pattern {
    regex: Regex,
    program_bytes: usize,
}

/// Counts what the patterns of one schema take.
pub(super) struct Programs {
    patterns: usize,
    bytes: usize,
}

impl Programs {
    pub(super) fn new() -> Self {
        Self { patterns: 0, bytes: 0 }
    }

    /// What they may take together, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Compiles a pattern into the smallest allowed size.
    pub(super) fn compile(&mut self, pattern: &str) -> Result<Pattern, String> {
        self.patterns += 1;
        if self.patterns > PATTERNS_MAX {
            return Err(format!("has more than {PATTERNS_MAX} patterns"));
        }
        for program_bytes in PROGRAM_BYTES {
            if self.bytes + program_bytes > PROGRAMS_BYTES_MAX {
                return Err(format!("has patterns whose programs take more than {PROGRAMS_BYTES_MAX} bytes together"));
            }
            match RegexBuilder::new(pattern).size_limit(program_bytes).build() {
                Ok(regex) => {
                    self.bytes += program_bytes;
                    return Ok(Pattern { regex, program_bytes });
                }
                Err(regex::Error::CompiledTooBig(_)) => {}
                Err(_) => break,
            }
        }
        Err(format!("the pattern {} does not compile", shown(pattern)))
    }
}

impl Pattern {
    /// Whether it is found in the text.
    pub(super) fn is_in(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// Steps that looking for it in a text of this length may take.
    pub(super) fn steps(&self, text_bytes: usize) -> u64 {
        (text_bytes as u64).saturating_mul((self.program_bytes / STATE_BYTES) as u64)
    }
}
