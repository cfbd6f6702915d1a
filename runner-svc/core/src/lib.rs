//! The pure core of the runner: plans, decisions, state.
//!
//! `Input → decide → Event → journal → apply → State → owed → Effect`: every arrow here is a pure function. Nothing in this
//! crate does I/O, reads a clock, draws a random number or iterates a hash map.

pub mod budget;
pub mod capability;
pub mod child;
pub mod condition;
pub mod decide;
mod document;
mod doubt;
pub mod effects;
pub mod entry;
pub mod event;
pub mod fan_out;
mod fit;
pub mod input;
pub mod key;
pub mod lineage;
pub mod manifest;
pub mod model;
pub mod outcome;
pub mod owed;
pub mod payload;
pub mod pinned;
pub mod plan;
pub mod reducer;
pub mod refusal;
pub mod reserve;
pub mod resolve;
pub mod retry;
pub mod run;
pub mod run_id;
pub mod schema;
pub mod shadow;
pub mod slips;
pub mod state;
pub mod text;
pub mod verify;
pub mod why;

pub use self::document::{STATE_BYTES_MAX, read_input};
