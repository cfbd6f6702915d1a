//! Makes outbound calls for tools: decides, attaches the secret, sends, and hands back a bounded, scrubbed answer.

// What is asked for.
pub mod headers;
pub mod method;
pub mod origin;
pub mod redirect;
pub mod target;

// What is allowed.
pub mod artifact;
pub mod capability;
pub mod decide;
pub mod destination;
pub mod policy;
pub mod refusal;

// What is secret.
pub mod credential;
pub mod scrub;

// Whose call it is, and what became of it.
pub mod audit;
pub mod token;
pub mod watchers;

// How it is made.
pub mod broker;
pub mod in_force;
pub mod pace;
pub mod resolve;
pub mod send;

// The service around it.
pub mod api;
pub mod app;
pub mod cli;
pub mod config;
pub mod egress_http;
pub mod error;
pub mod reload;
pub mod stamp;
