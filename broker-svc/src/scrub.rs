//! Replacing needles in a text, whatever escapes they are written in, by code points. Best effort: reversed, split or encrypted
//! echoes pass, and the few entities of HTML that stand for two letters at once, such as `&fjlig;`.

mod spelled;

use spelled::lengths;

/// What stands where an echo was.
pub const REPLACEMENT: &str = "[redacted]";
/// Ways of reading what a text begins with that are followed at once.
const ENDS_MAX: usize = 8;

/// Something to look for.
pub struct Needle<'a> {
    /// The text, never empty.
    pub text: &'a str,
    /// How it may be spelled.
    pub spelling: Spelling,
}

/// How a needle's letters compare. Each may also stand percent-encoded, as `\xXX`, `\uXXXX`, behind a backslash, as `&#…;`, as
/// any of HTML's named entities, in ISO 8859-1, or as `+` for a blank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// Exactly.
    Exact,
    /// In either case: hex digits, and everything that was part of a host's name.
    AnyCase,
}

/// Replaces every needle by `[redacted]`. One pass, longest needle first at each place.
pub fn replace(body: Vec<u8>, needles: &[Needle<'_>]) -> Vec<u8> {
    let search = Search::new(needles);
    let mut copied = 0;
    let mut clean: Option<Vec<u8>> = None;
    while let Some((at, length)) = search.next(&body, copied) {
        let clean = clean.get_or_insert_with(|| Vec::with_capacity(body.len()));
        clean.extend_from_slice(&body[copied..at]);
        clean.extend_from_slice(REPLACEMENT.as_bytes());
        copied = at + length;
    }
    match clean {
        Some(mut clean) => {
            clean.extend_from_slice(&body[copied..]);
            clean
        }
        None => body,
    }
}

/// Whether a needle is in the text.
pub fn holds(text: &[u8], needles: &[Needle<'_>]) -> bool {
    Search::new(needles).next(text, 0).is_some()
}

struct Search<'a> {
    /// Longest first.
    needles: Vec<&'a Needle<'a>>,
    /// The bytes with which a needle or an escape of its first letter can begin.
    starts: [bool; 256],
}

impl<'a> Search<'a> {
    fn new(needles: &'a [Needle<'a>]) -> Self {
        let mut needles: Vec<_> = needles.iter().filter(|needle| !needle.text.is_empty()).collect();
        needles.sort_by_key(|needle| std::cmp::Reverse(needle.text.len()));
        let mut starts = [false; 256];
        for first in needles.iter().filter_map(|needle| needle.text.chars().next()) {
            for letter in first.to_lowercase().chain(first.to_uppercase()).chain([first, '%', '\\', '&']) {
                let mut room = [0; 4];
                starts[usize::from(letter.encode_utf8(&mut room).as_bytes()[0])] = true;
                // As one byte of ISO 8859-1.
                if let Ok(byte) = u8::try_from(u32::from(letter)) {
                    starts[usize::from(byte)] = true;
                }
            }
            if matches!(first, ' ' | '+') {
                starts[usize::from(b' ')] = true;
                starts[usize::from(b'+')] = true;
            }
        }
        Self { needles, starts }
    }

    /// Where the next needle begins, from a place on, and how long its spelling is.
    fn next(&self, text: &[u8], from: usize) -> Option<(usize, usize)> {
        (from..text.len()).filter(|at| self.starts[usize::from(text[*at])]).find_map(|at| {
            let length = self.needles.iter().find_map(|needle| match_at(&text[at..], needle))?;
            Some((at, length))
        })
    }
}

/// How many bytes of the text spell the needle, if its beginning does. A backslash may be one, or the first half of an escape:
/// both are followed.
fn match_at(text: &[u8], needle: &Needle<'_>) -> Option<usize> {
    let (mut ends, mut count) = ([0; ENDS_MAX], 1);
    for wanted in needle.text.chars() {
        let (mut further, mut found) = ([0; ENDS_MAX], 0);
        for at in &ends[..count] {
            for length in lengths(text.get(*at..)?, wanted, needle.spelling).into_iter().flatten() {
                let end = at + length;
                if found < ENDS_MAX && !further[..found].contains(&end) {
                    further[found] = end;
                    found += 1;
                }
            }
        }
        if found == 0 {
            return None;
        }
        (ends, count) = (further, found);
    }
    ends[..count].iter().max().copied()
}
