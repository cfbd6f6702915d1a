//! What the engine's errors mean: a readable failure of the guest, or a fault of the service.

use std::fmt::Write as _;

use wasmtime::{PoolConcurrencyLimitError, Trap, WasmBacktrace};

use super::{EngineFault, Host};
use crate::outcome::{Failure, FailureKind};

/// Frames of a guest's stack that a text names.
const FRAMES_MAX: usize = 8;
/// Longest function name that is repeated, in bytes.
const NAME_BYTES_MAX: usize = 64;

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
    let mut name: String = name.escape_debug().collect();
    proto::fault::cut(&mut name, NAME_BYTES_MAX);
    name
}
