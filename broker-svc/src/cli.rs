//! What the program does besides serving: check a file, explain a decision. Neither needs a network, a secret or a running broker.

pub mod check;
pub mod explain;

use std::path::PathBuf;

/// Words before which nothing is served.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Check a file without a start, a network or a secret: every mistake with its line, and what is probably not meant
    Check {
        /// The file
        #[arg(value_name = "CONFIG")]
        file: PathBuf,
    },
    /// Say which rule of --config (and of the flags before this word) allows or denies a call, and why
    Explain(explain::Question),
}

/// What a person is shown, and whether all is well.
pub struct Shown {
    /// Lines for standard output.
    pub text: String,
    /// Whether the exit code is 0.
    pub good: bool,
}
