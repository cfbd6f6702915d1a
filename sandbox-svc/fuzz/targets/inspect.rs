//! Any bytes through the look that is taken at a module before anything compiles it: a verdict, never a panic, and what is
//! accepted is within its bounds.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sandbox_svc::{imports, inspect::inspect, runtime::Runtime};

/// Most memory that a call may have.
const PAGES_MAX: u64 = 256;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(seen) = inspect(bytes, PAGES_MAX) {
        assert!(seen.memory_pages_min <= PAGES_MAX);
        let _verdict = imports::check_exports(&seen);
        let pure = imports::check_imports(&seen.imports, Runtime::Pure);
        let io = imports::check_imports(&seen.imports, Runtime::Io);
        assert!(pure.is_err() || io.is_ok(), "what the pure runtime links, the other one links too");
    }
});
