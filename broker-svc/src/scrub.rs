//! Replacing needles in a body, whatever escapes they are written in. Best effort: reversed, split or encrypted echoes pass.

/// What stands where an echo was.
pub const REPLACEMENT: &str = "[redacted]";

/// Something to look for.
pub struct Needle<'a> {
    /// The bytes, never empty.
    pub bytes: &'a [u8],
    /// How they may be spelled.
    pub spelling: Spelling,
}

/// How a needle's letters compare. Each may also stand percent-encoded, as `\uXXXX`, behind a backslash or as `&#…;`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// Exactly.
    Exact,
    /// In either case: hex digits.
    AnyCase,
}

/// Replaces every needle by `[redacted]`. One pass, longest needle first at each place.
pub fn replace(body: Vec<u8>, needles: &[Needle<'_>]) -> Vec<u8> {
    let starts = starts(needles);
    let mut ordered: Vec<_> = needles.iter().filter(|needle| !needle.bytes.is_empty()).collect();
    ordered.sort_by_key(|needle| std::cmp::Reverse(needle.bytes.len()));
    let (mut at, mut copied) = (0, 0);
    let mut clean: Option<Vec<u8>> = None;
    while at < body.len() {
        let found = if starts[usize::from(body[at])] {
            ordered.iter().find_map(|needle| match_at(&body[at..], needle))
        } else {
            None
        };
        match found {
            Some(length) => {
                let clean = clean.get_or_insert_with(|| Vec::with_capacity(body.len()));
                clean.extend_from_slice(&body[copied..at]);
                clean.extend_from_slice(REPLACEMENT.as_bytes());
                at += length;
                copied = at;
            }
            None => at += 1,
        }
    }
    match clean {
        Some(mut clean) => {
            clean.extend_from_slice(&body[copied..]);
            clean
        }
        None => body,
    }
}

/// The bytes with which a needle or an escape of its first letter can begin.
fn starts(needles: &[Needle<'_>]) -> [bool; 256] {
    let mut starts = [false; 256];
    for first in needles.iter().filter_map(|needle| needle.bytes.first()) {
        for byte in [first.to_ascii_lowercase(), first.to_ascii_uppercase(), *first, b'%', b'\\', b'&'] {
            starts[usize::from(byte)] = true;
        }
    }
    starts
}

/// How many bytes of the text spell the needle, if its beginning does.
fn match_at(text: &[u8], needle: &Needle<'_>) -> Option<usize> {
    let mut at = 0;
    for wanted in needle.bytes {
        let same = |byte: u8| match needle.spelling {
            Spelling::Exact => byte == *wanted,
            Spelling::AnyCase => byte.eq_ignore_ascii_case(wanted),
        };
        let rest = text.get(at..)?;
        at += if same(*rest.first()?) { 1 } else { escaped(rest).filter(|(byte, _)| same(*byte))?.1 };
    }
    Some(at)
}

/// The byte that an escape at the beginning of the text stands for, and the escape's length.
fn escaped(text: &[u8]) -> Option<(u8, usize)> {
    match text {
        [b'%', high, low, ..] => Some((number(&[*high, *low], 16)?, 3)),
        [b'\\', b'u' | b'U', b'0', b'0', high, low, ..] => Some((number(&[*high, *low], 16)?, 6)),
        [b'\\', b'x', high, low, ..] => Some((number(&[*high, *low], 16)?, 4)),
        [b'\\', byte, ..] => Some((*byte, 2)),
        [b'&', b'#', rest @ ..] => {
            let end = rest.iter().take(8).position(|byte| *byte == b';')?;
            let byte = match &rest[..end] {
                [b'x' | b'X', digits @ ..] => number(digits, 16)?,
                digits => number(digits, 10)?,
            };
            Some((byte, end + 3))
        }
        [b'&', rest @ ..] => {
            let named: [(&[u8], u8); 5] =
                [(b"amp;", b'&'), (b"lt;", b'<'), (b"gt;", b'>'), (b"quot;", b'"'), (b"apos;", b'\'')];
            named.iter().find(|(name, _)| rest.starts_with(name)).map(|(name, byte)| (*byte, name.len() + 1))
        }
        _ => None,
    }
}

fn number(digits: &[u8], radix: u32) -> Option<u8> {
    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    u8::from_str_radix(text, radix).ok()
}
