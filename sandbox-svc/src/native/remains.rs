//! What blobs leave behind, removed on a thread of its own: a tree may be large, deeper than any stack, and closed to its owner.
//!
//! A blob's directory is moved aside in one step, and emptied from there without going down into it: a directory that is not
//! empty is moved up to where its parent was. So neither depth nor width costs memory or open files.

use std::{
    ffi::{CStr, CString},
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fd::{AsFd, BorrowedFd},
    fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat},
    io::Errno,
};
use tokio::sync::watch;

use super::{NativeFault, files::private_directory};
use crate::priority::Priority;

/// Where directories of ended blobs wait, beside those of living ones.
const NAME: &str = "gone";
/// Directories that may wait before the next blob does.
const WAITING_MAX: usize = 64;
/// When what could not be removed is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// How long a pass waits after one that left something: somebody who is being killed may still write.
const PAUSE: Duration = Duration::from_millis(1);

/// Removes what blobs leave.
#[derive(Debug)]
pub struct Remains {
    gone: PathBuf,
    wake: SyncSender<()>,
    waiting: watch::Receiver<usize>,
}

impl Remains {
    /// Makes the directory in `root`, and begins with what an earlier service left there and in `work`.
    pub fn of(root: &Path, work: &Path) -> Result<Self, NativeFault> {
        let gone = root.join(NAME);
        private_directory(&gone)?;
        let fault = |what, path: &Path| {
            let path = path.to_owned();
            move |cause| NativeFault { what, path, cause }
        };
        for entry in fs::read_dir(work).map_err(fault("cannot read the directory", work))?.flatten() {
            tracing::info!(path = %entry.path().display(), "removing what an earlier service left");
            put_aside(&entry.path(), &gone);
        }
        let (wake, woken) = sync_channel(1);
        let (count, waiting) = watch::channel(0);
        let removed_from = gone.clone();
        thread::Builder::new()
            .name("remains".to_owned())
            .spawn(move || {
                Priority::Low.take();
                remove(&removed_from, &woken, &count);
            })
            .map_err(fault("cannot start the thread that empties", &gone))?;
        let remains = Self { gone, wake, waiting };
        remains.wake();
        Ok(remains)
    }

    /// Waits until few enough directories are left to be removed.
    pub async fn few(&self, ends_at: Instant) {
        let few = async { self.waiting.clone().wait_for(|waiting| *waiting < WAITING_MAX).await.map(drop) };
        let _later = tokio::time::timeout_at(ends_at.into(), few).await;
    }

    /// Takes an ended blob's directory away.
    pub fn take(&self, directory: &Path) {
        put_aside(directory, &self.gone);
        self.wake();
    }

    fn wake(&self) {
        // Whoever was woken and has not looked yet will see this, too.
        let _woken_already = self.wake.try_send(());
    }
}

/// Moves a directory aside. Its owner may have closed it, and one that is moved has to be open.
fn put_aside(directory: &Path, gone: &Path) {
    let _tried_all_the_same = fs::set_permissions(directory, fs::Permissions::from_mode(0o700));
    if let Err(cause) = fs::rename(directory, gone.join(unique())) {
        tracing::warn!(path = %directory.display(), %cause, "cannot move a working directory aside");
    }
}

fn unique() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}

/// Empties the directory whenever it is woken, and now and then, until nobody is there to wake it.
fn remove(gone: &Path, woken: &Receiver<()>, count: &watch::Sender<usize>) {
    loop {
        let woken = woken.recv_timeout(AGAIN);
        if let Err(cause) = empty(gone, |left| _ = count.send_replace(left)) {
            tracing::warn!(path = %gone.display(), %cause, "cannot remove all that a native blob left; trying again");
        }
        if woken == Err(RecvTimeoutError::Disconnected) {
            return;
        }
    }
}

