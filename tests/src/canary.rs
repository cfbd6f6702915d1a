//! The canary: a word in every secret of the tests, and the search for it in all that services write or answer.

use std::{path::Path, sync::LazyLock};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::search;

/// The word. Upstreams are shown it, for secrets are made for them; nobody else is.
pub const WORD: &str = "areev-canary-Zq7";

/// The word in each spelling that a leak could have.
pub fn spellings() -> &'static [Vec<u8>] {
    static SPELLINGS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| search::spellings(WORD));
    &SPELLINGS
}

/// Whether some bytes hold the word.
pub fn is_in(bytes: &[u8]) -> bool {
    search::holds_any(bytes, spellings())
}

/// Refuses a secret of a test that could not be told from other text.
///
/// # Errors
/// It does not hold the word.
pub fn require(name: &str, secret: &str) -> Result<()> {
    ensure!(secret.contains(WORD), "{name}: the secret of a test has {WORD:?} in it, so that a leak of it is found");
    Ok(())
}

/// A temporary folder that must not hold the word when it goes: the folder of all that services write.
pub struct Folder(TempDir);

impl Folder {
    /// An empty one.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new() -> Result<Self> {
        Ok(Self(tempfile::Builder::new().prefix("areev-e2e-").tempdir().context("a temporary folder")?))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let found = search::files_with(self.path(), spellings()).expect("what services wrote can be read");
        assert!(found.is_empty(), "a secret is in {found:?}");
    }
}
