//! How code becomes ready: compiled in a child, or loaded from disk after a restart.

use proto::sandbox::v1::Runtime;

use crate::{
    caller::start,
    figures::{Targets, Times, of, time},
    process::Process,
    warm::large,
};

/// Restarts whose median stands for one.
const RESTARTS: usize = 9;

pub async fn bench(targets: &mut Targets) {
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("cache");
    let arguments = ["--cache-dir", cache.to_str().unwrap()];
    let module = large();
    let process = Process::start(directory.path(), &arguments).await;
    let uri = process.caller.put(&module).await;
    let first = Times::of(1, || call(&process, &uri)).await;
    assert_eq!((process.describe().await.compilations, process.describe().await.cache_loads), (1, 0));
    time("first call of the large module: compiled", first.median());
    println!("{:<58} {:>8.1} s", "CPU time of the compiling child", process.children_cpu_seconds());
    drop(process);
    let mut cold = Vec::new();
    for _ in 0..RESTARTS {
        let process = Process::start(directory.path(), &arguments).await;
        cold.push(Times::of(1, || call(&process, &uri)).await.median());
        assert_eq!((process.describe().await.compilations, process.describe().await.cache_loads), (0, 1));
    }
    cold.sort();
    let cold = cold[RESTARTS / 2];
    time("first call after a restart: from disk, without an upload", cold);
    targets.at_least("compiled / from disk", of(first.median(), cold), 100.0);
}

async fn call(process: &Process, uri: &str) {
    let (outcome, _) = process.caller.execute(start(uri, Runtime::Wasm32Areev, "[1]")).await.unwrap();
    assert_eq!(outcome.output_json, "[1]", "{}", outcome.text);
}
