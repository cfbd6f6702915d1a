//! The border to the host: three exports, three imports.

#[cfg(not(target_arch = "wasm32"))]
mod off_wasm;
#[cfg(target_arch = "wasm32")]
mod on_wasm;

#[cfg(not(target_arch = "wasm32"))]
pub use off_wasm::{blob_get, fetch};
#[cfg(target_arch = "wasm32")]
pub use on_wasm::{blob_get, fetch, run};
