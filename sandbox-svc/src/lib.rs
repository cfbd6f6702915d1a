//! sandbox-svc: runs content-addressed code, one call per effect, with nothing but its input.
//!
//! In reading order: what is configured, how the parts are put together, the RPCs; then an effect's way through the sandbox.

pub mod app;
pub mod config;
pub mod error;

pub mod api;

pub mod effect;
pub mod sandbox;

pub mod admission;
pub mod background;
pub mod module_cache;
pub mod priority;

pub mod artefact;
pub mod compile;
pub mod engine;
pub mod imports;
pub mod inspect;

pub mod guest;
pub mod json;
pub mod limits;
pub mod outcome;
pub mod runtime;

pub mod blob;
pub mod broker_client;
pub mod egress_http;
pub mod exchange;
pub mod fetch;
pub mod outbound;
pub mod relay;

pub mod native;

pub mod executions;

pub mod exec;
pub mod jail;
