//! The ways in which one letter may be written.

use html_escape::NAMED_ENTITIES;

use super::Spelling;

/// Most digits of an HTML entity, leading zeros included.
const ENTITY_DIGITS_MAX: usize = 10;
/// Longest name of one.
const ENTITY_NAME_BYTES_MAX: usize = 31;

/// A letter and how many bytes spell it.
type Read = Option<(char, usize)>;

/// How many bytes at the beginning of the text spell the letter, in each way of reading them.
pub fn lengths(text: &[u8], wanted: char, spelling: Spelling) -> [Option<usize>; 5] {
    let same = |read: Read| {
        let (letter, length) = read?;
        let same = letter == wanted || (spelling == Spelling::AnyCase && alike(letter, wanted));
        same.then_some(length)
    };
    let Some(first) = text.first() else { return [None; 5] };
    let blank = matches!((first, wanted), (b'+', ' ') | (b' ', '+')).then_some(1);
    match first {
        b'%' | b'\\' => {
            let (utf8, latin1) = bytes(text);
            [
                same(utf8),
                same(latin1),
                same(units(text)),
                same(behind_backslash(text)),
                same(Some((char::from(*first), 1))),
            ]
        }
        b'&' => [same(entity(text)), same(Some(('&', 1))), None, None, None],
        _ if first.is_ascii() => [same(Some((char::from(*first), 1))), blank, None, None, None],
        _ => [same(plain(text)), same(Some((char::from(*first), 1))), None, None, None],
    }
}

fn alike(one: char, other: char) -> bool {
    one.eq_ignore_ascii_case(&other) || one.to_lowercase().eq(other.to_lowercase())
}

/// A letter of UTF-8.
fn plain(text: &[u8]) -> Read {
    let whole = &text[..text.len().min(width(*text.first()?))];
    let letter = std::str::from_utf8(whole).ok()?.chars().next()?;
    Some((letter, letter.len_utf8()))
}

/// Bytes of a letter that begins with this one in UTF-8.
fn width(first: u8) -> usize {
    match first {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc2.. => 2,
        _ => 1,
    }
}

/// Bytes that are escaped one by one: read as UTF-8, and the first of them as ISO 8859-1.
fn bytes(text: &[u8]) -> (Read, Read) {
    let Some((first, length)) = byte(text) else { return (None, None) };
    let latin1 = Some((char::from(first), length));
    let (mut letter, mut at) = ([first, 0, 0, 0], length);
    let width = width(first);
    for place in letter.iter_mut().take(width).skip(1) {
        let rest = &text[at..];
        // A byte of a letter may also stand as it is.
        let Some((next, length)) = byte(rest).or_else(|| Some((*rest.first()?, 1))) else { return (None, latin1) };
        *place = next;
        at += length;
    }
    let letter = std::str::from_utf8(&letter[..width]).ok().and_then(|letter| letter.chars().next());
    (letter.map(|letter| (letter, at)), latin1)
}

/// `%XX` or `\xXX`.
fn byte(text: &[u8]) -> Option<(u8, usize)> {
    let (digits, length) = match text {
        [b'%', high, low, ..] => ([*high, *low], 3),
        [b'\\', b'x' | b'X', high, low, ..] => ([*high, *low], 4),
        _ => return None,
    };
    Some((u8::try_from(number(&digits, 16)?).ok()?, length))
}

/// `\uXXXX` or `%uXXXX`, a pair of surrogates of them, `\u{…}`, `\UXXXXXXXX`.
fn units(text: &[u8]) -> Read {
    match text {
        [b'\\', b'u', b'{', rest @ ..] => {
            let end = rest.iter().take(ENTITY_DIGITS_MAX).position(|byte| *byte == b'}')?;
            return Some((char::from_u32(number(&rest[..end], 16)?)?, end + 4));
        }
        [b'\\', b'U', digits @ ..] if digits.len() >= 8 => {
            if let Some(letter) = number(&digits[..8], 16).and_then(char::from_u32) {
                return Some((letter, 10));
            }
        }
        _ => {}
    }
    let high = unit(text)?;
    if let 0xd800..=0xdbff = high {
        let low = unit(text.get(6..)?)?;
        return Some((char::decode_utf16([high, low]).next()?.ok()?, 12));
    }
    Some((char::from_u32(high.into())?, 6))
}

fn unit(text: &[u8]) -> Option<u16> {
    match text {
        [b'\\' | b'%', b'u' | b'U', digits @ ..] => u16::try_from(number(digits.get(..4)?, 16)?).ok(),
        _ => None,
    }
}

/// A letter that is escaped by a backslash alone.
fn behind_backslash(text: &[u8]) -> Read {
    let (letter, length) = plain(text.strip_prefix(b"\\")?)?;
    Some((letter, length + 1))
}

/// `&#N;`, `&#xN;`, or a letter by its name in HTML: there are names for punctuation too, and renderers that use them.
fn entity(text: &[u8]) -> Read {
    let rest = text.strip_prefix(b"&")?;
    if let Some(rest) = rest.strip_prefix(b"#") {
        let end = rest.iter().take(ENTITY_DIGITS_MAX + 1).position(|byte| *byte == b';')?;
        let code = match &rest[..end] {
            [b'x' | b'X', digits @ ..] => number(digits, 16)?,
            digits => number(digits, 10)?,
        };
        return Some((char::from_u32(code)?, end + 3));
    }
    let end = rest.iter().take(ENTITY_NAME_BYTES_MAX + 1).position(|byte| *byte == b';')?;
    let place = NAMED_ENTITIES.binary_search_by(|(name, _)| (*name).cmp(&rest[..end])).ok()?;
    let mut letters = NAMED_ENTITIES[place].1.chars();
    // A few names stand for two letters at once.
    letters.next().filter(|_| letters.next().is_none()).map(|letter| (letter, end + 2))
}

fn number(digits: &[u8], radix: u32) -> Option<u32> {
    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    u32::from_str_radix(text, radix).ok()
}
