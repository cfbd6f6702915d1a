//! One guest, from its first instruction to its outcome: a fresh store, bounded in fuel, memory and time before anything
//! of it runs, and never used again.

pub mod link;
mod trap;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{mpsc, oneshot};
use wasmtime::{Instance, InstancePre, Memory, Store, TypedFunc, UpdateDeadline};

use crate::{
    json,
    limits::{Limits, Meter},
    outcome::{Failure, FailureKind},
};

/// Bytes that a host call moves for one unit of fuel.
const BYTES_PER_FUEL: u64 = 16;
/// How much fuel a guest may burn before the engine looks at it again. Compiled code keeps its count in a register between
/// calls, so this is also the most by which the fuel of a guest that was stopped from outside can be told too low.
pub const FUEL_UNSEEN_MAX: u64 = 1_000_000;
/// A guest that runs for longer than this is one that lasts, and goes on where it is in nobody's way.
const LASTS_AFTER: Duration = Duration::from_millis(1);
/// An output of more bytes than this takes a while to be looked through.
const OUTPUT_LASTS_BYTES: usize = 64 * 1024;
/// How long after the deadline the outer timeout strikes, should the guest not have been stopped by then.
const OUTER_TIMEOUT_GRACE: Duration = Duration::from_millis(250);

/// A module that is compiled and linked: all that is the same for every call.
#[derive(Clone)]
pub struct Linked {
    /// The pre-linked instance.
    pub instance: InstancePre<Host>,
    /// Pages that its memory has from the start.
    pub memory_pages_min: u64,
    /// Whether it imports `areev::fetch`.
    pub fetches: bool,
    /// Whether it imports `areev::blob_get`.
    pub reads_blobs: bool,
}

/// What one guest is given.
pub struct Job {
    /// One compact JSON text.
    pub input: String,
    /// Its bounds.
    pub limits: Limits,
    /// Most bytes of one emitted output and of one fetch request.
    pub payload_bytes_max: usize,
    /// When it began to count as running.
    pub started: Instant,
    /// When it is stopped.
    pub ends_at: Instant,
    /// Where its brokered calls go; the module can only make some when `areev::fetch` is linked.
    pub calls: mpsc::Sender<Call>,
    /// Where its counts are kept, readable after it was dropped.
    pub gauge: Arc<Gauge>,
}

/// One call of the guest's to the host that is answered from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// `areev::fetch`.
    Fetch,
    /// `areev::blob_get`.
    BlobGet,
}

/// One brokered call, waiting for its answer.
pub struct Call {
    /// What is called.
    pub kind: CallKind,
    /// The request's bytes, as the guest wrote them.
    pub request: Vec<u8>,
    /// Takes the answer's bytes, or what ends the effect.
    pub reply: oneshot::Sender<Result<Vec<u8>, Failure>>,
}

/// What a guest has used up.
#[derive(Debug, Default)]
pub struct Gauge {
    fuel_used: AtomicU64,
    peak_memory_bytes: AtomicU64,
    calls: AtomicU32,
    lasts: AtomicBool,
}

/// The guest could not be run for a reason that is the service's own.
#[derive(Debug, thiserror::Error)]
#[error("the engine failed: {0}")]
pub struct EngineFault(pub String);

/// A store's data: all that the host functions know of their guest.
pub struct Host {
    meter: Meter,
    phase: Phase,
    emitted: Option<Vec<u8>>,
    outside: Option<Outside>,
    payload_bytes_max: usize,
    fuel_limit: u64,
    memory: Option<Memory>,
    alloc: Option<TypedFunc<i32, i32>>,
    calls: mpsc::Sender<Call>,
    started: Instant,
    ends_at: Instant,
    gauge: Arc<Gauge>,
}

/// The last range of an `areev::emit` that was ignored, being not inside of the guest's memory.
#[derive(Debug, Clone, Copy)]
struct Outside {
    pointer: u32,
    len: usize,
}

