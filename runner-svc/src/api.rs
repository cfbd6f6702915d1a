//! The gRPC services, one RPC a file.

pub mod catalog;
pub mod document;
pub mod refusal;
pub mod stamp;
