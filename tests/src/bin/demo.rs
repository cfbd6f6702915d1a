//! `cargo demo`: the three services as they are, one plan from its start to its evidence.

use std::process::ExitCode;

use clap::Parser;
use e2e::demo::{self, Options};

/// Builds and starts the three services on this machine, and runs a plan whose tools are code.
///
/// Everything is local: three processes on free loopback ports, a small HTTP service that asks for a credential, and a
/// temporary directory that is gone afterwards. Nothing else is touched.
#[derive(Parser)]
#[command(name = "cargo demo", bin_name = "cargo demo", max_term_width = 110)]
struct Flags {
    /// End by itself, with exit code 0 and `demo: ok` as the last line when all is as it should be
    #[arg(long)]
    check: bool,
    /// Leave the services running until Ctrl-C, to repeat the steps with grpcurl
    #[arg(long, conflicts_with = "check")]
    keep: bool,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    demo::main(Options { check: flags.check, keep: flags.keep })
}
