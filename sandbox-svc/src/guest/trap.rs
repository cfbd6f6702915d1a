//! What the engine's errors mean: a readable failure of the guest, or a fault of the service.

use std::fmt::{self, Write as _};

use wasmtime::{PoolConcurrencyLimitError, Trap, WasmBacktrace};

use super::{EngineFault, Host};
use crate::outcome::{Failure, FailureKind};

/// Frames of a guest's stack that a text names.
const FRAMES_MAX: usize = 8;
/// Longest function name that is repeated, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Longest name that is read as one of Rust's, in bytes.
const MANGLED_BYTES_MAX: usize = 1024;

/// Sorts an error of the engine.
pub fn failure_of(error: &wasmtime::Error, host: &Host) -> Result<Failure, EngineFault> {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return Ok(failure.clone());
    }
    if error.downcast_ref::<PoolConcurrencyLimitError>().is_some() {
        return Err(EngineFault(format!("{error:#}")));
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => Ok(Failure::out_of_fuel(host.fuel_limit)),
        Some(Trap::Interrupt) => Ok(Failure::timeout("guest", host.ends_at.saturating_duration_since(host.started))),
        Some(trap) => {
            let what = trap.to_string();
            let what = what.strip_prefix("wasm trap: ").unwrap_or(&what);
            Ok(Failure::new(FailureKind::Trap, format!("guest trapped: {what}{}", stack(error))))
        }
        None => Err(EngineFault(format!("{error:#}"))),
    }
}

/// Where the guest was, in its own terms: function names or numbers and offsets into the module.
fn stack(error: &wasmtime::Error) -> String {
    let mut text = String::new();
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else { return text };
    for (number, frame) in backtrace.frames().iter().take(FRAMES_MAX).enumerate() {
        let name = frame.func_name().map_or_else(|| format!("function {}", frame.func_index()), shown);
        let begin = if number == 0 { "; in " } else { " < " };
        let _infallible = write!(text, "{begin}{name}");
        if let Some(offset) = frame.module_offset() {
            let _infallible = write!(text, " at {offset:#x}");
        }
    }
    text
}

fn shown(name: &str) -> String {
    let mut name: String = written(name).escape_debug().collect();
    proto::fault::cut(&mut name, NAME_BYTES_MAX);
    name
}

/// A name as its author wrote it, where a compiler of Rust has spelled it otherwise.
fn written(name: &str) -> String {
    let symbol = if name.len() <= MANGLED_BYTES_MAX { rustc_demangle::try_demangle(name).ok() } else { None };
    let Some(symbol) = symbol else { return name.to_owned() };
    let mut begun = Beginning(String::new());
    let _ends_where_full = write!(begun, "{symbol:#}");
    begun.0
}

/// Takes a text until it is longer than what is shown of it: a name of a few bytes can stand for one of megabytes.
struct Beginning(String);

impl fmt::Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() > NAME_BYTES_MAX {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_named_as_their_authors_wrote_them() {
        assert_eq!(shown("_RNvCs4HteUbkQnDn_4bill3add"), "bill::add");
        assert_eq!(shown("_ZN4bill3add17h0123456789abcdefE"), "bill::add");
        assert_eq!(shown("run"), "run");
        assert_eq!(shown("a\nb"), "a\\nb");
    }

    #[test]
    fn a_name_that_stands_for_a_longer_one_is_cut_and_one_that_is_none_is_left() {
        // A pair of units, a pair of such pairs, and so on: each names where the one before began.
        let mut name = "INvC1a1bTuuE".to_owned();
        let mut last = "INvC1a1b".len();
        for _ in 0..30 {
            let (begin, digits) = (name.len(), [(last - 1) / 62, (last - 1) % 62].map(digit));
            name.push_str(&format!("TB{0}{1}_B{0}{1}_E", digits[0], digits[1]));
            last = begin;
        }
        let shown_of_many = shown(&format!("_R{name}E"));
        assert!(shown_of_many.starts_with("a::b::<((), ()), (((), ()), ((), ()))"), "{shown_of_many}");
        assert!(shown_of_many.len() <= NAME_BYTES_MAX, "{shown_of_many}");
        let broken = "_RNvC4bill";
        assert_eq!(shown(broken), broken);
        let long = format!("_RNvC4bill{}{}", 2000, "a".repeat(2000));
        assert!(shown(&long).starts_with("_RNvC4bill2000a") && shown(&long).len() <= NAME_BYTES_MAX);
    }

    fn digit(value: usize) -> char {
        char::from(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[value])
    }
}
