//! The broker from outside: real sockets that keep raw bytes, a scripted resolver, a canary secret.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod doors;
mod rig;
mod upstream;
mod wire;

mod addresses;
mod answers;
mod credentials;
mod headers;
mod policy;
mod process;
mod properties;
mod secrecy;
mod settings;
mod tokens;
mod urls;
