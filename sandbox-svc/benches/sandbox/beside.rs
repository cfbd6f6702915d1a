//! A caller's warm calls alone, and while somebody else does something: in turns, so that what else the machine does meanwhile is
//! in both.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{
    caller::Caller,
    figures::{Targets, Times, median, of, time},
    process::{Process, SOCKET, connect},
    warm::{echo, small},
};

const CALLS: usize = 3_000;
const ROUNDS: usize = 9;
/// How long the others have to begin.
const BEGIN: Duration = Duration::from_millis(500);

/// What the others are told: the round, and when to stop.
#[derive(Clone)]
pub struct Turn {
    pub round: usize,
    stop: Arc<AtomicBool>,
}

impl Turn {
    pub fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

/// Measures, prints, and holds the ratio to its target. The others have a thread and a connection of their own: what is
/// measured is the service, not its clients. Gives the service's resident memory after each round, in bytes.
pub async fn bench<F: Future<Output = ()>>(
    (process, directory): (&Process, &Path),
    what: &str,
    others: impl Fn(Caller, Turn) -> F + Clone + Send + 'static,
    targets: &mut Targets,
) -> Vec<u64> {
    let uri = process.caller.put(&small()).await;
    Times::of(CALLS, || echo(&process.caller, &uri, "quiet")).await;
    let (mut quiet, mut beside, mut ratios) = (Times::default(), Times::default(), Vec::new());
    let mut resident = Vec::new();
    for round in 0..ROUNDS {
        let alone = Times::of(CALLS, || echo(&process.caller, &uri, "quiet")).await;
        let turn = Turn { round, stop: Arc::new(AtomicBool::new(false)) };
        let (socket, others, told) = (directory.join(SOCKET), others.clone(), turn.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { others(connect(&socket), told).await });
        });
        tokio::time::sleep(BEGIN).await;
        let together = Times::of(CALLS, || echo(&process.caller, &uri, "quiet")).await;
        ratios.push(of(together.p99(), alone.p99()));
        quiet.add(alone);
        beside.add(together);
        turn.stop.store(true, Ordering::Relaxed);
        tokio::task::spawn_blocking(|| thread.join().unwrap()).await.unwrap();
        resident.push(process.resident().0);
    }
    time("warm call alone, median", quiet.median());
    time("warm call alone, p99", quiet.p99());
    time(&format!("warm call beside {what}, median"), beside.median());
    time(&format!("warm call beside {what}, p99"), beside.p99());
    targets.at_most(&format!("p99 beside {what} / alone, median of rounds"), median(ratios), 2.0);
    resident
}
