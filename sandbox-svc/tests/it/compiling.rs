//! Compiling: bounded in time and memory, in a child, and paid once.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use proto::sandbox::v1::{OutcomeKind, Runtime, Start};
use rustix::{process::Pid, thread::CpuSet};

use crate::{
    bombs, guests,
    process::Process,
    rig::{PATIENCE, Rig, assert_failed, assert_output, start, until},
};

const PURE: Runtime = Runtime::Wasm32Areev;

/// CPU time that one child may take, in seconds.
const BUDGET_SECONDS: f64 = 2.0;
/// What the kernel's reckoning may say beside: it looks at the time of a process when its clock ticks, and the end of one that has
/// much memory takes some.
const GRANULARITY_SECONDS: f64 = 0.1;

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
        assert!(
            seconds <= BUDGET_SECONDS + GRANULARITY_SECONDS,
            "{name}, {} bytes: {seconds} s, {first:?}",
            bytes.len()
        );
        let compiled = process.describe().await.compilations;
        let (again, _) = process.caller.execute(start(&uri, PURE, "null")).await.unwrap();
        assert_eq!((again.kind(), &again.text), (first.kind(), &first.text), "{name}");
        assert_eq!((process.describe().await.compilations, process.children_cpu_seconds()), (compiled, now), "{name}");
        spent = now;
    }
}

/// Threads of ordinary priority that keep every core busy, until dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn on_every_core() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..std::thread::available_parallelism().unwrap().get() {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Self(stop)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cold_module_and_a_guest_that_lasts_come_to_their_end_also_on_a_machine_whose_cores_are_never_idle() {
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(directory.path(), &[]).await;
    let _busy = Busy::on_every_core();
    // Some tenths of a second of CPU time: on threads that only an idle machine executes, more than the minute that is waited.
    let uri = process.caller.put(&wat::parse_str(bombs::functions(1_500)).unwrap()).await;
    let called = process.caller.execute(start(&uri, PURE, "7"));
    let (outcome, _) = tokio::time::timeout(PATIENCE, called).await.expect("it is compiled in time").unwrap();
    assert_output(&outcome, "7");
    // And a guest that lasts.
    let uri = process.caller.put(&wat::parse_str(guests::slow_echo()).unwrap()).await;
    for input in ["1", "2", "3"] {
        let called = process.caller.execute(start(&uri, PURE, input));
        let (outcome, _) = tokio::time::timeout(PATIENCE, called).await.expect("it runs in time").unwrap();
        assert_output(&outcome, input);
    }
}

/// A compiler with nobody who waits for it, on one processor. Dropped, it is ended.
struct Lone(std::process::Child);

impl Lone {
    fn on(cpu: &CpuSet, module: &[u8]) -> Self {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_sandbox-svc"))
            .args(["compile", "--cpu-seconds", "60", "--memory-bytes", "1073741824", "--priority", "idle"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        rustix::thread::sched_setaffinity(Some(Pid::from_child(&child)), cpu).unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let module = module.to_vec();
        std::thread::spawn(move || std::io::Write::write_all(&mut stdin, &module));
        Self(child)
    }

    /// How often its first thread had to leave the processor, and its CPU time in milliseconds; none once it has ended.
    fn shares(&self) -> Option<(u64, u64)> {
        let of = |file| std::fs::read_to_string(format!("/proc/{}/{file}", self.0.id())).ok();
        let status = of("status")?;
        let turns = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?.trim();
        // Nanoseconds on the processor, of the first thread.
        let used: u64 = of("schedstat")?.split_whitespace().next()?.parse().ok()?;
        Some((turns.parse().ok()?, used / 1_000_000))
    }
}

impl Drop for Lone {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn compilers_that_share_a_processor_take_turns_far_shorter_than_the_clocks_ticks() {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let mut cpu = CpuSet::new();
    cpu.set((0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap());
    let module = wat::parse_str(bombs::functions(4_000)).unwrap();
    let compilers = [Lone::on(&cpu, &module), Lone::on(&cpu, &module)];
    let end = std::time::Instant::now() + PATIENCE;
    let (turns, milliseconds) = loop {
        let (turns, milliseconds) = compilers[0].shares().expect("it is not at its end so soon");
        if milliseconds >= 150 {
            break (turns, milliseconds);
        }
        assert!(std::time::Instant::now() < end, "{milliseconds} ms of CPU time");
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    // A tick of the clock ends one turn at most, and the fastest clocks tick once a millisecond.
    assert!(turns > 2 * milliseconds, "{turns} turns in {milliseconds} ms of CPU time");
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

/// A compiler that waits until a file is there.
fn gated(directory: &Path) -> (PathBuf, PathBuf) {
    let (program, gate) = (directory.join("compiler"), directory.join("gate"));
    let own = env!("CARGO_BIN_EXE_sandbox-svc");
    let script = format!("#!/bin/sh\nwhile [ ! -e {} ]; do sleep 0.01; done\nexec {own} \"$@\"\n", gate.display());
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    (program, gate)
}

#[tokio::test]
async fn o02_a_tenant_that_queues_many_modules_delays_another_ones_single_module_by_two_at_most() {
    const FLOOD: usize = 24;
    let directory = tempfile::tempdir().unwrap();
    let (program, gate) = gated(directory.path());
    let rig = Rig::with(|config| config.compiler.program = program).await;
    let mut modules = Vec::new();
    for number in 0..=FLOOD {
        modules.push(rig.put(&wat::parse_str(guests::says(&number.to_string())).unwrap()).await);
    }
    let ended = Arc::new(Mutex::new(Vec::new()));
    let mut calls = tokio::task::JoinSet::new();
    for (number, uri) in modules.iter().enumerate() {
        let tenant = if number < FLOOD { "flood" } else { "single" };
        let message = Start { tenant: tenant.to_owned(), ..start(uri, PURE, "null") };
        let (caller, order) = (rig.caller(), Arc::clone(&ended));
        calls.spawn(async move {
            let outcome = caller.execute(message).await.unwrap().0;
            assert_output(&outcome, &number.to_string());
            order.lock().unwrap().push(tenant);
        });
        until("it waits", || rig.sandbox.admission.queued() == number + 1).await;
    }
    std::fs::write(gate, "").unwrap();
    calls.join_all().await;
    let ended = ended.lock().unwrap();
    let place = ended.iter().position(|tenant| *tenant == "single").unwrap();
    // One of the others was being compiled, one had its turn before; and answers may overtake each other by one.
    assert!(place <= 3, "it came after {place} of {FLOOD}");
}
