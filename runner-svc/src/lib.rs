//! The runner service: runs plans durably.

pub mod journal;
