//! Modules as files for a sandbox command: named by digest, private to this user, hashed before every use.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use content_digest::Digest;

use super::code::{CodeUnreadable, SharedCode, read_verified};

/// Largest file that is hashed; a longer one is no module and is written anew.
const MODULE_BYTES_MAX: u64 = 64 * 1024 * 1024;
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// The directory. It holds at most one file for each digest that the operator pinned.
#[derive(Clone)]
pub(super) struct ModuleFiles {
    dir: PathBuf,
}

/// A module cannot be put into a file.
#[derive(Debug, thiserror::Error)]
pub(super) enum ModuleFileError {
    /// Its bytes.
    #[error(transparent)]
    Unreadable(#[from] CodeUnreadable),
    /// The file.
    #[error("cannot write the module to {path}: {cause}", path = path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
}

impl ModuleFiles {
    /// Names the directory; it is made when first needed.
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The file of a module, whose bytes have just been hashed.
    pub(super) async fn path_of(&self, digest: &Digest, source: &SharedCode) -> Result<PathBuf, ModuleFileError> {
        let (files, digest, source) = (self.clone(), *digest, source.clone());
        let done = tokio::task::spawn_blocking(move || files.path_of_blocking(&digest, &source)).await;
        done.unwrap_or_else(|cause| Err(CodeUnreadable(format!("reading {} failed: {cause}", digest.to_uri())).into()))
    }

    fn path_of_blocking(&self, digest: &Digest, source: &SharedCode) -> Result<PathBuf, ModuleFileError> {
        let path = self.dir.join(digest.to_hex());
        if holds(&path, digest) {
            return Ok(path);
        }
        let bytes = read_verified(source, digest)?;
        match self.write(&path, &bytes) {
            Ok(()) => Ok(path),
            Err(cause) => Err(ModuleFileError::Unwritable { path, cause }),
        }
    }

    /// Whoever reads the file sees all of it: it is renamed into place under a name that nobody else used.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(&self.dir)?;
        fs::set_permissions(&self.dir, Permissions::from_mode(DIRECTORY_MODE))?;
        let temporary = path.with_extension(format!("{}.tmp", uuid::Uuid::new_v4()));
        let written =
            OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&temporary).and_then(|mut file| {
                file.write_all(bytes)?;
                file.sync_all()?;
                fs::rename(&temporary, path)
            });
        if written.is_err() {
            let _perhaps_never_made = fs::remove_file(&temporary);
        }
        written
    }
}

fn holds(path: &Path, digest: &Digest) -> bool {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MODULE_BYTES_MAX).read_to_end(&mut bytes));
    read.is_ok() && Digest::of(&bytes) == *digest
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::dispatch::code::CodeSource;

    struct Always(&'static [u8]);

    impl CodeSource for Always {
        fn read(&self, _: &Digest) -> Result<Vec<u8>, CodeUnreadable> {
            Ok(self.0.to_vec())
        }

        fn size(&self, _: &Digest) -> Result<Option<u64>, CodeUnreadable> {
            Ok(Some(self.0.len() as u64))
        }
    }

    #[tokio::test]
    async fn a_file_that_was_tampered_with_is_written_anew_and_is_private() {
        let root = tempfile::tempdir().unwrap();
        let files = ModuleFiles::new(root.path().join("modules"));
        let source: SharedCode = Arc::new(Always(b"module"));
        let digest = Digest::of("module");
        let path = files.path_of(&digest, &source).await.unwrap();
        fs::write(&path, "evil").unwrap();
        assert_eq!(files.path_of(&digest, &source).await.unwrap(), path);
        assert_eq!(fs::read(&path).unwrap(), b"module");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&root.path().join("modules"))), (0o600, 0o700));
        assert_eq!(fs::read_dir(root.path().join("modules")).unwrap().count(), 1, "no temporary file is left");
    }

    #[tokio::test]
    async fn bytes_that_are_not_what_was_named_never_become_a_file() {
        let root = tempfile::tempdir().unwrap();
        let files = ModuleFiles::new(root.path().to_owned());
        let source: SharedCode = Arc::new(Always(b"other"));
        let error = files.path_of(&Digest::of("module"), &source).await.unwrap_err().to_string();
        assert!(error.contains(&Digest::of("other").to_hex()), "{error}");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }
}
