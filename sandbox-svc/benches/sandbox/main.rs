//! What a call costs, against what it cannot cost less than; and what hostile guests cost somebody else. Prints ratios, and
//! fails when one is past its target.
//!
//! `cargo bench -p sandbox-svc` runs it, in about a minute once it is built.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]
#![allow(clippy::unwrap_used, reason = "a bench may panic")]

mod code;
mod figures;
mod hostile;
mod warm;

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

use figures::Targets;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut targets = Targets::default();
    runtime.block_on(async {
        warm::bench(&mut targets).await;
        code::bench(&mut targets).await;
        hostile::bench(&mut targets).await;
    });
    targets.judge();
}
