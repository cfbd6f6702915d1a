//! The gRPC services, one RPC a file.

pub mod catalog;
pub mod document;
mod namespace;
pub mod page;
pub mod refusal;
pub mod runner;
pub mod stamp;
