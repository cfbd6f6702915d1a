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

/// A name or value from elsewhere as an error text shows it: in back quotes, control and invisible characters escaped, bounded.
pub fn shown(value: &str) -> String {
    let escape = |c: char| if c.is_control() || is_invisible(c) { c.escape_default().collect() } else { vec![c] };
    let escaped: String = value.chars().flat_map(escape).collect();
    format!("`{}`", cut(&escaped, SHOWN_BYTES_MAX))
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
    fn a_long_list_says_how_many_it_left_out() {
        let names: Vec<String> = (0..12).map(|n| format!("n{n}")).collect();
        assert!(listed(names.iter().map(String::as_str)).ends_with("`n9` and 2 more"));
    }
}
