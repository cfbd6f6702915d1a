//! Writes a tool as a wasm module: a function from a typed input to a typed result, and nothing else to care for.
//!
//! ```
//! use areev_guest::Error;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Deserialize)]
//! struct Order {
//!     quantity: u32,
//!     cents: u32,
//! }
//!
//! #[derive(Serialize)]
//! struct Bill {
//!     total_cents: u32,
//! }
//!
//! areev_guest::tool!(bill);
//!
//! fn bill(order: Order) -> Result<Bill, Error> {
//!     let total = order.quantity.checked_mul(order.cents);
//!     Ok(Bill { total_cents: total.ok_or_else(|| Error::new("the total is over 42 million"))? })
//! }
//! ```
//!
//! Compiled for `wasm32-unknown-unknown` as a `cdylib`, that is a module of the runtime `wasm32-areev`: it has its input and
//! nothing else, so the same input gives the same result on every machine. A tool that calls [`Request::send`] is one of
//! `wasm32-areev-io`; one that calls [`blob_get`] also needs the declaration `{"blob": {"read": true}}`. What a tool does not
//! call is not imported.
//!
//! Off wasm (in `cargo test`) there is no host: a tool's function can be tested as it is, and what asks the host answers
//! [`CallError::NoReply`].

#![no_std]

extern crate alloc;

#[doc(hidden)]
pub mod abi;
mod base64;
mod blob;
mod entry;
mod error;
mod fetch;

pub use blob::blob_get;
pub use entry::{Input, Json, Output, answer};
pub use error::{CallError, Error};
pub use fetch::{Answer, Artifact, Request};

/// Makes a function the tool: `tool!(name)` for `fn name(input: I) -> Result<O, Error>`.
///
/// `I` is anything that implements `serde::Deserialize`, `O` anything that implements `serde::Serialize`; [`Json`] is a text
/// that is handed through as it is. Once a crate.
#[macro_export]
macro_rules! tool {
    ($tool:path) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            #[unsafe(no_mangle)]
            extern "C" fn run(pointer: *mut u8, length: usize) {
                $crate::abi::run(pointer, length, |input| $crate::answer(input, $tool));
            }
        };
    };
}
