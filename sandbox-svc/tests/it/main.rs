//! The sandbox over gRPC, and its one-shot form: ABI, hostile guests, exchanges, capacity, native blobs.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod abi;
mod attacks;
mod blobs;
mod bombs;
mod broker;
mod cache;
mod caller;
mod capacity;
mod compiling;
mod connection;
mod exchanges;
mod flood;
mod guests;
mod hostile;
mod memory;
mod modules;
mod native;
mod native_door;
mod native_hostile;
mod native_remains;
mod one_shot;
mod overload;
mod process;
mod purity;
mod relayed;
mod rig;
mod secrecy;
mod settings;
