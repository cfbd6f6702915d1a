//! The sandbox: takes an effect, finds its code, waits for a slot, runs it within its bounds, records how it ended.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use content_digest::Digest;
use tokio::sync::{Semaphore, mpsc};

use crate::{
    admission::{Admission, Full, Place},
    background::Background,
    blob::{self, Blobs},
    broker_client::BrokerClient,
    effect::Effect,
    error::Refusal,
    exchange::{Answered, Confirm, Desk},
    executions::{Execution, Executions},
    guest::{self, Gauge},
    imports::undeclared_blobs,
    limits::Limits,
    module_cache::{Code, CodeFault, ModuleCache},
    native::{Native, NativeJob},
    outbound::Outbound,
    outcome::{Failure, FailureKind, Outcome},
    relay::{self, Artifacts},
    runtime::Runtime,
};

/// Uploads at once; each may hold one module in memory.
const UPLOADS_MAX: usize = 16;
/// Fuel that most guests burn within a moment.
const MOMENT_FUEL: u64 = 100_000;
/// Calls of one guest that wait to be answered: it makes them one by one.
const CALLS_WAITING_MAX: usize = 1;

/// Bounds that are the service's own.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// What a call gets that asks for nothing.
    pub limits_default: Limits,
    /// What no call gets more of.
    pub limits_max: Limits,
    /// Longest wall clock of one call.
    pub wall_clock_max: Duration,
    /// Most bytes of a module.
    pub module_bytes_max: u64,
    /// Most bytes of an input.
    pub input_bytes_max: usize,
    /// Most bytes of an output, of a fetch request and of a fetch reply.
    pub output_bytes_max: usize,
}

/// The parts, and what happens between them.
pub struct Sandbox {
    /// The service's bounds.
    pub bounds: Bounds,
    /// Code by digest.
    pub modules: Arc<ModuleCache>,
    /// Slots and queue.
    pub admission: Admission,
    /// The record of calls.
    pub executions: Executions,
    /// Uploads at once.
    pub uploads: Semaphore,
    /// Native execution; absent when it is off.
    pub native: Option<Native>,
    /// The broker's replicas by their URLs, the first for tokens that name none; empty when no broker is configured.
    pub brokers: Vec<(String, BrokerClient)>,
    /// Where goes on what lasts.
    pub background: Arc<Background>,
}

/// The way back to who asked for an effect.
pub struct Caller {
    /// Makes exchanges durable.
    pub confirm: Confirm,
    /// Has the blobs.
    pub blobs: blob::Runner,
    /// Makes calls whose body or answer is one.
    pub artifacts: relay::Relay,
}

/// An effect that was let in: it has its code and a place in the queue.
pub struct Accepted {
    effect: Effect,
    /// Absent when compiled code is all that is here.
    bytes: Option<Bytes>,
    place: Place,
}

/// Records a call when it ends, also when it is dropped in the middle.
struct Record<'a> {
    executions: &'a Executions,
    digest: Digest,
    execution: Execution,
    gauge: Arc<Gauge>,
    started: Instant,
}

impl Sandbox {
    /// Puts the parts together.
    pub fn new(bounds: Bounds, modules: Arc<ModuleCache>, admission: Admission, background: Arc<Background>) -> Self {
        Self {
            bounds,
            modules,
            admission,
            executions: Executions::default(),
            uploads: Semaphore::new(UPLOADS_MAX),
            native: None,
            brokers: Vec::new(),
            background,
        }
    }

    /// Lets an effect in, or says why not.
    pub async fn accept(&self, effect: Effect) -> Result<Accepted, Refusal> {
        let native = effect.runtime == Runtime::Native;
        if native && self.native.is_none() {
            return Err(Refusal::NativeDisabled);
        }
        let bytes = self.modules.bytes(&effect.digest);
        if bytes.is_none() && (native || !self.modules.stat(&effect.digest).present) {
            return Err(Refusal::ModuleNotFound(effect.digest));
        }
        let recorded: usize = effect.recorded.iter().map(|exchange| exchange.reply.len()).sum();
        let place = self.admission.enter(&effect.tenant, effect.input.len() + recorded).map_err(|full| {
            metrics::counter!("areev_sandbox_busy_total").increment(1);
            self.busy(full)
        })?;
        if bytes.is_none() {
            // What is cached may turn out to be spoiled: the caller should hear that before the call is taken.
            self.modules
                .code(effect.digest, None, &effect.tenant)
                .await
                .map_err(|fault| refusal(effect.digest, fault))?;
        }
        Ok(Accepted { effect, bytes, place })
    }

