//! The runner service: runs plans durably.

pub mod access;
pub mod api;
pub mod catalogue;
pub mod dispatch;
pub mod journal;
