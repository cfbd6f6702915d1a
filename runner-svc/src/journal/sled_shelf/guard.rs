//! sled's errors and panics, turned into ours.

use std::{
    cell::Cell,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Once,
};

use crate::journal::error::{Storage, Trouble};

thread_local! {
    /// Whether a panic of this thread is caught and told as an error.
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}
static HOOKED: Once = Once::new();

/// Catches sled's panics, which say no more than that a file is damaged: nobody needs to see their backtraces.
pub(super) fn caught<T>(act: impl FnOnce() -> T) -> Result<T, String> {
    HOOKED.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !CAUGHT.get() {
                others(panic);
            }
        }));
    });
    let before = CAUGHT.replace(true);
    let done = catch_unwind(AssertUnwindSafe(act));
    CAUGHT.set(before);
    done.map_err(|panic| text_of(&*panic))
}

/// Turns sled's errors and panics into ours.
pub(super) fn guarded<T>(what: &'static str, act: impl FnOnce() -> sled::Result<T>) -> Result<T, Storage> {
    match caught(act) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(sled::Error::Io(error))) => Err(failed(what, &error)),
        Ok(Err(error)) => Err(Storage::new(damage_in(what), format!("{what}: {}", said_by(&error)))),
        Err(panic) => Err(Storage::new(damage_in(what), format!("{what}: {panic}"))),
    }
}

/// sled's words, in the singular: its own text ends in a backtrace that is empty.
pub(super) fn said_by(error: &sled::Error) -> String {
    match error {
        sled::Error::Corruption { at: Some(at), .. } => {
            format!("the bytes of its file at {at:?} are not what was written")
        }
        sled::Error::Corruption { at: None, .. } => "bytes of its file are not what was written".to_owned(),
        other => other.to_string(),
    }
}

fn damage_in(what: &str) -> Trouble {
    if what == "reading" { Trouble::Corrupt } else { Trouble::Write }
}

fn trouble_in(what: &str) -> Trouble {
    if what == "reading" { Trouble::Read } else { Trouble::Write }
}

pub(super) fn failed(what: &str, error: &io::Error) -> Storage {
    let kind = match Trouble::of(error) {
        // It points behind the end of its file.
        Trouble::Write if error.kind() == io::ErrorKind::UnexpectedEof => damage_in(what),
        Trouble::Write => trouble_in(what),
        other => other,
    };
    match kind {
        // sled hands on a full disk's error as its debug form; the kind reads better.
        Trouble::DiskFull => Storage::new(kind, format!("{what}: {}", error.kind())),
        Trouble::Write | Trouble::Read | Trouble::Corrupt | Trouble::Closed => {
            Storage::new(kind, format!("{what}: {error}"))
        }
    }
}

/// What a panic said, cut to 256 bytes.
fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("the store stopped without a reason").chars().take(256).collect()
}