    fn busy(&self, full: Full) -> Refusal {
        let capacity = self.admission.capacity();
        Refusal::Busy(match full {
            Full::All => format!("all {} slots and the queue of {} are taken", capacity.slots, capacity.queue),
            Full::Tenant => {
                format!("the tenant's part of slots and queue, {} %, is taken", capacity.tenant_percent)
            }
            Full::Bytes => "the calls that wait and run hold as much input as there is room for".to_owned(),
        })
    }

    /// Executes an effect. Dropping the future stops it at once and frees its slot.
    pub async fn execute(&self, accepted: Accepted, caller: Caller, gauge: Arc<Gauge>) -> Result<Outcome, Refusal> {
        let Accepted { effect, bytes, place } = accepted;
        let queued = Instant::now();
        let ends_at = effect.ends_at(queued, self.bounds.wall_clock_max);
        let limits = Limits::resolve(&effect.limits, &self.bounds.limits_default, &self.bounds.limits_max);
        let execution = Execution {
            runtime: effect.runtime,
            limits,
            fetch_linked: false,
            key: effect.key.clone(),
            failure: Some(FailureKind::Canceled),
        };
        let mut record = Record {
            executions: &self.executions,
            digest: effect.digest,
            execution,
            gauge: Arc::clone(&gauge),
            started: queued,
        };
        let run = Run { effect, bytes, limits, queued, ends_at, caller, gauge: Arc::clone(&gauge) };
        let running = async {
            match run.effect.runtime {
                Runtime::Native => self.run_native(run, place).await,
                Runtime::Pure | Runtime::Io => self.run_module(run, place, &mut record.execution).await,
            }
        };
        // Waiting for code and for a slot is bounded by the deadline too.
        let grace = Duration::from_secs(1);
        let result = match tokio::time::timeout_at((ends_at + grace).into(), running).await {
            Ok(result) => result?,
            Err(_) => Err(Failure::timeout("the effect", ends_at.saturating_duration_since(queued))),
        };
        record.execution.failure = result.as_ref().err().map(|failure| failure.kind);
        Ok(Outcome {
            result,
            fuel_used: gauge.fuel_used(),
            peak_memory_bytes: gauge.peak_memory_bytes(),
            duration: queued.elapsed(),
            calls: gauge.calls(),
        })
    }

    async fn run_module(
        &self,
        run: Run,
        place: Place,
        execution: &mut Execution,
    ) -> Result<Result<String, Failure>, Refusal> {
        let digest = run.effect.digest;
        let code = self.modules.code(digest, run.bytes, &run.effect.tenant).await;
        let code = code.map_err(|fault| refusal(digest, fault))?;
        let linked = match code.linked(run.effect.runtime) {
            Ok(linked) => linked.clone(),
            Err(failure) => return Ok(Err(failure)),
        };
        if linked.reads_blobs && !run.effect.blob_read {
            return Ok(Err(undeclared_blobs()));
        }
        execution.fetch_linked = run.effect.runtime == Runtime::Io;
        let slot = place.slot().await;
        let started = Instant::now();
        if started >= run.ends_at {
            let waited = started.saturating_duration_since(run.queued);
            return Ok(Err(Failure::timeout("the effect, waiting for its code and for a slot,", waited)));
        }
        let (calls, waiting) = mpsc::channel(CALLS_WAITING_MAX);
        let desk = Desk {
            outbound: self.outbound(&run.effect),
            recorded: run.effect.recorded,
            confirm: Some(run.caller.confirm),
            blobs: Blobs::Runner(run.caller.blobs),
            artifacts: Artifacts::Runner(run.caller.artifacts),
            limits: run.limits,
            payload_bytes_max: self.bounds.output_bytes_max,
            ends_at: run.ends_at,
            gauge: Arc::clone(&run.gauge),
            answered: Answered::default(),
        };
        let job = guest::Job {
            input: run.effect.input,
            limits: run.limits,
            payload_bytes_max: self.bounds.output_bytes_max,
            started,
            ends_at: run.ends_at,
            calls,
            gauge: Arc::clone(&run.gauge),
        };
        // The slot goes with the guest: it is free when the guest is gone, wherever that is.
        let guest = async move {
            let _slot = slot;
            guest::run(&linked, job).await
        };
        let mut remember = Remember { code: &code, gauge: &run.gauge, completed: false };
        tokio::select! {
            ended = self.background.run(guest, &run.gauge, code.lasts()) => match ended {
                Ok(ended) => {
                    remember.completed = matches!(ended, Ok(Ok(_)));
                    ended.map_err(|fault| Refusal::Internal(fault.to_string()))
                }
                Err(cause) => Err(Refusal::Internal(cause.to_string())),
            },
            () = desk.serve(waiting) => Err(Refusal::Internal("the desk closed while its guest ran".to_owned())),
        }
    }

