//! The sandbox over gRPC, and its one-shot form: ABI, hostile guests, exchanges, capacity, native blobs.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod abi;
mod broker;
mod capacity;
mod exchanges;
mod guests;
mod hostile;
mod modules;
mod native;
mod one_shot;
mod rig;
mod secrecy;
