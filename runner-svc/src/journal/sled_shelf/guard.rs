//! sled's errors and panics, turned into ours.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::journal::error::{Storage, Trouble};

/// Turns sled's errors and panics into ours.
pub(super) fn guarded<T>(what: &'static str, act: impl FnOnce() -> sled::Result<T>) -> Result<T, Storage> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(sled::Error::Io(error))) => Err(failed(what, &error)),
        Ok(Err(error)) => Err(Storage::new(trouble_in(what), format!("{what}: {error}"))),
        Err(panic) => Err(Storage::new(trouble_in(what), format!("{what}: {}", text_of(&*panic)))),
    }
}

fn trouble_in(what: &str) -> Trouble {
    if what == "reading" { Trouble::Read } else { Trouble::Write }
}

pub(super) fn failed(what: &str, error: &io::Error) -> Storage {
    let kind = match Trouble::of(error) {
        Trouble::Write => trouble_in(what),
        other => other,
    };
    match kind {
        // sled hands on a full disk's error as its debug form; the kind reads better.
        Trouble::DiskFull => Storage::new(kind, format!("{what}: {}", error.kind())),
        Trouble::Write | Trouble::Read | Trouble::Closed => Storage::new(kind, format!("{what}: {error}")),
    }
}

/// What a panic said, cut to 256 bytes.
pub(super) fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("the store stopped without a reason").chars().take(256).collect()
}