/// Removes all that is in a directory, and tells now and then how much is left at its top.
///
/// # Errors
/// What is left cannot be removed.
pub fn empty(directory: &Path, told: impl Fn(usize)) -> io::Result<()> {
    let top = rustix::fs::open(directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    loop {
        let (mut left, mut progress, mut failed) = (0, false, None);
        for entry in Dir::read_from(&top)? {
            let mut next = Some(entry?.file_name().to_owned()).filter(|name| !is_dots(name));
            // What is moved up follows at once: down a chain of directories, without going down.
            while let Some(name) = next.take() {
                match clear(top.as_fd(), &name) {
                    Ok(moved) => next = moved,
                    Err(Errno::NOENT) => continue,
                    Err(cause) => failed = Some(cause),
                }
                match rustix::fs::unlinkat(&top, &name, AtFlags::REMOVEDIR) {
                    Ok(()) | Err(Errno::NOENT) => progress = true,
                    Err(_) => left += 1,
                }
            }
        }
        told(left);
        match failed {
            _ if progress && left == 0 => {}
            _ if progress => thread::sleep(PAUSE),
            Some(cause) => return Err(cause.into()),
            None if left > 0 => return Err(io::Error::other("something is put there again and again")),
            None => return Ok(()),
        }
    }
}

/// Unlinks what is directly in a directory of the top, and moves up what cannot be: the last of it is answered. A file at the top
/// is unlinked itself.
fn clear(top: BorrowedFd<'_>, name: &CStr) -> Result<Option<CString>, Errno> {
    if !is_directory(&rustix::fs::statat(top, name, AtFlags::SYMLINK_NOFOLLOW)?) {
        rustix::fs::unlinkat(top, name, AtFlags::empty())?;
        return Ok(None);
    }
    // As its owner left it nobody may be able to look into it.
    rustix::fs::chmodat(top, name, Mode::RWXU, AtFlags::empty())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(top, name, flags, Mode::empty())?;
    let mut moved = None;
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if is_dots(name) {
            continue;
        }
        match rustix::fs::unlinkat(&directory, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => {}
            ended => {
                ended?;
                continue;
            }
        }
        if rustix::fs::unlinkat(&directory, name, AtFlags::REMOVEDIR).is_err() {
            let _opened_to_be_moved = rustix::fs::chmodat(&directory, name, Mode::RWXU, AtFlags::empty());
            let up = CString::new(unique()).expect("hexadecimal digits have no zero byte");
            rustix::fs::renameat(&directory, name, top, &up)?;
            moved = Some(up);
        }
    }
    Ok(moved)
}

/// Whether a name is that of the directory itself, or of the one that it is in.
fn is_dots(name: &CStr) -> bool {
    name == c"." || name == c".."
}

fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a chain of directories, each with a file, deeper than what a path may name.
    fn chain(root: &Path, depth: usize) {
        let mut at = rustix::fs::open(root, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..depth {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            drop(rustix::fs::openat(&at, "f", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap());
            at = rustix::fs::openat(&at, "d", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
    }

    #[test]
    fn a_tree_is_removed_however_deep_wide_and_closed_it_is_and_what_it_points_to_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (gone, kept) = (folder.path().join("gone"), folder.path().join("kept"));
        fs::create_dir_all(gone.join("closed/inside/more")).unwrap();
        fs::create_dir(gone.join("deep")).unwrap();
        fs::write(&kept, "precious").unwrap();
        std::os::unix::fs::symlink(&kept, gone.join("link")).unwrap();
        std::os::unix::fs::symlink(folder.path(), gone.join("closed/inside/up")).unwrap();
        for closed in ["closed/inside/more", "closed/inside", "closed"] {
            fs::set_permissions(gone.join(closed), fs::Permissions::from_mode(0o000)).unwrap();
        }
        chain(&gone.join("deep"), 3_000);
        for number in 0..500 {
            fs::create_dir(gone.join(format!("deep/{number}"))).unwrap();
        }
        // On a stack where whoever goes down does not come back.
        let small = thread::Builder::new().stack_size(128 * 1024);
        let removed = gone.clone();
        small.spawn(move || empty(&removed, |_| {}).unwrap()).unwrap().join().unwrap();
        assert_eq!(fs::read_dir(&gone).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(&kept).unwrap(), "precious");
    }
}
