//! Integration tests of the runner's parts: one binary, one topic a module.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod cancel;
mod catalogue_api;
mod catalogue_bad;
mod catalogue_blobs;
mod catalogue_execution;
mod catalogue_grains;
mod catalogue_host;
mod catalogue_hostile;
mod catalogue_store;
mod dispatch;
mod journal;
mod lease_kept;
mod lease_lost;
mod recovery;
mod settings;
mod vectors;
mod wide_fork;
