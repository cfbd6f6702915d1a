//! The formats that a schema may name, as their standards spell them.

/// A format of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    DateTime,
    Date,
    Time,
    Email,
    Uri,
    Uuid,
}

const ALL: [Format; 6] = [Format::DateTime, Format::Date, Format::Time, Format::Email, Format::Uri, Format::Uuid];

impl Format {
    /// The word that schemas use.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::DateTime => "date-time",
            Self::Date => "date",
            Self::Time => "time",
            Self::Email => "email",
            Self::Uri => "uri",
            Self::Uuid => "uuid",
        }
    }

    /// Reads a schema's word.
    pub(super) fn read(word: &str) -> Result<Self, String> {
        let known = ALL.into_iter().find(|known| known.as_str() == word);
        known.ok_or_else(|| format!("a format is one of {}", ALL.map(Self::as_str).join(", ")))
    }

    /// Whether a text has the format.
    pub(super) fn fits(self, text: &str) -> bool {
        match self {
            Self::DateTime => text.split_once(['T', 't']).is_some_and(|(date, time)| is_date(date) && is_time(time)),
            Self::Date => is_date(text),
            Self::Time => is_time(text),
            Self::Email => is_email(text),
            Self::Uri => is_uri(text),
            Self::Uuid => is_uuid(text),
        }
    }
}

/// So many digits and nothing else.
fn digits(text: &str, wanted: usize) -> Option<u32> {
    (text.len() == wanted && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

/// RFC 3339 `full-date`.
fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts[..] else { return false };
    let (Some(year), Some(month), Some(day)) = (digits(year, 4), digits(month, 2), digits(day, 2)) else {
        return false;
    };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        _ => return false,
    };
    (1..=days).contains(&day)
}

/// RFC 3339 `full-time`: with an offset, a leap second allowed.
fn is_time(text: &str) -> bool {
    let Some(offset_at) = text.find(['Z', 'z', '+', '-']) else { return false };
    let (clock, offset) = text.split_at(offset_at);
    let (whole, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let parts: Vec<&str> = whole.split(':').collect();
    let [hour, minute, second] = parts[..] else { return false };
    let in_range = |text: &str, max: u32| digits(text, 2).is_some_and(|found| found <= max);
    let is_offset = match offset {
        "Z" | "z" => true,
        offset => offset[1..].split_once(':').is_some_and(|(hour, minute)| in_range(hour, 23) && in_range(minute, 59)),
    };
    let is_fraction = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    in_range(hour, 23) && in_range(minute, 59) && in_range(second, 60) && is_fraction && is_offset
}

/// One `@` between a local part and a domain, without blanks or control characters.
fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let odd = |c: char| c.is_whitespace() || c.is_control();
    let label =
        |label: &str| !label.is_empty() && label.len() <= 63 && !label.starts_with('-') && !label.ends_with('-');
    (1..=64).contains(&local.len())
        && domain.len() <= 253
        && !text.contains(odd)
        && !local.contains('@')
        && !local.starts_with('.')
        && !local.ends_with('.')
        && domain.split('.').all(label)
}

/// RFC 3986: a scheme, then characters that a URI may hold.
fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let in_scheme = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    let in_rest = |byte: u8| {
        byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}')
    };
    let escapes_hold = rest
        .split('%')
        .skip(1)
        .all(|after| after.len() >= 2 && after.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit));
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(in_scheme)
        && rest.bytes().all(in_rest)
        && escapes_hold
}

/// RFC 4122: 8-4-4-4-12 hex digits.
fn is_uuid(text: &str) -> bool {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_takes_what_its_standard_takes_and_nothing_else() {
        for (format, good, wrong) in [
            (
                "date-time",
                &["2026-02-28T23:59:60.5Z", "2024-02-29t00:00:00+05:30"][..],
                &["2026-02-29T00:00:00Z", "2026-02-28", "2026-02-28T00:00:00", "2026-02-28T24:00:00Z"][..],
            ),
            ("date", &["2000-02-29"], &["1900-02-29", "2026-13-01", "2026-1-01", "26-01-01", "2026-01-00"]),
            ("time", &["12:00:00Z", "12:00:00.123-01:00"], &["12:00:00", "12:00Z", "12:00:00.Z", "12:00:00+1"]),
            ("email", &["ann@example.com", "a.b+c@d"], &["ann", "@x", "a@", "a b@c", "a@b..c", ".a@b"]),
            (
                "uri",
                &["https://example.com/a?b=%20#c", "urn:isbn:1", "mailto:a@b"],
                &["/a", "a b:c", "http://a b", "1a:b", "http://a/%2", "http://ü"],
            ),
            (
                "uuid",
                &["123e4567-E89b-12d3-a456-426614174000"],
                &["123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400g", ""],
            ),
        ] {
            let format = Format::read(format).unwrap();
            for text in good {
                assert!(format.fits(text), "{text} is a {}", format.as_str());
            }
            for text in wrong {
                assert!(!format.fits(text), "{text} is no {}", format.as_str());
            }
        }
        assert!(Format::read("ipv4").is_err());
    }
}
