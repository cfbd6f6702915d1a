//! The pure runtime: the same bytes and the same fuel on every run, in every process, in every build.

use std::fmt::Write as _;

use content_digest::Digest;
use proto::sandbox::v1::{Limits, Runtime, Start};

use crate::{caller::start, guests, process::Process};

const RUNS: usize = 1_000;
/// What each module makes of each input, and what fuel it takes: written once, the same in debug and release builds and on
/// every machine: the benchmark holds a release build to it. Renewed with `AREEV_RENEW_GOLDENS=1`.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/purity.txt");

/// Modules whose results could differ if anything could: floats, growing memory, hashing, traps, exhausted fuel.
fn subjects() -> Vec<(&'static str, String, &'static str)> {
    vec![
        ("echo", guests::echo(), r#"{"a":[1,2.50,"é"],"b":null}"#),
        ("floats", guests::floats(), "null"),
        ("mixing", guests::mixing(), r#"{"seed":12345678901234567890}"#),
        ("growing", guests::growing(), "null"),
        ("trapping", guests::pure("(drop (i32.div_s (i32.const 1) (i32.const 0)))"), "null"),
        ("endless", guests::endless(), "null"),
    ]
}

/// Runs each module so often in all and says what came of it; fails when one run differs from another.
pub async fn found(processes: &[Process]) -> String {
    let mut found = String::new();
    for (name, wat, input) in subjects() {
        let module = wat::parse_str(&wat).unwrap();
        let mut first = None;
        for process in processes {
            let uri = process.caller.put(&module).await;
            for run in 0..RUNS / processes.len() {
                let limits = Some(Limits { fuel: Some(2_000_000), ..Limits::default() });
                let message = Start { limits, ..start(&uri, Runtime::Wasm32Areev, input) };
                let (ended, _) = process.caller.execute(message).await.unwrap();
                let seen = (ended.kind(), ended.output_json, ended.text, ended.fuel_used, ended.peak_memory_bytes);
                assert_eq!(first.get_or_insert_with(|| seen.clone()), &seen, "{name}, run {run}");
            }
        }
        let (kind, output, text, fuel, memory) = first.unwrap();
        let digest = Digest::of(format!("{output}{text}")).to_hex();
        let _infallible = writeln!(found, "{name} {} {digest} fuel {fuel} memory {memory}", kind.as_str_name());
    }
    found
}

/// What is written down.
pub fn golden() -> String {
    std::fs::read_to_string(GOLDEN).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn w18_a_thousand_runs_in_two_processes_give_the_bytes_and_the_fuel_that_are_written_down() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let found = found(&[Process::start(one.path(), &[]).await, Process::start(two.path(), &[]).await]).await;
    if std::env::var_os("AREEV_RENEW_GOLDENS").is_some() {
        std::fs::write(GOLDEN, &found).unwrap();
    }
    assert_eq!(found, golden());
}
