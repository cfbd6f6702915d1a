//! What the broker costs: a brokered call against the same request sent directly by the same client, in plain text and over TLS;
//! the hop to a broker in another process; the decision alone; calls a second; ten thousand grants against ten; a slow upstream
//! beside a fast one. What is compared is measured in turns, each time in another order, so that a busy machine is busy for all.
//! Prints numbers, ratios and whether they meet their targets; ends with a failure where one is missed.
//!
//! `cargo bench -p broker-svc` runs it; `AREEV_BENCH_CALLS` changes the number of calls.

#![allow(clippy::unwrap_used, reason = "a bench may panic")]
#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

#[path = "../../tests/it/upstream.rs"]
#[allow(dead_code, reason = "tests use the rest of it")]
mod upstream;

mod crowd;
mod here;
mod hop;
mod rules;
mod turns;

use std::process::ExitCode;

use turns::Targets;
use upstream::{Upstream, ok};

/// Calls of each kind, one after the other.
const CALLS: usize = 2000;
/// Bytes of the upstream's answer.
const ANSWER_BYTES: usize = 1024;

fn main() -> ExitCode {
    proto::tls::install_crypto_provider();
    // The shape in which the services run: callers, broker and the floor that they are held against wait alike.
    let workers = std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2));
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(workers).enable_all().build().unwrap();
    if let Some(address) = hop::asked_to_echo() {
        runtime.block_on(hop::echo(&address));
        return ExitCode::SUCCESS;
    }
    let calls = std::env::var("AREEV_BENCH_CALLS").map_or(CALLS, |text| text.parse().unwrap());
    // On a worker, as every call of a service is; the thread that waits here would have to be woken for each.
    runtime.block_on(runtime.spawn(all(calls))).unwrap()
}

async fn all(calls: usize) -> ExitCode {
    let mut targets = Targets::default();
    let body = "x".repeat(ANSWER_BYTES);
    let said = body.clone();
    let plain = Upstream::plain(move |_, out| ok(out, &said));
    let tls = Upstream::tls(move |_, out| ok(out, &body));
    for (name, url) in [("plain", plain.http()), ("TLS", tls.https("127.0.0.1"))] {
        hop::against(name, &url, calls, &mut targets).await;
    }
    rules::decisions();
    rules::many_grants(&plain.http(), calls, &mut targets).await;
    crowd::rates(&plain.http(), calls).await;
    crowd::slow_beside_fast(&plain.http(), &mut targets).await;
    targets.judge()
}
