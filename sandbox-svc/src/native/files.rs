//! Blobs as files named by their digest, in a directory that only this user can write.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use content_digest::Digest;

use super::{NativeFault, digest_of, probe::NOBODY, remains};

/// Blobs that are kept as files; past it the oldest goes.
const FILES_MAX: usize = 256;

/// How a directory begins that a service made for itself.
const OWN_PREFIX: &str = "areev-native-";
/// The file that is locked; what has it was such a directory before.
const LOCK: &str = "lock";
/// What may be in a directory that is taken over, beside the lock.
const KNOWN: [&str; 3] = ["code", "work", "gone"];
/// What file systems put into their own first directory.
const FILE_SYSTEMS: &str = "lost+found";
/// How files begin that are being written.
const UNFINISHED: &str = ".";
/// Modes of a blob's file: of this user alone, or to be executed by nobody.
const OWN_FILE: u32 = 0o700;
const NOBODYS_FILE: u32 = 0o755;
/// Mode of a directory in which nobody may reach a file whose name it was told.
const PASSAGE: u32 = 0o711;

/// The files.
#[derive(Debug)]
pub struct Files {
    root: PathBuf,
    code: PathBuf,
    own: bool,
    /// Held as long as the directory is this service's.
    _lock: File,
}

impl Files {
    /// Makes the directory, or takes over one that nobody else can write and no other service uses.
    pub fn open(dir: Option<&Path>) -> Result<Self, NativeFault> {
        let own = dir.is_none();
        let root = match dir {
            Some(dir) => dir.to_owned(),
            None => {
                sweep(&std::env::temp_dir());
                std::env::temp_dir().join(format!("{OWN_PREFIX}{}", uuid::Uuid::now_v7().simple()))
            }
        };
        private_directory(&root)?;
        let others = |cause| fault("cannot take over the directory", &root, cause);
        nobody_elses(&root).map_err(others)?;
        let held = |cause| fault("cannot lock the directory", &root, cause);
        let lock = lock(&root).map_err(held)?.ok_or_else(|| held(io::Error::other("another service uses it")))?;
        let code = root.join("code");
        private_directory(&code)?;
        remove_unfinished(&code);
        Ok(Self { root, code, own, _lock: lock })
    }

    /// The directory of all that native execution writes.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The executable file of a digest: hashed now, and written anew when it is missing or is not what its name says.
    pub async fn place(&self, digest: Digest, bytes: Bytes, nobody: bool) -> Result<PathBuf, NativeFault> {
        let code = self.code.clone();
        let placed = tokio::task::spawn_blocking(move || place(&code, digest, &bytes, mode(nobody))).await;
        placed.map_err(|cause| fault("cannot place", &self.code, io::Error::other(cause)))?
    }

    /// A file as blobs have it, for a jail that tries whether it gets there. Opens the way to it for nobody.
    pub fn probe_file(&self, nobody: bool) -> Result<PathBuf, NativeFault> {
        for directory in [&self.root, &self.root.join("work"), &self.code] {
            let passage = fs::Permissions::from_mode(if nobody { PASSAGE } else { OWN_FILE });
            fs::set_permissions(directory, passage)
                .map_err(|cause| fault("cannot use the directory", directory, cause))?;
        }
        let bytes = b"the jail finds its way";
        place(&self.code, Digest::of(bytes), bytes, mode(nobody))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if self.own {
            remove(&self.root);
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

/// Refuses a directory with anything in it that no service put there: what is in it will be removed.
fn nobody_elses(root: &Path) -> io::Result<()> {
    let taken_over = root.join(LOCK).is_file();
    for entry in fs::read_dir(root)? {
        let name = entry?.file_name();
        let known = name == FILE_SYSTEMS || taken_over && (name == LOCK || KNOWN.iter().any(|known| name == *known));
        if !known {
            let text = format!("{name:?} is in it, which no service put there: name an empty directory, or a new one");
            return Err(io::Error::other(text));
        }
    }
    Ok(())
}

/// Removes blobs that a killed service did not write to their end.
fn remove_unfinished(code: &Path) {
    for entry in fs::read_dir(code).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(UNFINISHED.as_bytes()) {
            let _tried_again_at_the_next_start = fs::remove_file(entry.path());
        }
    }
}

/// Makes a directory nobody's, in the sense of the user of that name.
pub fn give_to_nobody(directory: &Path) -> Result<(), NativeFault> {
    chown(directory, Some(NOBODY), Some(NOBODY)).map_err(|cause| fault("cannot give away", directory, cause))
}

/// Removes directories whose services are gone: nobody holds their locks.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let own = entry.metadata().is_ok_and(|seen| seen.uid() == rustix::process::geteuid().as_raw() && seen.is_dir());
        if own && name.to_string_lossy().starts_with(OWN_PREFIX) && matches!(lock(&path), Ok(Some(_))) {
            tracing::info!(path = %path.display(), "removing what an earlier service left");
            remove(&path);
        }
    }
}

