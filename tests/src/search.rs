//! Searching everything that a stack left on disk for a text that must not be there.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};

/// A secret in each spelling that a leak could have.
pub fn spellings(secret: &str) -> Vec<Vec<u8>> {
    let percent: String = secret.bytes().map(|byte| format!("%{byte:02X}")).collect();
    // Base64 of a text inside another has three forms by its offset; the middle of each is the same wherever it stands.
    let shifted = (0..3).map(|offset| {
        let padded = STANDARD.encode([vec![0; offset], secret.as_bytes().to_vec()].concat());
        padded.as_bytes()[4..padded.len() - 4].to_vec()
    });
    let plain = [secret.to_owned(), hex::encode(secret), percent].map(String::into_bytes);
    plain.into_iter().chain(shifted).collect()
}

/// The files below a directory that hold one of the needles.
pub fn files_with(directory: &Path, needles: &[Vec<u8>]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for file in files(directory)? {
        let bytes = fs::read(&file).with_context(|| file.display().to_string())?;
        if needles.iter().any(|needle| holds(&bytes, needle)) {
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

/// Whether the bytes hold the needle.
pub fn holds(bytes: &[u8], needle: &[u8]) -> bool {
    let mut from = 0;
    while let Some(next) = bytes[from..].iter().position(|byte| *byte == needle[0]) {
        let at = from + next;
        if bytes[at..].starts_with(needle) {
            return true;
        }
        from = at + 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_in_every_spelling() {
        let secret = "canary-secret-of-some-length";
        let needles = spellings(secret);
        let encoded: Vec<String> = (0..3)
            .map(|offset| STANDARD.encode(format!("{}Bearer {secret} and more", "x".repeat(offset))))
            .chain([format!("a {secret} b"), hex::encode(format!("..{secret}"))])
            .collect();
        for text in encoded {
            assert!(needles.iter().any(|needle| holds(text.as_bytes(), needle)), "{text}");
        }
        assert!(!needles.iter().any(|needle| holds(b"canary-secret-of-another", needle)));
    }
}
