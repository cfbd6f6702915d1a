//! Looking for the secret in everything that the demo left behind.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::search;

/// What was searched.
pub struct Searched {
    /// Files.
    pub files: usize,
    /// Bytes.
    pub bytes: u64,
}

/// Searches every file below a folder for the secret, plain and in common encodings. Finding it is an error.
pub fn absent(secret: &str, place: &Path) -> Result<Searched> {
    let files = search::files(place)?;
    ensure!(!files.is_empty(), "{} holds nothing to search", place.display());
    let found = search::files_with(place, &search::spellings(secret))?;
    ensure!(found.is_empty(), "the secret is in {found:?}");
    let bytes = files.iter().filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum();
    Ok(Searched { files: files.len(), bytes })
}

/// Searches a text in the same way.
pub fn absent_in(secret: &str, name: &str, text: &str) -> Result<()> {
    let found = search::spellings(secret).iter().any(|needle| search::holds(text.as_bytes(), needle));
    ensure!(!found, "the secret is in {name}");
    Ok(())
}