    async fn run_native(&self, run: Run, place: Place) -> Result<Result<String, Failure>, Refusal> {
        let native = self.native.as_ref().ok_or(Refusal::NativeDisabled)?;
        let _slot = place.slot().await;
        let job = NativeJob {
            effect: &run.effect,
            bytes: run.bytes.ok_or(Refusal::ModuleNotFound(run.effect.digest))?,
            output_bytes_max: self.bounds.output_bytes_max,
            started: Instant::now(),
            ends_at: run.ends_at,
        };
        native.run(job).await.map_err(|fault| Refusal::Internal(fault.to_string()))
    }

    fn outbound(&self, effect: &Effect) -> Outbound {
        let Some(egress) = &effect.egress else {
            return Outbound::nobody(
                "no credential broker for this effect: it came without an egress token, so the host grants its tool no outbound call",
            );
        };
        let named = |(url, _): &&(String, BrokerClient)| egress.broker_url.is_empty() || *url == egress.broker_url;
        match self.brokers.iter().find(named) {
            Some((_, client)) => {
                let whose = Box::new(effect.whose());
                Outbound::Broker { client: client.clone(), token: egress.token.clone(), whose }
            }
            None if self.brokers.is_empty() => {
                Outbound::nobody("no credential broker: this sandbox was started without --broker-url")
            }
            None => Outbound::Nobody(format!(
                "no credential broker: the token is for {}, which is no --broker-url of this sandbox",
                egress.broker_url
            )),
        }
    }
}

/// Remembers of a module, when its call ends or is dropped, whether it takes more than a moment: then its next call begins
/// where it is in nobody's way. One that burned little fuel and came to its end was only kept waiting.
struct Remember<'a> {
    code: &'a Code,
    gauge: &'a Gauge,
    completed: bool,
}

impl Drop for Remember<'_> {
    fn drop(&mut self) {
        let kept_waiting = self.completed && self.gauge.fuel_used() < MOMENT_FUEL;
        self.code.set_lasts(self.gauge.lasts() && !kept_waiting);
    }
}

fn refusal(digest: Digest, fault: CodeFault) -> Refusal {
    match fault {
        CodeFault::Busy(text) => Refusal::Busy(text),
        CodeFault::Gone => Refusal::ModuleNotFound(digest),
        CodeFault::Engine(cause) => Refusal::Internal(cause),
    }
}

/// What a running effect owns.
struct Run {
    effect: Effect,
    bytes: Option<Bytes>,
    limits: Limits,
    queued: Instant,
    ends_at: Instant,
    caller: Caller,
    gauge: Arc<Gauge>,
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        let execution = &self.execution;
        let (runtime, key) = (execution.runtime, &execution.key);
        let kind = execution.failure.map_or_else(|| "Completed".to_owned(), |kind| format!("{kind:?}"));
        metrics::counter!("areev_sandbox_outcomes_total", "runtime" => runtime.as_str(), "kind" => kind.clone())
            .increment(1);
        metrics::counter!("areev_sandbox_fuel_total").increment(self.gauge.fuel_used());
        metrics::histogram!("areev_sandbox_effect_seconds", "runtime" => runtime.as_str())
            .record(self.started.elapsed().as_secs_f64());
        tracing::debug!(
            run = key.run_id,
            node = key.node,
            attempt = key.attempt,
            effect = key.effect_seq,
            digest = %self.digest,
            %runtime,
            kind,
            fuel = self.gauge.fuel_used(),
            calls = self.gauge.calls(),
            ms = self.started.elapsed().as_millis() as u64,
            "effect ended"
        );
        self.executions.record(self.digest, execution.clone());
    }
}