/// Removes a directory with all that is in it, as far as that can be.
fn remove(directory: &Path) {
    let removed = remains::empty(directory, |_| {}).and_then(|()| fs::remove_dir(directory));
    if let Err(cause) = removed {
        tracing::warn!(path = %directory.display(), %cause, "cannot remove a directory of native blobs");
    }
}

/// The lock of a directory; none when somebody else holds it.
fn lock(root: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(root.join(LOCK))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(cause)) => Err(cause),
    }
}

const fn mode(nobody: bool) -> u32 {
    if nobody { NOBODYS_FILE } else { OWN_FILE }
}

fn place(code: &Path, digest: Digest, bytes: &[u8], mode: u32) -> Result<PathBuf, NativeFault> {
    let path = code.join(digest.to_hex());
    match digest_of(&path) {
        Ok(found) if found == digest => {
            let permissions = fs::Permissions::from_mode(mode);
            fs::set_permissions(&path, permissions).map_err(|cause| fault("cannot use", &path, cause))?;
            return Ok(path);
        }
        Ok(_) => tracing::error!(%digest, "a native blob's file was changed on disk: writing it anew"),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
        Err(cause) => return Err(fault("cannot read", &path, cause)),
    }
    if Digest::of(bytes) != digest {
        return Err(fault("will not write", &path, io::Error::other("the bytes in memory are not what it is named")));
    }
    let temporary = code.join(format!("{UNFINISHED}{}", uuid::Uuid::now_v7().simple()));
    let written = write(&temporary, bytes, mode).and_then(|()| fs::rename(&temporary, &path));
    if let Err(cause) = written {
        let _best_effort = fs::remove_file(&temporary);
        return Err(fault("cannot write", &path, cause));
    }
    File::open(code).and_then(|directory| directory.sync_all()).map_err(|cause| fault("cannot sync", code, cause))?;
    make_room(code, &path);
    Ok(path)
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
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
        let path = files.place(digest, bytes.clone(), false).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(&path, b"#!/bin/sh\necho evil\n").unwrap();
        assert_eq!(fs::read(files.place(digest, bytes.clone(), false).await.unwrap()).unwrap(), bytes);
    }

    #[test]
    fn a_directory_that_others_can_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Files::open(Some(dir.path())).unwrap_err().to_string().contains("0700"));
    }

    #[test]
    fn a_directory_with_somebody_elses_files_is_not_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("work")).unwrap();
        fs::write(dir.path().join("work/precious"), "").unwrap();
        assert!(Files::open(Some(dir.path())).unwrap_err().to_string().contains("\"work\" is in it"));
        assert!(dir.path().join("work/precious").exists());
    }

    #[test]
    fn what_a_killed_service_left_is_removed_and_used_again() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("native");
        drop(Files::open(Some(&root)).unwrap());
        fs::write(root.join("code/.unfinished"), "").unwrap();
        fs::create_dir(root.join("lost+found")).unwrap();
        let files = Files::open(Some(&root)).unwrap();
        assert_eq!(fs::read_dir(files.root().join("code")).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_another_service_uses_is_refused_and_not_swept() {
        let dir = tempfile::tempdir().unwrap();
        let used = dir.path().join(format!("{OWN_PREFIX}used"));
        let files = Files::open(Some(&used)).unwrap();
        assert!(Files::open(Some(&used)).unwrap_err().to_string().contains("another service uses it"));
        let left = dir.path().join(format!("{OWN_PREFIX}left"));
        fs::create_dir_all(left.join("work/01")).unwrap();
        sweep(dir.path());
        assert!(used.join("code").is_dir() && !left.exists());
        drop(files);
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
