//! Blobs as files named by their digest, in a directory that only this user can write.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use content_digest::Digest;

use super::{NativeFault, digest_of};

/// Blobs that are kept as files; past it the oldest goes.
const FILES_MAX: usize = 256;

/// The files.
#[derive(Debug)]
pub struct Files {
    root: PathBuf,
    code: PathBuf,
    own: bool,
}

impl Files {
    /// Makes the directory, or takes over one that nobody else can write.
    pub fn open(dir: Option<&Path>) -> Result<Self, NativeFault> {
        let unique = || std::env::temp_dir().join(format!("areev-sandbox-{}", uuid::Uuid::now_v7().simple()));
        let (root, own) = dir.map_or_else(|| (unique(), true), |dir| (dir.to_owned(), false));
        private_directory(&root)?;
        let code = root.join("code");
        private_directory(&code)?;
        Ok(Self { root, code, own })
    }

    /// The directory of all that native execution writes.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The executable file of a digest: hashed now, and written anew when it is missing or is not what its name says.
    pub async fn place(&self, digest: Digest, bytes: Bytes) -> Result<PathBuf, NativeFault> {
        let code = self.code.clone();
        let placed = tokio::task::spawn_blocking(move || place(&code, digest, &bytes)).await;
        placed.map_err(|cause| fault("cannot place", &self.code, io::Error::other(cause)))?
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if self.own {
            let _best_effort = fs::remove_dir_all(&self.root);
        }
    }
}

/// Makes a directory of mode 0700, or checks that one which is there already belongs to this user alone.
pub fn private_directory(path: &Path) -> Result<(), NativeFault> {
    let refused = |cause| fault("cannot use the directory", path, cause);
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(refused)?;
    let seen = fs::symlink_metadata(path).map_err(refused)?;
    let own = rustix::process::geteuid().as_raw();
    if !seen.is_dir() || seen.uid() != own || seen.permissions().mode() & 0o022 != 0 {
        return Err(refused(io::Error::other("others can write it, or it is not this user's: give it mode 0700")));
    }
    Ok(())
}

fn place(code: &Path, digest: Digest, bytes: &[u8]) -> Result<PathBuf, NativeFault> {
    let path = code.join(digest.to_hex());
    match digest_of(&path) {
        Ok(found) if found == digest => return Ok(path),
        Ok(_) => tracing::error!(%digest, "a native blob's file was changed on disk: writing it anew"),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
        Err(cause) => return Err(fault("cannot read", &path, cause)),
    }
    if Digest::of(bytes) != digest {
        return Err(fault("will not write", &path, io::Error::other("the bytes in memory are not what it is named")));
    }
    let temporary = code.join(format!(".{}", uuid::Uuid::now_v7().simple()));
    let written = write(&temporary, bytes).and_then(|()| fs::rename(&temporary, &path));
    if let Err(cause) = written {
        let _best_effort = fs::remove_file(&temporary);
        return Err(fault("cannot write", &path, cause));
    }
    fs::File::open(code)
        .and_then(|directory| directory.sync_all())
        .map_err(|cause| fault("cannot sync", code, cause))?;
    make_room(code, &path);
    Ok(path)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o700).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Removes the oldest files past the bound, never the one that is about to be used.
fn make_room(code: &Path, keep: &Path) {
    let Ok(entries) = fs::read_dir(code) else { return };
    let mut aged: Vec<_> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.metadata().ok()?.modified().ok()?, entry.path()))
        })
        .collect();
    aged.sort();
    let surplus = aged.len().saturating_sub(FILES_MAX);
    for (_, path) in aged.iter().filter(|(_, path)| path != keep).take(surplus) {
        let _best_effort = fs::remove_file(path);
    }
}

fn fault(what: &'static str, path: &Path, cause: io::Error) -> NativeFault {
    NativeFault { what, path: path.to_owned(), cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_that_was_changed_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::open(Some(&dir.path().join("native"))).unwrap();
        let bytes = Bytes::from_static(b"#!/bin/sh\necho 1\n");
        let digest = Digest::of(&bytes);
        let path = files.place(digest, bytes.clone()).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(&path, b"#!/bin/sh\necho evil\n").unwrap();
        assert_eq!(fs::read(files.place(digest, bytes.clone()).await.unwrap()).unwrap(), bytes);
    }

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Files::open(Some(dir.path())).unwrap_err().to_string().contains("0700"));
    }

    #[test]
    fn the_oldest_files_make_room() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..FILES_MAX + 3 {
            fs::write(dir.path().join(format!("{number}")), b"").unwrap();
        }
        let keep = dir.path().join("0");
        make_room(dir.path(), &keep);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), FILES_MAX);
        assert!(keep.exists());
    }
}
