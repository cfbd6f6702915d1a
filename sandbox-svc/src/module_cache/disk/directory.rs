//! The cache's directory, held open: files in it are named relative to it and never followed elsewhere, and only what belongs
//! to this service, and can be written by nobody else, is read.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, FileType, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW},
};

use super::DiskFault;

/// The private directory inside the one that was named: that one may be a mount point that all may write.
const NAME: &str = "areev-sandbox-code";
/// How files begin that are being written.
const TEMPORARY: &str = "new-";
/// What nobody but the owner may do.
const OTHERS: Mode = Mode::RWXG.union(Mode::RWXO);

/// The directory.
pub struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

/// Why a file is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// It is not there.
    #[error("it is not there")]
    Absent,
    /// A link, a directory, a pipe, or a second name of some file.
    #[error("it is not a plain file of one name")]
    NotPlain,
    /// Somebody else's, or others may write or read it.
    #[error("others own it or have rights to it")]
    NotPrivate,
    /// Too short or too long.
    #[error("its size is wrong")]
    Size,
    /// The seal does not fit its key, its digest, this engine or its content.
    #[error("its seal is wrong")]
    Seal,
    /// The system cannot read it.
    #[error("it cannot be read")]
    Unreadable,
}

impl Rejection {
    /// A word for a metric's label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::NotPlain => "not_plain",
            Self::NotPrivate => "not_private",
            Self::Size => "size",
            Self::Seal => "seal",
            Self::Unreadable => "unreadable",
        }
    }
}

impl Directory {
    /// Opens the private directory in `parent`, or makes both.
    pub fn open(parent: &Path) -> Result<Self, DiskFault> {
        let path = parent.join(NAME);
        let fault = |what| move |cause: io::Error| DiskFault { what, path: parent.join(NAME), cause };
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(fault("cannot make the cache directory"))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&path, flags, Mode::empty());
        let fd = opened.map_err(io::Error::from).map_err(fault("cannot open the cache directory"))?;
        let stat =
            rustix::fs::fstat(&fd).map_err(io::Error::from).map_err(fault("cannot look at the cache directory"))?;
        if !private(&stat) {
            let cause =
                io::Error::other("it belongs to another user or others have rights to it: remove it, or chmod 700");
            return Err(fault("will not use the cache directory")(cause));
        }
        let directory = Self { fd, path };
        directory.remove_unfinished().map_err(fault("cannot read the cache directory"))?;
        Ok(directory)
    }

    /// Its path, for texts.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What has a name that ends so, with its size, by the time of its last use. What it is shows when it is read.
    pub fn oldest_first(&self, suffix: &str) -> Result<Vec<(String, u64)>, DiskFault> {
        let fault = |cause| DiskFault { what: "cannot read the cache directory", path: self.path.clone(), cause };
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.path).map_err(fault)? {
            let entry = entry.map_err(fault)?;
            let (Ok(name), Ok(metadata)) = (entry.file_name().into_string(), entry.metadata()) else { continue };
            if name.ends_with(suffix) {
                found.push((metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), name, metadata.size()));
            }
        }
        found.sort();
        Ok(found.into_iter().map(|(_, name, size)| (name, size)).collect())
    }

    /// Reads a file whole, and marks it as used.
    pub fn read(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>, Rejection> {
        // A pipe that somebody put there must not make the open wait.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.fd, name, flags, Mode::empty()).map_err(|cause| match cause {
            rustix::io::Errno::NOENT => Rejection::Absent,
            rustix::io::Errno::LOOP => Rejection::NotPlain,
            _ => Rejection::Unreadable,
        })?;
        let stat = rustix::fs::fstat(&file).map_err(|_| Rejection::Unreadable)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink != 1 {
            return Err(Rejection::NotPlain);
        }
        if !private(&stat) {
            return Err(Rejection::NotPrivate);
        }
        let size = u64::try_from(stat.st_size).map_err(|_| Rejection::Size)?;
        if size > bytes_max {
            return Err(Rejection::Size);
        }
        let mut file = File::from(file);
        let mut bytes = Vec::with_capacity(usize::try_from(size).map_err(|_| Rejection::Size)?);
        (&mut file).take(size + 1).read_to_end(&mut bytes).map_err(|_| Rejection::Unreadable)?;
        if bytes.len() as u64 != size {
            return Err(Rejection::Size);
        }
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let _only_for_the_order = rustix::fs::futimens(&file, &Timestamps { last_access: now, last_modification: now });
        Ok(bytes)
    }

    /// Writes a file whole or not at all.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let temporary = format!("{TEMPORARY}{}", uuid::Uuid::now_v7().simple());
        let written = self
            .create(&temporary, bytes)
            .and_then(|()| Ok(rustix::fs::renameat(&self.fd, &temporary, &self.fd, name)?));
        if written.is_err() {
            self.remove(&temporary);
        }
        written
    }

    /// Writes a new file; one of that name must not be there.
    pub fn create(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)?;
        File::from(file).write_all(bytes)
    }

    /// Removes a file, if it is there and is one.
    pub fn remove(&self, name: &str) {
        if let Err(cause) = rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())
            && cause != rustix::io::Errno::NOENT
        {
            tracing::warn!(path = %self.path.join(name).display(), %cause, "cannot remove a cached file");
        }
    }

    /// What a process left that ended while it wrote.
    fn remove_unfinished(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            if let Some(name) = OsStr::to_str(&name).filter(|name| name.starts_with(TEMPORARY)) {
                self.remove(name);
            }
        }
        Ok(())
    }
}

/// Whether it is this user's and nobody else has any right to it.
fn private(stat: &Stat) -> bool {
    let others = Mode::from_raw_mode(stat.st_mode).intersects(OTHERS);
    stat.st_uid == rustix::process::geteuid().as_raw() && !others
}
