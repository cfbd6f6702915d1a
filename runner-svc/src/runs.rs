//! The runs that this process drives: one driver each, found by run id, bounded in number.

mod attempts;
mod children;
mod clock;
mod command;
mod driver;
pub mod index;
pub mod load;
mod memory;
mod parked;
mod record;
mod recovery;
mod start;
mod take_over;
mod view;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use runner_core::{model::ModelPin, state::State};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    driver::{Begin, Driver, INBOX_MAX},
    memory::Memory,
    parked::Parked,
};
use crate::{
    dispatch::Dispatcher,
    families::{PLACES, RUNS},
    journal::{Claim, Journal},
};

pub use attempts::Attempts;
pub use clock::Clock;
pub use command::{Command, CommandError, Ended};
pub use record::opened;
pub use recovery::{RECOVERY_FAILED, Recovering};
pub use start::{StartError, Started};
pub use view::{AskView, RunStatus, RunView, Summary};

/// What every driver uses.
pub struct Shared {
    /// The store.
    pub journal: Journal,
    /// Where effects go.
    pub dispatcher: Dispatcher,
    /// Effects in flight at once, over all runs.
    pub workers: Arc<Semaphore>,
    /// Longest time of one effect whose node names none.
    pub effect_timeout: Duration,
    /// The time that runs see.
    pub clock: Clock,
    /// Length of a lease.
    pub lease: Duration,
    /// The model of abstract nodes.
    pub model: Option<ModelPin>,
    /// Name of this runner in leases.
    pub node_id: String,
    /// Random name of this process in leases.
    pub instance: String,
    /// How often loading a run ended this process.
    pub attempts: Attempts,
}

/// Why a run is not driven although it has not ended.
#[derive(Debug, Clone)]
pub struct Quarantined {
    /// Why.
    pub reason: String,
    /// Since when this process knows, in milliseconds since 1970.
    pub since_ms: u64,
}

/// Longest wait for a driver that has stopped.
const LEAVING_MAX: Duration = Duration::from_secs(1);

/// All runs that are not finished, and those that cannot be driven.
#[derive(Clone)]
pub struct Runs(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    live: Mutex<BTreeMap<String, Handle>>,
    /// Runs whose records are damaged, and why.
    quarantined: Mutex<BTreeMap<String, Quarantined>>,
    /// Runs that are still to be taken over, and what they wait for.
    recovering: Mutex<BTreeMap<String, Recovering>>,
    /// Runs that are not in memory, because only people or the clock can move them on.
    parked: Mutex<BTreeMap<String, Parked>>,
    /// Held while a parked run is taken up, so that it is taken up once.
    taking_up: tokio::sync::Mutex<()>,
    memory: Memory,
    concurrent_max: usize,
    places: Arc<Semaphore>,
    tracker: TaskTracker,
    drain: CancellationToken,
    /// Counts runs that begin, end or get stuck here.
    changes: watch::Sender<u64>,
}

/// What a run takes of this process while it is driven; given back when it ends.
#[derive(Default)]
struct Room {
    /// One of `--max-concurrent-runs`; a run that is taken over is driven on in any case, and a child run needs none.
    _place: Option<OwnedSemaphorePermit>,
    /// Memory; only of runs that are taken over.
    _memory: Option<OwnedSemaphorePermit>,
}

/// How a driver is reached.
#[derive(Clone)]
pub struct Handle {
    is_child: bool,
    commands: mpsc::Sender<Command>,
    view: watch::Receiver<Arc<RunView>>,
}

impl Shared {
    /// The time that events carry, in milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Who holds a lease: principal, node, process.
    pub fn holder(&self, principal: &str) -> String {
        let mut principal = principal.to_owned();
        proto::fault::cut(&mut principal, 128);
        format!("{principal} at {} {}", self.node_id, self.instance)
    }

    /// A claim to drive a run.
    pub fn claim(&self, principal: &str) -> Claim {
        let ttl_ms = u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX);
        Claim { holder: self.holder(principal), ttl_ms, now_ms: self.now_ms() }
    }
}

impl Handle {
    /// The run as it durably stands.
    pub fn view(&self) -> Arc<RunView> {
        Arc::clone(&self.view.borrow())
    }

    /// Follows the run; closed once it is not driven here any more.
    pub fn follow(&self) -> watch::Receiver<Arc<RunView>> {
        self.view.clone()
    }

    /// Hands a request to the driver.
    pub async fn send(&self, command: Command) -> Result<(), CommandError> {
        self.commands.send(command).await.map_err(|_| CommandError::Stopped)
    }
}

impl Runs {
    /// No run is driven yet.
    pub fn new(shared: Arc<Shared>, concurrent_max: usize, drain: CancellationToken) -> Self {
        Self(Arc::new(Inner {
            shared,
            live: Mutex::default(),
            quarantined: Mutex::default(),
            recovering: Mutex::default(),
            parked: Mutex::default(),
            taking_up: tokio::sync::Mutex::default(),
            memory: Memory::default(),
            concurrent_max,
            places: Arc::new(Semaphore::new(concurrent_max)),
            tracker: TaskTracker::new(),
            drain,
            changes: watch::Sender::new(0),
        }))
    }

