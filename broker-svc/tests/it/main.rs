//! The broker from outside: real sockets that keep raw bytes, a scripted resolver, a canary secret.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod authorization_server;
mod door_bounds;
mod doors;
mod rig;
mod upstream;
mod wire;

mod addresses;
mod answers;
mod artifacts;
mod cases;
mod cli;
mod credentials;
mod crowds;
mod cut;
mod headers;
mod kinds;
mod memory;
mod minted;
mod mistakes;
mod policy;
mod process;
mod properties;
mod redirects;
mod reload;
mod secrecy;
mod settings;
mod sources;
mod tokens;
mod unread;
mod urls;
mod watching;
