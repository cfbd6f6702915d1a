//! The core from outside: rules of scheduling, people, recovery, verification; properties; a golden journal.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::print_stdout, reason = "a test says which seeds it plays")]

mod against_model;
mod asks;
mod backoff;
mod budgets;
mod cancel;
mod dialogues;
mod dice;
mod doubt;
mod driving;
mod effects;
mod fan_out;
mod fan_out_properties;
mod fork;
mod generated;
mod golden;
mod journal;
mod keys;
mod metered;
mod model;
mod models;
mod pause;
mod plans;
mod properties;
mod recovery;
mod refusals;
mod results;
mod scheduling;
mod schemas;
mod shadow;
mod sim;
mod strict;
mod subgraph_gates;
mod subgraphs;
mod verify;