    /// What every driver uses.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    /// A run that is driven here.
    pub fn live(&self, run_id: &str) -> Option<Handle> {
        self.0.live.lock().get(run_id).cloned()
    }

    /// The pending asks of a run and of the child runs below it, by run.
    pub fn asks(&self, run_id: &str) -> Vec<AskView> {
        let live = self.0.live.lock();
        let below = format!("{run_id}~");
        let children = live.range(below.clone()..).take_while(|(id, _)| id.starts_with(&below));
        let children = children.map(|(_, handle)| handle).filter(|handle| handle.is_child);
        let views = live.get(run_id).into_iter().chain(children).map(Handle::view);
        views.flat_map(|view| view.asks.clone()).collect()
    }

    /// Why a run is not driven although it has not ended.
    pub fn quarantine_of(&self, run_id: &str) -> Option<String> {
        Some(self.quarantined_since(run_id)?.reason)
    }

    /// The same, with the time from which on.
    pub fn quarantined_since(&self, run_id: &str) -> Option<Quarantined> {
        self.0.quarantined.lock().get(run_id).cloned()
    }

    /// How many runs are not driven although they have not ended.
    pub fn quarantined(&self) -> usize {
        self.0.quarantined.lock().len()
    }

    /// Waits until a driver that has stopped is gone, with what it left behind; not for long.
    pub async fn left(&self, run_id: &str) {
        let mut changes = self.changes();
        let leaving = async { while self.live(run_id).is_some() && changes.changed().await.is_ok() {} };
        let _still_there = tokio::time::timeout(LEAVING_MAX, leaving).await;
    }

    /// Waits until no driver is left, after the drain has begun.
    pub async fn drained(&self) {
        self.0.tracker.close();
        self.0.tracker.wait().await;
    }

    /// Changes whenever a run begins, ends or gets stuck here.
    fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    fn changed(&self) {
        self.count();
        self.0.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    fn count(&self) {
        let driven = self.0.live.lock().len();
        let parked = self.0.parked.lock().len();
        let recovering = self.0.recovering.lock().len();
        for (place, count) in PLACES.into_iter().zip([driven, parked, recovering, self.quarantined()]) {
            metrics::gauge!(RUNS, "place" => place).set(count as f64);
        }
    }

    /// Cancelled when the service drains.
    fn drain(&self) -> &CancellationToken {
        &self.0.drain
    }

    /// A place for one more run, given back when it ends.
    fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.places).try_acquire_owned().ok()
    }

    fn quarantine(&self, run_id: &str, reason: String) {
        tracing::error!(run_id, reason, "run quarantined: it is not driven, all others go on");
        metrics::counter!("areev_runs_quarantined_total").increment(1);
        let mut quarantined = self.0.quarantined.lock();
        quarantined.insert(run_id.to_owned(), Quarantined { reason, since_ms: self.shared().now_ms() });
        metrics::gauge!("areev_runs_quarantined").set(quarantined.len() as f64);
        drop(quarantined);
        self.changed();
    }

    /// Begins to drive a run whose events so far are durable, in the room that it takes.
    fn spawn(&self, state: State, fence: u64, room: Room) -> Handle {
        let run_id = state.run_id().to_owned();
        let (commands, inbox) = mpsc::channel(INBOX_MAX);
        let (sender, view) = watch::channel(Arc::new(RunView::of(&state)));
        let is_child = state.manifest().parent.is_some();
        let handle = Handle { is_child, commands: commands.clone(), view };
        self.0.live.lock().insert(run_id.clone(), handle.clone());
        self.changed();
        let drain = self.0.drain.clone();
        let begin = Begin { runs: self.clone(), state, fence, inbox: (commands, inbox), view: sender, drain };
        let driver = Driver::new(Arc::clone(&self.0.shared), begin);
        let runs = self.clone();
        self.0.tracker.spawn(async move {
            // A task of its own, so that a panic of one driver is seen and ends nothing else.
            let driving = tokio::spawn(driver.drive());
            match driving.await {
                Ok(Ok(())) => {}
                Ok(Err(driver::Lost::Quarantine(reason))) => runs.quarantine(&run_id, reason),
                // Nobody drives it here any more: that is said wherever the run is looked at.
                Ok(Err(lost @ driver::Lost::Lease(_))) => runs.quarantine(&run_id, lost.to_string()),
                Ok(Err(lost @ driver::Lost::Draining(_))) => tracing::warn!(run_id, %lost, "run not driven any more"),
                Err(panic) => runs.quarantine(&run_id, format!("its driver failed: {panic}")),
            }
            runs.0.live.lock().remove(&run_id);
            runs.changed();
            drop(room);
        });
        handle
    }
}