/// What the guest is doing when it calls the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Its start function.
    Starting,
    /// `alloc`, called by the host.
    Allocating,
    /// `run`.
    Running,
}

impl Gauge {
    /// Fuel used, at most the limit.
    pub fn fuel_used(&self) -> u64 {
        self.fuel_used.load(Ordering::Relaxed)
    }

    /// Highest linear memory, in bytes.
    pub fn peak_memory_bytes(&self) -> u64 {
        self.peak_memory_bytes.load(Ordering::Relaxed)
    }

    /// Brokered calls made.
    pub fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Sets the brokered calls made.
    pub fn set_calls(&self, calls: u32) {
        self.calls.store(calls, Ordering::Relaxed);
    }

    /// Whether the guest has shown that it takes more than a moment.
    pub fn lasts(&self) -> bool {
        self.lasts.load(Ordering::Relaxed)
    }

    fn set_lasts(&self) {
        self.lasts.store(true, Ordering::Relaxed);
    }

    fn set(&self, fuel_used: u64, peak_memory_bytes: u64) {
        self.fuel_used.store(fuel_used, Ordering::Relaxed);
        self.peak_memory_bytes.store(peak_memory_bytes, Ordering::Relaxed);
    }
}

/// Runs one guest to its end and gives the JSON that it emitted. Dropping the future stops the guest at once. When it takes
/// more than a moment its gauge says so from its next yield on.
///
/// # Errors
/// The outer error is the service's own; the inner one is the guest's doing.
pub async fn run(linked: &Linked, job: Job) -> Result<Result<String, Failure>, EngineFault> {
    let needed = linked.memory_pages_min;
    if needed > job.limits.memory_pages {
        let text =
            format!("the module begins with {needed} pages of memory; this call may have {}", job.limits.memory_pages);
        return Ok(Err(Failure::new(FailureKind::OutOfMemory, text)));
    }
    let (started, ends_at) = (job.started, job.ends_at);
    let outer = tokio::time::Instant::from_std(ends_at + OUTER_TIMEOUT_GRACE);
    match tokio::time::timeout_at(outer, live(linked, job)).await {
        Ok(ended) => ended,
        Err(_) => Ok(Err(Failure::timeout("guest", ends_at.saturating_duration_since(started)))),
    }
}

async fn live(linked: &Linked, job: Job) -> Result<Result<String, Failure>, EngineFault> {
    let input = job.input;
    let fuel_limit = job.limits.fuel;
    let host = Host {
        meter: Meter::new(&job.limits),
        phase: Phase::Starting,
        emitted: None,
        outside: None,
        payload_bytes_max: job.payload_bytes_max,
        fuel_limit,
        memory: None,
        alloc: None,
        calls: job.calls,
        started: job.started,
        ends_at: job.ends_at,
        gauge: job.gauge,
    };
    let mut store = Store::new(linked.instance.module().engine(), host);
    store.limiter(|host| &mut host.meter);
    // One unit more than allowed: whoever ends with nothing left has used more than the limit.
    store.set_fuel(fuel_limit.saturating_add(1)).map_err(|cause| EngineFault(cause.to_string()))?;
    store.fuel_async_yield_interval(Some(FUEL_UNSEEN_MAX)).map_err(|cause| EngineFault(cause.to_string()))?;
    store.set_epoch_deadline(1);
    let begun = Instant::now();
    store.epoch_deadline_callback(move |store| {
        let fuel_left = store.get_fuel()?;
        let (host, now) = (store.data(), Instant::now());
        host.gauge.set(host.fuel_used(fuel_left), host.meter.peak_memory_bytes());
        if now >= host.ends_at {
            return Ok(UpdateDeadline::Interrupt);
        }
        if now.saturating_duration_since(begun) >= LASTS_AFTER {
            host.gauge.set_lasts();
        }
        // The engine's own yield would keep the workers from looking at their sockets for dozens of turns.
        Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
    });
    let ended = call(&mut store, linked, &input).await;
    let fuel_left = store.get_fuel().map_err(|cause| EngineFault(cause.to_string()))?;
    let host = store.data();
    host.gauge.set(host.fuel_used(fuel_left), host.meter.peak_memory_bytes());
    match ended {
        Ok(()) if fuel_left == 0 => Ok(Err(Failure::out_of_fuel(fuel_limit))),
        Ok(()) => {
            let host = store.into_data();
            if let (None, Some(outside)) = (&host.emitted, host.outside) {
                return Ok(Err(outside.failure()));
            }
            if host.emitted.as_ref().is_some_and(|emitted| emitted.len() > OUTPUT_LASTS_BYTES) {
                host.gauge.set_lasts();
                tokio::task::yield_now().await;
            }
            Ok(result(host.emitted))
        }
        Err(error) => trap::failure_of(&error, store.data()).map(Err),
    }
}

