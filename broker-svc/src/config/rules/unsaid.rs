//! What a parser says of a mistake, without the value: somebody may have put a secret there.

/// Longest word that is repeated as the name of a key, in bytes.
const KEY_BYTES_MAX: usize = 24;

/// How a message begins about a key that is none: where it stands would repeat it.
const STRANGE: &str = "unknown field";

/// The message without values. What is expected is the program's own words; of what was found stay the kind, and a word that
/// looks like a key's name.
pub fn of(message: &str) -> String {
    let (message, place) = match message.rsplit_once("\nin `") {
        Some((message, place)) if !message.starts_with(STRANGE) => (message, format!(" in `{}", place.trim())),
        Some((message, _)) => (message, String::new()),
        None => (message, String::new()),
    };
    let message = message.trim().replace('\n', " ");
    let (found, expected) = match message.rsplit_once(", expected ") {
        Some((found, expected)) => (found, Some(expected)),
        None => (message.as_str(), None),
    };
    let mut text = without_values(found);
    if let Some(expected) = expected {
        text.push_str(", expected ");
        text.push_str(expected);
    }
    text + &place
}

fn without_values(found: &str) -> String {
    let Some(at) = found.find(['`', '"', '\'']) else { return found.to_owned() };
    let (before, quoted) = (found[..at].trim_end(), &found[at..]);
    let names_a_key = [STRANGE, "missing field", "duplicate field", "duplicate key"].contains(&before);
    let key = quoted.strip_prefix('`').and_then(|rest| rest.split_once('`')).map(|(key, _)| key);
    match key.filter(|key| names_a_key && looks_like_a_key(key)) {
        Some(key) => format!("{before} `{key}`"),
        None => before.to_owned(),
    }
}

/// A key that is none of those that a table has.
pub fn unknown(key: &str, keys: &[&str]) -> String {
    let named = if looks_like_a_key(key) { format!("{STRANGE} `{key}`") } else { STRANGE.to_owned() };
    let keys: Vec<_> = keys.iter().map(|key| format!("`{key}`")).collect();
    format!("{named}, expected {}", keys.join(", "))
}

fn looks_like_a_key(word: &str) -> bool {
    (1..=KEY_BYTES_MAX).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_left_out_and_names_of_keys_are_not() {
        for (message, said) in [
            ("invalid type: integer `4815`, expected a string", "invalid type: integer, expected a string"),
            ("invalid type: string \"a, expected b\", expected a map", "invalid type: string, expected a map"),
            ("unknown field `methds`, expected `methods`", "unknown field `methds`, expected `methods`"),
            ("unknown field `sk-live-1`, expected `methods`", "unknown field, expected `methods`"),
            ("unknown variant `hunter`, expected `a` or `b`", "unknown variant, expected `a` or `b`"),
            ("missing field `hosts`", "missing field `hosts`"),
            ("\"hunter2\" is no time", ""),
            ("duplicate key", "duplicate key"),
            (
                "invalid type: string \"x\", expected a\nin `policy.a`\n",
                "invalid type: string, expected a in `policy.a`",
            ),
            ("unknown field `sk-1`, expected `a`\nin `sk-1`\n", "unknown field, expected `a`"),
        ] {
            assert_eq!(of(message), said);
        }
    }
}
