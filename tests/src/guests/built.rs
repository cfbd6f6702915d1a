//! What the committed modules of the reference guests were built from, held to the sources that lie there.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context as _, Result};
use content_digest::Digest;

use crate::search;

/// The crate that the guests in Rust are written with.
const CRATE: &str = "sandbox-svc/guest";

/// How a language's sources and modules below a root differ from what its `SHA256SUMS` says: a line for each file that changed,
/// came or went since the modules were built. Empty when the modules are those of the sources.
///
/// # Errors
/// A file cannot be read.
pub fn stale(root: &Path, language: &str) -> Result<Vec<String>> {
    let list = root.join("tests/guests/wasm").join(language).join("SHA256SUMS");
    let text = fs::read_to_string(&list).with_context(|| list.display().to_string())?;
    let built: BTreeMap<_, _> =
        text.lines().filter_map(|line| line.split_once("  ")).map(|(sum, path)| (path, sum)).collect();
    let present = present(root, language)?;
    let mut found = Vec::new();
    for path in present.iter().map(String::as_str).chain(built.keys().copied()).collect::<BTreeSet<_>>() {
        let what = match built.get(path) {
            None => "came",
            Some(_) if !present.contains(path) => "went",
            Some(sum) if Digest::of(&fs::read(root.join(path)).with_context(|| path.to_owned())?).to_hex() != *sum => {
                "changed"
            }
            Some(_) => continue,
        };
        found.push(format!("{path} {what} since the modules were built: tests/guests/build {language}"));
    }
    Ok(found)
}

/// The files that are there, by their paths from the root.
fn present(root: &Path, language: &str) -> Result<BTreeSet<String>> {
    let mut files = vec![root.join("tests/guests/build")];
    let mut folders = vec![root.join("tests/guests").join(language), root.join("tests/guests/wasm").join(language)];
    if language == "rust" {
        files.push(root.join(CRATE).join("Cargo.toml"));
        folders.push(root.join(CRATE).join("src"));
    }
    for folder in folders {
        files.extend(search::files(&folder)?);
    }
    let paths = files.iter().map(|file| file.strip_prefix(root).unwrap_or(file));
    // Products are no sources, and a list does not list itself.
    let paths = paths.filter(|path| !path.ends_with("SHA256SUMS"));
    let paths = paths.filter(|path| !path.components().any(|part| part.as_os_str() == "target"));
    Ok(paths.map(|path| path.display().to_string()).collect())
}
