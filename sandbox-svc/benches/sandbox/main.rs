//! What a call costs, against what it cannot cost less than; and what hostile guests cost somebody else. Prints ratios, and
//! fails when one is past its target.
//!
//! `cargo bench -p sandbox-svc` runs it, in two to three minutes once it is built; names behind `--` run parts of it: `purity`,
//! `warm`, `code`, `compiling`, `hostile`.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]
#![allow(clippy::unwrap_used, reason = "a bench may panic")]

mod beside;
mod code;
mod compiling;
mod figures;
mod hostile;
mod warm;

#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../../tests/it/attacks.rs"]
mod attacks;
#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../../tests/it/bombs.rs"]
mod bombs;
#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../../tests/it/caller.rs"]
mod caller;
#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../../tests/it/guests.rs"]
mod guests;
#[allow(dead_code, reason = "the tests use all of it")]
#[path = "../../tests/it/process.rs"]
mod process;
#[allow(dead_code, unused_imports, reason = "the tests use all of it")]
#[path = "../../tests/it/purity.rs"]
mod purity;

use std::process::ExitCode;

use figures::{Targets, title};

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut targets = Targets::default();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    println!("{cores} cores; what ran before and beside (load over 1, 5 and 15 minutes): {}", load.trim());
    println!("sides that are compared are measured in turns, so that what else the machine does is in both");
    let asked: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let part = |name: &str| {
        let asked = asked.is_empty() || asked.iter().any(|asked| asked == name);
        asked.then(|| title(name)).is_some()
    };
    runtime.block_on(async {
        if part("purity") {
            purity_holds().await;
        }
        if part("warm") {
            warm::bench(&mut targets).await;
        }
        if part("code") {
            code::bench(&mut targets).await;
        }
        if part("compiling") {
            compiling::bench(&mut targets).await;
        }
        if part("hostile") {
            hostile::bench(&mut targets).await;
        }
    });
    if targets.judge() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A release build gives the bytes and the fuel that a debug build was held to.
async fn purity_holds() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let processes = [process::Process::start(one.path(), &[]).await, process::Process::start(two.path(), &[]).await];
    assert_eq!(purity::found(&processes).await, purity::golden());
    println!("{:<58} {:>9}", "pure modules, a thousand runs each, as written down", "yes");
}
