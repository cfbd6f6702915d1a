//! The core from outside: rules of scheduling, people, recovery, verification; properties; a golden journal.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod asks;
mod budgets;
mod cancel;
mod effects;
mod golden;
mod journal;
mod keys;
mod plans;
mod properties;
mod recovery;
mod refusals;
mod results;
mod scheduling;
mod sim;
mod verify;
