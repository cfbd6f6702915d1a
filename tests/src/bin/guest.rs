//! `cargo guest`: a tool author's whole way, from the source to the result of a run.

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use e2e::tour::{self, Options};

/// Goes a tool author's whole way on this machine: write a tool, build it as a module, try it, pin it, run it in a plan.
///
/// The services are real processes on free loopback ports with a temporary directory that is gone afterwards.
#[derive(Parser)]
#[command(name = "cargo guest", bin_name = "cargo guest", max_term_width = 110)]
struct Flags {
    /// Where to write the tool's crate, and leave it; without it in a temporary directory
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// End with `guest: ok` as the last line when all is as it should be
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    tour::main(Options { directory: flags.directory, check: flags.check })
}
