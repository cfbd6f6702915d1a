//! Compiling: bounded in time and memory, in a child, and paid once.

use proto::sandbox::v1::{OutcomeKind, Runtime};

use crate::{
    bombs, guests,
    process::Process,
    rig::{Rig, assert_failed, start},
};

const PURE: Runtime = Runtime::Wasm32Areev;

/// What of CPU time a child takes beside its budget: to start, and to be told that it is over.
const OVERHEAD_SECONDS: f64 = 0.7;

#[tokio::test(flavor = "multi_thread")]
async fn compile_bombs_that_pass_the_look_are_killed_within_their_budget_and_cost_nothing_again() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), &[]).await;
    let mut spent = process.children_cpu_seconds();
    for (name, bomb) in bombs::all() {
        let bytes = wat::parse_str(&bomb).unwrap();
        let uri = process.caller.put(&bytes).await;
        let (first, _) = process.caller.execute(start(&uri, PURE, "null")).await.unwrap();
        let now = process.children_cpu_seconds();
        let seconds = now - spent;
        assert!(seconds <= 2.0 + OVERHEAD_SECONDS, "{name}, {} bytes: {seconds} s, {first:?}", bytes.len());
        let compiled = process.describe().await.compilations;
        let (again, _) = process.caller.execute(start(&uri, PURE, "null")).await.unwrap();
        assert_eq!((again.kind(), &again.text), (first.kind(), &first.text), "{name}");
        assert_eq!((process.describe().await.compilations, process.children_cpu_seconds()), (compiled, now), "{name}");
        spent = now;
    }
}

#[tokio::test]
async fn a_module_whose_compiling_takes_too_long_is_refused_by_name_and_remembered() {
    let rig = Rig::with(|config| config.compiler.limits.cpu_seconds = 0).await;
    let bytes = wat::parse_str(bombs::hungry()).unwrap();
    let uri = rig.put(&bytes).await;
    for _ in 0..3 {
        let (outcome, _) = rig.execute(start(&uri, PURE, "null")).await.unwrap();
        assert_failed(&outcome, OutcomeKind::ModuleRefused, "takes more than the 0 s of CPU time");
    }
    assert_eq!(rig.sandbox.modules.compilations(), 1);
}

#[tokio::test]
async fn a_module_whose_compiling_takes_too_much_memory_is_refused_by_name() {
    let rig = Rig::with(|config| config.compiler.limits.memory_bytes = 1 << 20).await;
    let outcome = rig.run(&bombs::hungry(), PURE, "null").await;
    assert_failed(&outcome, OutcomeKind::ModuleRefused, "takes more than 1048576 bytes of memory");
}

#[tokio::test]
async fn a_compiler_that_cannot_be_started_is_the_services_fault_and_is_not_remembered() {
    let rig = Rig::with(|config| config.compiler.program = "/no/such/program".into()).await;
    let uri = rig.put(&wat::parse_str(guests::echo()).unwrap()).await;
    for _ in 0..2 {
        let status = rig.execute(start(&uri, PURE, "1")).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Internal, "{status:?}");
    }
    assert_eq!(rig.sandbox.modules.compilations(), 2);
}

#[tokio::test]
async fn a_child_that_says_nonsense_makes_no_module() {
    // `true` ends well and writes nothing.
    let rig = Rig::with(|config| config.compiler.program = "/bin/true".into()).await;
    let uri = rig.put(&wat::parse_str(guests::echo()).unwrap()).await;
    assert_eq!(rig.execute(start(&uri, PURE, "1")).await.unwrap_err().code(), tonic::Code::Internal);
}
