//! Warm calls: through the service, in the process itself, of a small and a large module, by one caller and by many.

use std::{
    fmt::Write as _,
    sync::Arc,
    time::{Duration, Instant},
};

use proto::sandbox::v1::{OutcomeKind, Runtime, Start};
use sandbox_svc::{
    engine::Engine,
    guest::{self, Gauge, Job, Linked},
    limits::Limits,
    module_cache::build_in_process,
    runtime,
};
use tokio::sync::mpsc;

use crate::{
    caller::{Caller, start},
    figures::{Targets, Times, of, ratio, time},
    guests,
    process::Process,
};

const CALLS: usize = 5_000;
const ROUNDS: usize = 10;
/// How long each number of callers calls.
const THROUGHPUT: Duration = Duration::from_secs(3);
const INPUT: &str = r#"{"lines":[{"cents":1250,"text":"one"},{"cents":99,"text":"two"}]}"#;

pub async fn bench(targets: &mut Targets) {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), &["--max-concurrent", "64"]).await;
    let (small, large) = (small(), large());
    println!("small module {} bytes, large module {} bytes", small.len(), large.len());
    let [served, served_large, bare, bare_large] = in_turns(&process.caller, [&small, &large]).await;
    time("bare pooled call in the process, median", bare.median());
    time("warm call through gRPC, median", served.median());
    ratio("warm call through gRPC / bare pooled call", of(served.median(), bare.median()));
    time("warm call of the large module through gRPC, median", served_large.median());
    ratio("large module / small module, bare", of(bare_large.median(), bare.median()));
    targets.at_most("large module / small module, warm, through gRPC", of(served_large.median(), served.median()), 1.3);
    for callers in [1, 16, 128] {
        let rate = throughput(&process.caller, &small, callers).await;
        println!("{:<58} {rate:>9.0} calls a second", format!("{callers} callers"));
    }
    one_shot(directory.path(), &small, &served).await;
}

/// The smallest module that does something.
pub fn small() -> Vec<u8> {
    let wat = r#"(module (import "areev" "emit" (func (param i32 i32))) (memory (export "memory") 1)
        (func (export "alloc") (param i32) (result i32) i32.const 1024)
        (func (export "run") (param i32 i32) (call 0 (local.get 0) (local.get 1))))"#;
    wat::parse_str(wat).unwrap()
}

/// A module of a megabyte and a half, made like what compilers make: thousands of functions of some size, some data, a table.
pub fn large() -> Vec<u8> {
    let mut more = String::from("(table 1000 funcref) (type $t (func (param i32 i32) (result i32)))");
    for number in 0..4_400 {
        let _infallible = write!(more, "(func $f{number} (param i32 i32) (result i32) (local i32 i32 i64)");
        for step in 0..8 {
            let (offset, constant) = (8 * step, number * 31 + step);
            let _infallible = write!(
                more,
                "(local.set 2 (i32.add (i32.load offset={offset} (local.get 0)) (i32.mul (local.get 1) (i32.const {constant}))))
                 (if (i32.lt_s (local.get 2) (i32.const {constant})) (then
                   (i32.store offset={offset} (local.get 0) (local.get 2))
                   (local.set 3 (i32.xor (local.get 3) (local.get 2)))))"
            );
        }
        more += "(i32.add (local.get 3) (i32.const 1)))";
    }
    let named: String = (0..1_000).map(|number| format!("$f{number} ")).collect();
    let _infallible = write!(more, "(elem (i32.const 0) func {named})");
    let _infallible = write!(more, "(data (i32.const 4096) \"{}\")", "a small text. ".repeat(4_000));
    wat::parse_str(guests::guest("", &more, "(call $emit (local.get $p) (local.get $n))")).unwrap()
}

/// A call with nothing around it: the engine's own, of the same pool and the same limits.
async fn in_process(linked: &Linked) {
    let (calls, _no_calls) = mpsc::channel(1);
    let started = Instant::now();
    let job = Job {
        input: INPUT.to_owned(),
        limits: Limits::DEFAULT,
        payload_bytes_max: 1 << 20,
        started,
        ends_at: started + Duration::from_secs(10),
        calls,
        gauge: Arc::new(Gauge::default()),
    };
    assert_eq!(guest::run(linked, job).await.unwrap().unwrap(), INPUT);
}

/// Both modules, through the service and in the process, in turns.
async fn in_turns(caller: &Caller, modules: [&[u8]; 2]) -> [Times; 4] {
    let engine = Engine::new(8, Limits::MAX.memory_pages).unwrap();
    let linked = modules.map(|module| {
        let code = build_in_process(&engine, module, Limits::MAX.memory_pages).unwrap();
        code.linked(runtime::Runtime::Pure).unwrap().clone()
    });
    let uris = [caller.put(modules[0]).await, caller.put(modules[1]).await];
    let mut times: [Times; 4] = Default::default();
    for round in 0..=ROUNDS {
        for number in 0..2 {
            let served = Times::of(CALLS / ROUNDS, || echo(caller, &uris[number], "")).await;
            let bare = Times::of(CALLS / ROUNDS, || in_process(&linked[number])).await;
            // The first round only warms up.
            if round > 0 {
                times[number].add(served);
                times[number + 2].add(bare);
            }
        }
    }
    times
}

/// One call that must come back right.
pub async fn echo(caller: &Caller, uri: &str, tenant: &str) {
    let message = Start { tenant: tenant.to_owned(), ..start(uri, Runtime::Wasm32Areev, INPUT) };
    let (outcome, _) = caller.execute(message).await.unwrap();
    assert_eq!((outcome.kind(), outcome.output_json.as_str()), (OutcomeKind::Completed, INPUT), "{}", outcome.text);
}

async fn throughput(caller: &Caller, module: &[u8], callers: usize) -> f64 {
    let uri = caller.put(module).await;
    let end = Instant::now() + THROUGHPUT;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..callers {
        let (caller, uri) = (caller.clone(), uri.clone());
        tasks.spawn(async move {
            let mut calls = 0_u32;
            while Instant::now() < end {
                echo(&caller, &uri, "").await;
                calls += 1;
            }
            calls
        });
    }
    let calls: u32 = tasks.join_all().await.into_iter().sum();
    f64::from(calls) / THROUGHPUT.as_secs_f64()
}

async fn one_shot(directory: &std::path::Path, module: &[u8], served: &Times) {
    let file = directory.join("module.wasm");
    std::fs::write(&file, module).unwrap();
    let call = || async {
        let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_sandbox-svc"))
            .args(["exec".as_ref(), "--module".as_ref(), file.as_os_str()])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stdin, INPUT.as_bytes()).await.unwrap();
        drop(stdin);
        let output = child.wait_with_output().await.unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), INPUT);
    };
    let times = Times::of(30, call).await;
    time("one-shot form, median", times.median());
    ratio("one-shot form / warm call through gRPC", of(times.median(), served.median()));
}
