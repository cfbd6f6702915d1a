//! Searching everything that a stack left on disk for a text that must not be there.

use std::{
    fs,
    io::BufRead as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};

/// A secret in each spelling that a leak could have: as it is, percent-encoded and hex in both cases, base64 of both alphabets at
/// every offset, and as the numbers of a byte string that was printed.
pub fn spellings(secret: &str) -> Vec<Vec<u8>> {
    let percent: String = secret.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let numbers: Vec<_> = secret.bytes().map(|byte| byte.to_string()).collect();
    // Base64 of a text inside another has three forms by its offset; the middle of each is the same wherever it stands.
    let shifted = (0..3).flat_map(|offset| {
        let shown = [vec![0; offset], secret.as_bytes().to_vec()].concat();
        [STANDARD_NO_PAD.encode(&shown), URL_SAFE_NO_PAD.encode(&shown)].map(|text| {
            let sure = (offset * 8).div_ceil(6)..(shown.len() * 8) / 6;
            text.as_bytes()[sure].to_vec()
        })
    });
    let plain = [
        secret.to_owned(),
        hex::encode(secret),
        hex::encode_upper(secret),
        percent.to_lowercase(),
        percent,
        numbers.join(", "),
        numbers.join(","),
    ];
    let mut all: Vec<_> = plain.into_iter().map(String::into_bytes).chain(shifted).collect();
    all.sort();
    all.dedup();
    all
}

/// The files below a directory that hold one of the needles.
pub fn files_with(directory: &Path, needles: &[Vec<u8>]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for file in files(directory)? {
        let bytes = fs::read(&file).with_context(|| file.display().to_string())?;
        if holds_any(&bytes, needles) {
            found.push(file);
        }
    }
    Ok(found)
}

/// Every file below a directory, in order.
pub fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            files.extend(self::files(&entry.path())?);
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// Whether the bytes hold one of the needles.
pub fn holds_any(bytes: &[u8], needles: &[Vec<u8>]) -> bool {
    needles.iter().any(|needle| holds(bytes, needle))
}

/// Whether the bytes hold the needle. Jumps from one place of the needle's rarest byte to the next.
pub fn holds(bytes: &[u8], needle: &[u8]) -> bool {
    let Some((offset, rarest)) = needle.iter().copied().enumerate().min_by_key(|(_, byte)| frequency(*byte)) else {
        return true;
    };
    let mut from = 0;
    while from < bytes.len() {
        let mut rest = &bytes[from..];
        from += rest.skip_until(rarest).expect("memory can be read");
        let begin = (from - 1).checked_sub(offset);
        if begin.is_some_and(|begin| bytes[begin..].starts_with(needle)) {
            return true;
        }
    }
    false
}

/// How often a byte stands in logs, roughly.
fn frequency(byte: u8) -> u8 {
    match byte {
        b'%' | b'J' | b'K' | b'Q' | b'V' | b'W' | b'X' | b'Y' | b'Z' => 0,
        b'A'..=b'Z' | b'j' | b'q' | b'x' | b'z' => 1,
        b'a'..=b'z' => 3,
        b'0'..=b'9' => 2,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};

    use super::*;

    #[test]
    fn a_secret_is_found_in_every_spelling() {
        let secret = "canary-secret-of-some-length?>";
        let needles = spellings(secret);
        let around = |offset: usize| format!("{}Bearer {secret} and more", "x".repeat(offset));
        let percent: String = secret.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let encoded: Vec<String> = (0..3)
            .flat_map(|offset| [STANDARD.encode(around(offset)), URL_SAFE.encode(around(offset))])
            .chain([format!("a {secret} b"), hex::encode(format!("..{secret}")), hex::encode_upper(secret)])
            .chain([percent.to_uppercase().replace('X', "x"), percent, format!("{:?}", secret.as_bytes())])
            .chain([serde_json::to_string(secret.as_bytes()).unwrap(), STANDARD.encode(secret)])
            .collect();
        for text in encoded {
            assert!(holds_any(text.as_bytes(), &needles), "{text}");
        }
        assert!(!holds_any(b"canary-secret-of-another", &needles));
    }

    #[test]
    fn a_needle_is_found_at_both_ends_and_after_false_beginnings() {
        for text in ["aQb", "xx aQb", "aQb xx", "aQaQaQb", "Q aQb", "QQaQbQQ"] {
            assert!(holds(text.as_bytes(), b"aQb"), "{text}");
        }
        for text in ["", "a", "Q", "Qb", "aQ", "aQ b", "aq b"] {
            assert!(!holds(text.as_bytes(), b"aQb"), "{text}");
        }
    }
}
