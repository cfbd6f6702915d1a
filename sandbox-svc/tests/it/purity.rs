//! The pure runtime: the same bytes and the same fuel on every run, in every process, in every build.

use std::fmt::Write as _;

use content_digest::Digest;
use proto::sandbox::v1::{Limits, Runtime, Start};

use crate::{caller::start, guests, process::Process};

const RUNS: usize = 1_000;
/// What each module makes of each input, and what fuel it takes: written once, the same in debug and release builds and on
/// every machine: this test holds a debug build to it, and the benchmark a release build. Renewed with `AREEV_RENEW_GOLDENS=1`.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/purity.txt");

/// Where the reference guests are.
const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/guests/wasm");
const LANGUAGES: [&str; 4] = ["rust", "c", "zig", "assemblyscript"];
const ECHOED: &str = r#"{"a":[1,2.50,"é"],"b":null}"#;
const INVOICE: &str = r#"{"lines":[{"cents":1250,"text":"one"},{"cents":99,"text":"two"}]}"#;

/// Modules whose results could differ if anything could: floats, growing memory, hashing, traps, exhausted fuel; and the
/// reference guests, as their compilers made them.
fn subjects() -> Vec<(String, Vec<u8>, &'static str)> {
    let texts = [
        ("echo", guests::echo(), ECHOED),
        ("floats", guests::floats(), "null"),
        ("mixing", guests::mixing(), r#"{"seed":12345678901234567890}"#),
        ("growing", guests::growing(), "null"),
        ("trapping", guests::pure("(drop (i32.div_s (i32.const 1) (i32.const 0)))"), "null"),
        ("endless", guests::endless(), "null"),
    ];
    let texts = texts.map(|(name, wat, input)| (name.to_owned(), wat::parse_str(wat).unwrap(), input));
    let tools =
        LANGUAGES.iter().flat_map(|language| [("echo", ECHOED), ("transform", INVOICE)].map(|tool| (language, tool)));
    let reference = tools.map(|(language, (tool, input))| {
        let name = format!("{language}/{tool}");
        let module = std::fs::read(format!("{REFERENCE}/{name}.wasm")).unwrap();
        (name, module, input)
    });
    texts.into_iter().chain(reference).collect()
}

/// Runs each module so often in all and says what came of it; fails when one run differs from another.
pub async fn found(processes: &[Process]) -> String {
    let mut found = String::new();
    for (name, module, input) in subjects() {
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
