//! What a run of 1000 nodes takes of disk and memory, and what large results take of the disk. Ends with 1 over a target.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use e2e::sizes::{Chain, Large};

fn main() -> Result<ExitCode> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("a runtime")?.block_on(bench())
}

async fn bench() -> Result<ExitCode> {
    let chain = Chain::measure().await?;
    println!("{chain}");
    let large = Large::measure().await?;
    println!("{large}");
    Ok(if chain.is_small() && large.is_small() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
