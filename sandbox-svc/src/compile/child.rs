//! The inside of a compiling child: it bounds itself, reads a module, and writes its machine code. Nothing else is in it: no
//! environment, no socket, no key, no other module.

mod turns;

use std::{
    io::{self, Read as _, Write as _},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    process::{Resource, Rlimit, Signal, getpid, kill_process, set_parent_process_death_signal, setrlimit},
    time::{ClockId, clock_gettime},
};

use crate::{engine::Engine, priority::Priority};
use turns::Turns;

/// Exit status when the compiler refuses the module; the reason is on stderr.
pub const REFUSED: u8 = 3;
/// Exit status when there is no memory left even to read the module.
pub const HUNGRY: u8 = 5;
/// Exit status when the child cannot bound itself or speak to its parent.
const BROKEN: u8 = 4;

/// Bytes of a module; the service sends none that is larger.
const MODULE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// How often the watch looks at the CPU time, and at who else wants the processor.
const WATCH: Duration = Duration::from_millis(4);
/// Open files: the three pipes, and what the C library opens in passing.
const FILES_MAX: u64 = 16;
/// How willingly the kernel ends it when memory runs out: before all others.
const OOM_SCORE: &str = "1000";

/// What the child is told.
#[derive(Debug, clap::Args)]
pub struct CompileArgs {
    /// CPU time, in seconds
    #[arg(long)]
    cpu_seconds: u64,
    /// Address space, in bytes
    #[arg(long)]
    memory_bytes: u64,
    /// Whether it gets on only while the machine has nothing else to do
    #[arg(long, value_enum)]
    priority: Priority,
}

/// Compiles stdin to stdout.
pub fn enter(args: &CompileArgs) -> ExitCode {
    let budget = Duration::from_secs(args.cpu_seconds);
    let bounded = watch(budget, args.priority).and_then(|()| bound(args));
    let compiled = bounded.and_then(|()| read()).map(|module| compile(&module));
    match compiled {
        Ok(Ok(artefact)) => match io::stdout().write_all(&artefact).and_then(|()| io::stdout().flush()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(BROKEN),
        },
        Ok(Err(refusal)) => say(&refusal, REFUSED),
        Err(cause) if cause.kind() == io::ErrorKind::OutOfMemory => ExitCode::from(HUNGRY),
        Err(cause) => say(&cause.to_string(), BROKEN),
    }
}

fn compile(module: &[u8]) -> Result<Vec<u8>, String> {
    Engine::compiler().and_then(|engine| engine.precompile_module(module)).map_err(|cause| format!("{cause:#}"))
}

/// Ends the process when its CPU time is spent, in the way in which the kernel would. The kernel looks only when its clock
/// ticks while the process runs: one of the lowest priority on a busy machine was seen to use twice its time before that. Ends
/// the turns of one of the lowest priority, too, while others want the processor; one that is given a share would lose it by
/// that.
fn watch(budget: Duration, priority: Priority) -> io::Result<()> {
    let watching = move || {
        // Without them it is a worse neighbour, and compiles all the same.
        let mut turns = (priority == Priority::Idle).then(Turns::new).and_then(Result::ok);
        loop {
            let used = clock_gettime(ClockId::ProcessCPUTime);
            let used = Duration::new(used.tv_sec.unsigned_abs(), u32::try_from(used.tv_nsec).unwrap_or(0));
            if used >= budget {
                let _ends_here = kill_process(getpid(), Signal::XCPU);
                return;
            }
            if let Some(turns) = &mut turns {
                turns.look(Instant::now(), used);
            }
            thread::sleep(WATCH);
        }
    };
    thread::Builder::new().name("watch".to_owned()).spawn(watching).map(|_| ())
}

/// The CPU time ends with a signal that tells it from all else; a second later with one that cannot be caught.
fn bound(args: &CompileArgs) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::thread::set_no_new_privs(true)?;
    args.priority.take();
    let _not_linux_enough = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    let both = |value: u64| Rlimit { current: Some(value), maximum: Some(value) };
    setrlimit(Resource::Core, both(0))?;
    setrlimit(Resource::Fsize, both(0))?;
    setrlimit(Resource::Nofile, both(FILES_MAX))?;
    setrlimit(Resource::As, both(args.memory_bytes))?;
    let cpu = Rlimit { current: Some(args.cpu_seconds), maximum: Some(args.cpu_seconds.saturating_add(1)) };
    setrlimit(Resource::Cpu, cpu)?;
    Ok(())
}

fn read() -> io::Result<Vec<u8>> {
    let mut module = Vec::new();
    io::stdin().lock().take(MODULE_BYTES_MAX).read_to_end(&mut module)?;
    Ok(module)
}

fn say(text: &str, status: u8) -> ExitCode {
    let _nobody_reads = io::stderr().write_all(text.as_bytes());
    ExitCode::from(status)
}
