//! The three services as real processes, from the outside.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod artifacts;
mod asks;
mod backup;
mod bad_input;
mod blobs;
mod broker_replicas;
mod cancel;
mod catalogue;
mod codes;
mod control;
mod crash_matrix;
mod demo;
mod disk_trouble;
mod durability;
mod durability_disk;
mod durability_wave;
mod egress;
mod evidence;
mod evidence_again;
mod evidence_children;
mod fan_out;
mod fork;
mod guests;
mod languages;
mod models;
mod native;
mod numbers;
mod outages;
mod people;
mod plans;
mod readme;
mod reflection;
mod refusals;
mod schemas;
mod secrecy;
mod seed;
mod settings;
mod sizes;
mod subgraph_crashes;
mod subgraphs;
mod tls;
mod tools;
mod tour;
mod watch;
