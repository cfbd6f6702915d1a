//! Small helpers for texts that people read: quoting and cutting what came from elsewhere.

/// Longest quoted value in an error text, in bytes.
pub const SHOWN_BYTES_MAX: usize = 160;

/// Cuts a text to `max` bytes at a character border, with an ellipsis when something was cut.
pub fn cut(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mut end = max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

/// Characters that change how a line looks without being seen: zero-width, bidirectional marks, byte-order mark.
pub(crate) fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    )
}

/// A name or value from elsewhere as an error text shows it: in back quotes, what is not seen escaped, bounded.
pub fn shown(value: &str) -> String {
    format!("`{}`", cut(&escaped(value, |_| false), SHOWN_BYTES_MAX))
}

/// A text of a person or a program as a sentence quotes it: what is not seen is escaped, but for line feeds and tabs.
pub fn quoted(text: &str) -> String {
    escaped(text, |c| matches!(c, '\n' | '\t'))
}

/// Whether a character shows nothing itself and may change how the text around it reads: control characters, line and
/// paragraph separators, characters that turn the direction of writing, have no width, or only format.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || is_invisible(c)
        || matches!(c,
            '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{3164}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{13430}'..='\u{13455}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

fn escaped(text: &str, kept: impl Fn(char) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) && !kept(c) { escaped.extend(c.escape_default()) } else { escaped.push(c) }
    }
    escaped
}

/// A time in milliseconds since 1970 as RFC 3339 writes it, in UTC.
pub fn instant(ms: u64) -> String {
    const DAY_MS: u64 = 86_400_000;
    const YEAR_9999_ENDS_MS: u64 = 253_402_300_800_000;
    if ms >= YEAR_9999_ENDS_MS {
        return "a time after the year 9999".to_owned();
    }
    // Years begin in March here, so that a leap day is the last of its year; 719468 days lie between that calendar's begin
    // and 1970, 146097 in each 400 years.
    let days = ms / DAY_MS + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    let (year, ms) = (400 * era + year, ms % DAY_MS);
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
}

/// Several names in one line, the first ten of them.
pub fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    const LISTED_MAX: usize = 10;
    let more = names.len().saturating_sub(LISTED_MAX);
    let mut line = names.take(LISTED_MAX).map(shown).collect::<Vec<_>>().join(", ");
    if more > 0 {
        line.push_str(&format!(" and {more} more"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_hostile_values_are_shown_short_and_escaped() {
        assert_eq!(shown("a\nb"), "`a\\nb`");
        assert_eq!(shown("a\u{202e}b"), "`a\\u{202e}b`");
        assert!(shown(&"é".repeat(4000)).len() < SHOWN_BYTES_MAX + 10);
    }

    #[test]
    fn what_is_not_seen_is_shown_by_its_number() {
        assert_eq!(shown("a\u{202e}b\u{0}"), r"`a\u{202e}b\u{0}`");
        for c in "\u{200b}\u{200e}\u{2028}\u{2029}\u{202a}\u{2066}\u{2069}\u{feff}\u{ad}\u{e0041}\u{7f}\u{9b}".chars() {
            assert!(is_hidden(c) && shown(&c.to_string()).is_ascii(), "{c:?}");
            assert!(quoted(&c.to_string()).is_ascii(), "{c:?}");
        }
        for c in "aé ß漢👍\u{301}–".chars() {
            assert!(!is_hidden(c), "{c:?}");
        }
        assert_eq!(quoted("one\n\ttwo\r\u{202e}"), "one\n\ttwo\\r\\u{202e}");
    }

    #[test]
    fn a_time_is_written_as_people_and_programs_read_it() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_796_051_825_345, "2026-11-30T15:17:05.345Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
            (u64::MAX, "a time after the year 9999"),
        ] {
            assert_eq!(instant(ms), text);
        }
    }

    #[test]
    fn a_long_list_says_how_many_it_left_out() {
        let names: Vec<String> = (0..12).map(|n| format!("n{n}")).collect();
        assert!(listed(names.iter().map(String::as_str)).ends_with("`n9` and 2 more"));
    }
}
