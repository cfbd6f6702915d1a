//! The key that seals cached code: given by the operator, or made once and kept beside what it seals.

use std::{
    fs::Metadata,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use aws_lc_rs::rand;
use zeroize::Zeroizing;

use super::{
    DiskFault,
    directory::{Directory, Rejection},
};

/// Bytes of a key that the cache makes, and the fewest of one that it is given.
const KEY_BYTES: usize = 32;
/// Most bytes of a given key.
const KEY_BYTES_MAX: u64 = 4096;
/// What would let others put a key of theirs into the file.
const OTHERS_WRITE: u32 = 0o022;
/// The permissions in a mode.
const PERMISSIONS: u32 = 0o7777;
/// The user whose files are as good as one's own.
const ROOT: u32 = 0;
/// The file of the own key.
const NAME: &str = "key";

/// A key; shown nowhere, wiped when dropped.
pub type Key = Zeroizing<Vec<u8>>;

/// Reads the operator's key.
pub fn given(file: &Path) -> Result<Key, DiskFault> {
    let fault = |cause| DiskFault { what: "cannot use the key", path: file.to_owned(), cause };
    let opened = proto::files::open(file).map_err(fault)?;
    let metadata = opened.metadata().map_err(fault)?;
    only_ours(&metadata).map_err(fault)?;
    let size = metadata.len();
    if size > KEY_BYTES_MAX {
        return Err(fault(io::Error::other(format!("{size} bytes; a key has at most {KEY_BYTES_MAX}"))));
    }
    let mut key = Zeroizing::new(Vec::with_capacity(KEY_BYTES_MAX as usize));
    opened.take(KEY_BYTES_MAX).read_to_end(&mut key).map_err(fault)?;
    if key.len() < KEY_BYTES {
        return Err(fault(io::Error::other(format!("{} bytes; a key has at least {KEY_BYTES}", key.len()))));
    }
    Ok(key)
}

/// Whoever can choose the key can seal code of theirs.
fn only_ours(file: &Metadata) -> io::Result<()> {
    let (mode, owner, own) = (file.mode() & PERMISSIONS, file.uid(), rustix::process::geteuid().as_raw());
    if owner != own && owner != ROOT {
        let text = format!("it belongs to user {owner}; a key is this service's user's ({own}) or root's");
        return Err(io::Error::other(text));
    }
    if mode & OTHERS_WRITE != 0 {
        return Err(io::Error::other(format!("its mode is {mode:04o}, so others can write it: chmod go-w")));
    }
    Ok(())
}

/// Reads the own key, or makes one. A key that others could have written or read is replaced: what it sealed counts no more.
pub fn own(directory: &Directory) -> Result<Key, DiskFault> {
    let spoiled = match directory.read(NAME, KEY_BYTES as u64) {
        Ok(key) if key.len() == KEY_BYTES => return Ok(Zeroizing::new(key)),
        Ok(_) => Some(Rejection::Size),
        Err(Rejection::Absent) => None,
        Err(rejection) => Some(rejection),
    };
    if spoiled.is_some() {
        directory.remove(NAME);
    }
    let mut key = Zeroizing::new(vec![0; KEY_BYTES]);
    let fault = |cause| DiskFault { what: "cannot make the key", path: directory.path().join(NAME), cause };
    rand::fill(&mut key).map_err(|_| fault(io::Error::other("the system gives no random bytes")))?;
    match directory.create(NAME, &key) {
        Ok(()) => {
            if let Some(why) = spoiled {
                tell_replaced(directory, why);
            }
            Ok(key)
        }
        // Another process was faster.
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => match directory.read(NAME, KEY_BYTES as u64) {
            Ok(key) if key.len() == KEY_BYTES => Ok(Zeroizing::new(key)),
            Ok(_) | Err(_) => Err(fault(cause)),
        },
        Err(cause) => Err(fault(cause)),
    }
}

fn tell_replaced(directory: &Directory, why: Rejection) {
    tracing::warn!(path = %directory.path().join(NAME).display(), %why, "replaced the cache's key; all is compiled again");
    metrics::counter!("areev_sandbox_cache_rejections_total", "why" => why.name()).increment(1);
}
