//! The source tree, as the style checks walk it.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::{binaries::workspace, search};

/// One text file of the tree.
pub struct Source {
    /// Its path from the workspace's root.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
}

/// Folders that hold products or history, not sources, wherever they are.
const NOT_SOURCES: [&str; 3] = [".git", "target", "node_modules"];

/// Every UTF-8 file with one of the extensions, in order.
pub fn sources(extensions: &[&str]) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(workspace())? {
        let entry = entry?;
        let name = entry.file_name();
        if NOT_SOURCES.iter().any(|skipped| name == *skipped) {
            continue;
        }
        let files = if entry.file_type()?.is_dir() { search::files(&entry.path())? } else { vec![entry.path()] };
        for file in files {
            let path = file.strip_prefix(workspace()).unwrap_or(&file).to_owned();
            let product = path.components().any(|part| NOT_SOURCES.iter().any(|skipped| part.as_os_str() == *skipped));
            let wanted = file.extension().is_some_and(|found| extensions.iter().any(|wanted| found == *wanted));
            if let (true, Ok(text)) = (wanted && !product, std::fs::read_to_string(&file)) {
                sources.push(Source { path, text });
            }
        }
    }
    sources.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(sources)
}

/// Whether a path is a test of its crate, or the test crate itself.
pub fn is_test(path: &Path) -> bool {
    path.starts_with("tests")
        || path.ends_with("tests.rs")
        || path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "benches")
}
