//! The runner service: runs plans durably.

pub mod access;
pub mod api;
pub mod app;
pub mod catalogue;
pub mod command;
pub mod config;
pub mod dispatch;
pub mod evidence;
pub mod families;
pub mod journal;
pub mod runs;