/// Instantiates the module and takes it through the ABI: input in by `alloc`, then `run`.
async fn call(store: &mut Store<Host>, linked: &Linked, input: &str) -> wasmtime::Result<()> {
    let instance = linked.instance.instantiate_async(&mut *store).await?;
    let run = bind(store, &instance)?;
    let alloc = store.data().alloc.clone().expect("bind has just set it");
    let memory = store.data().memory.expect("bind has just set it");

    let len = i32::try_from(input.len()).map_err(|_| wasmtime::Error::msg("the input is over 2 GiB"))?;
    store.data_mut().phase = Phase::Allocating;
    let pointer = alloc.call_async(&mut *store, len).await?;
    let place = memory.data_mut(&mut *store).get_mut(pointer as u32 as usize..);
    let Some(place) = place.and_then(|rest| rest.get_mut(..input.len())) else {
        let text = format!("alloc({len}) answered {}, where {len} bytes do not fit the memory", pointer as u32);
        return Err(wasmtime::Error::new(Failure::new(FailureKind::Abi, text)));
    };
    place.copy_from_slice(input.as_bytes());
    store.data_mut().phase = Phase::Running;
    run.call_async(&mut *store, (pointer, len)).await
}

fn bind(store: &mut Store<Host>, instance: &Instance) -> wasmtime::Result<TypedFunc<(i32, i32), ()>> {
    let missing = |name: &str| {
        wasmtime::Error::new(Failure::new(FailureKind::Abi, format!("the module does not export `{name}`")))
    };
    let memory = instance.get_memory(&mut *store, "memory").ok_or_else(|| missing("memory"))?;
    let alloc = instance.get_typed_func(&mut *store, "alloc")?;
    let run = instance.get_typed_func(&mut *store, "run")?;
    let host = store.data_mut();
    (host.memory, host.alloc) = (Some(memory), Some(alloc));
    Ok(run)
}

fn result(emitted: Option<Vec<u8>>) -> Result<String, Failure> {
    let bad = |text: String| Failure::new(FailureKind::BadOutput, text);
    let emitted = emitted.ok_or_else(|| bad("guest never called areev::emit".to_owned()))?;
    match json::check(&emitted) {
        Ok(_) => Ok(String::from_utf8(emitted).expect("checked JSON is UTF-8")),
        Err(why) => Err(bad(format!("guest output is not JSON: {} ({why})", json::beginning(&emitted)))),
    }
}

impl Outside {
    /// Why there is no output: nothing but such ranges was emitted.
    fn failure(self) -> Failure {
        let Self { pointer, len } = self;
        let last = format!("(last: pointer {pointer}, {len} bytes)");
        let text = format!("guest never called areev::emit with a range inside its memory {last}");
        Failure::new(FailureKind::BadOutput, text)
    }
}

impl Host {
    fn fuel_used(&self, fuel_left: u64) -> u64 {
        self.fuel_limit.saturating_add(1).saturating_sub(fuel_left).min(self.fuel_limit)
    }
}
