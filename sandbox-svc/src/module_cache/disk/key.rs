//! The key that seals cached code: given by the operator, or made once and kept beside what it seals.

use std::{
    io::{self, Read as _},
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
/// The file of the own key.
const NAME: &str = "key";

/// A key; shown nowhere, wiped when dropped.
pub type Key = Zeroizing<Vec<u8>>;

/// Reads the operator's key.
pub fn given(file: &Path) -> Result<Key, DiskFault> {
    let fault = |cause| DiskFault { what: "cannot use the key", path: file.to_owned(), cause };
    let opened = proto::files::open(file).map_err(fault)?;
    let size = opened.metadata().map_err(fault)?.len();
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

/// Reads the own key, or makes one. A key that others could have written or read is replaced: what it sealed counts no more.
pub fn own(directory: &Directory) -> Result<Key, DiskFault> {
    match directory.read(NAME, KEY_BYTES as u64) {
        Ok(key) if key.len() == KEY_BYTES => return Ok(Zeroizing::new(key)),
        Err(Rejection::Absent) => {}
        Ok(_) => replace(directory, Rejection::Size),
        Err(rejection) => replace(directory, rejection),
    }
    let mut key = Zeroizing::new(vec![0; KEY_BYTES]);
    let fault = |cause| DiskFault { what: "cannot make the key", path: directory.path().join(NAME), cause };
    rand::fill(&mut key).map_err(|_| fault(io::Error::other("the system gives no random bytes")))?;
    match directory.create(NAME, &key) {
        Ok(()) => Ok(key),
        // Another process was faster.
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => match directory.read(NAME, KEY_BYTES as u64) {
            Ok(key) if key.len() == KEY_BYTES => Ok(Zeroizing::new(key)),
            Ok(_) | Err(_) => Err(fault(cause)),
        },
        Err(cause) => Err(fault(cause)),
    }
}

fn replace(directory: &Directory, why: Rejection) {
    tracing::warn!(path = %directory.path().join(NAME).display(), %why, "replaced the cache's key; all is compiled again");
    metrics::counter!("areev_sandbox_cache_rejections_total", "why" => why.name()).increment(1);
    directory.remove(NAME);
}
