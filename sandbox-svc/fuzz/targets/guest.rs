//! Generated modules with the guest ABI's imports and exports, run: each ends as a result or as the guest's own failure,
//! within its fuel and its memory, and never as a fault of the service.

#![no_main]

use std::{
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use arbitrary::Unstructured;
use libfuzzer_sys::{Corpus, fuzz_target};
use sandbox_svc::{
    engine::Engine,
    guest::{self, Gauge, Job},
    limits::{Limits, PAGE_BYTES},
    module_cache::build_in_process,
    runtime::Runtime,
};
use tokio::sync::mpsc;
use wasm_smith::{Config, Module};

const LIMITS: Limits = Limits { fuel: 100_000, memory_pages: 16, ..Limits::DEFAULT };
/// Longest that a guest may take, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(5);

static ENGINE: LazyLock<Arc<Engine>> = LazyLock::new(|| Engine::new(1, LIMITS.memory_pages).expect("an engine"));

fuzz_target!(|bytes: &[u8]| -> Corpus {
    // Whole modules are taken as they are; anything else is what a module is generated from.
    let module = if bytes.starts_with(b"\0asm") {
        bytes.to_vec()
    } else {
        match Module::new(config(), &mut Unstructured::new(bytes)) {
            Ok(module) => module.to_bytes(),
            Err(_) => return Corpus::Reject,
        }
    };
    let code = build_in_process(&ENGINE, &module, LIMITS.memory_pages).expect("no fault of the engine");
    if let Ok(linked) = code.linked(Runtime::Io) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(run(linked));
    }
    Corpus::Keep
});

async fn run(linked: &guest::Linked) {
    let (calls, mut waiting) = mpsc::channel::<guest::Call>(1);
    let (gauge, started) = (Arc::new(Gauge::default()), Instant::now());
    let ends_at = started + PATIENCE;
    let input = "{\"quantity\":3}".to_owned();
    let job = Job { input, limits: LIMITS, payload_bytes_max: 4096, started, ends_at, calls, gauge: Arc::clone(&gauge) };
    let answering = async {
        while let Some(call) = waiting.recv().await {
            let _guest_is_gone = call.reply.send(Ok(b"{\"status\":200,\"body\":\"\"}".to_vec()));
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = guest::run(linked, job) => {
            let _result_or_failure = ended.expect("no fault of the service");
        }
        () = answering => {}
    }
    assert!(gauge.fuel_used() <= LIMITS.fuel, "more fuel than there was");
    assert!(gauge.peak_memory_bytes() <= LIMITS.memory_pages * PAGE_BYTES, "more memory than there was");
}

fn config() -> Config {
    let shape = |text: &str| Some(wat::parse_str(text).expect("the text is a module"));
    Config {
        available_imports: shape(
            r#"(module
                (import "areev" "emit" (func (param i32 i32)))
                (import "areev" "fetch" (func (param i32 i32) (result i32)))
                (import "areev" "blob_get" (func (param i32 i32) (result i32))))"#,
        ),
        exports: shape(
            r#"(module
                (memory (export "memory") 1)
                (func (export "alloc") (param i32) (result i32) unreachable)
                (func (export "run") (param i32 i32) unreachable))"#,
        ),
        max_memories: 1,
        max_memory32_bytes: 1 << 20,
        max_tables: 1,
        bulk_memory_enabled: true,
        exceptions_enabled: false,
        gc_enabled: false,
        memory64_enabled: false,
        multi_value_enabled: true,
        reference_types_enabled: true,
        relaxed_simd_enabled: false,
        simd_enabled: true,
        tail_call_enabled: false,
        threads_enabled: false,
        ..Config::default()
    }
}
