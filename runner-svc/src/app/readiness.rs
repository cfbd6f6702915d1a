//! Whether this process may get traffic, and why not.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use proto::{
    admin::{Notes, Readiness},
    serve::Health as Reported,
};
use tokio_util::sync::CancellationToken;

use crate::{journal::Health, runs::Runs};

/// How often health checks are told anew, at most.
const TELL_EVERY: std::time::Duration = std::time::Duration::from_millis(250);

/// Ready while calls are `served`, the store takes writes and the process does not drain.
pub fn of(runs: &Runs, served: &Arc<AtomicBool>, drain: &CancellationToken) -> Readiness {
    let (health, served, drain) = (runs.shared().journal.health(), Arc::clone(served), drain.clone());
    Arc::new(move || {
        let now = health.borrow().clone();
        Box::pin(std::future::ready(ready(drain.is_cancelled(), served.load(Ordering::Relaxed), now)))
    })
}

fn ready(draining: bool, served: bool, store: Health) -> Result<(), String> {
    match store {
        _ if draining => Err("draining".to_owned()),
        Health::DiskFull => Err("the disk is full: only cancels and ends of runs are written".to_owned()),
        Health::Unavailable { reason } => Err(format!("the store does not write: {reason}")),
        Health::Ready if !served => Err("taking unfinished runs over: calls are answered once that is done".to_owned()),
        Health::Ready => Ok(()),
    }
}

/// What is not as it should be while the process is ready all the same: runs that are not driven.
pub fn notes(runs: &Runs) -> Notes {
    let runs = runs.clone();
    Arc::new(move || runs.notes())
}

/// Keeps the gRPC health service at what readiness says, until the drain; then it says NOT_SERVING.
pub async fn follow(health: Reported, services: &'static [&'static str], ready: Readiness, drain: CancellationToken) {
    loop {
        health.set(services, ready().await.is_ok()).await;
        if drain.is_cancelled() {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(TELL_EVERY) => {}
            () = drain.cancelled() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_here_before_calls_are_answered_or_after_the_drain_has_begun() {
        let said = |draining, served| ready(draining, served, Health::Ready);
        assert!(said(false, false).unwrap_err().contains("taking unfinished runs over"));
        assert_eq!(said(false, true), Ok(()));
        assert_eq!(said(true, true), Err("draining".to_owned()));
        let silent = Health::Unavailable { reason: "no disk".to_owned() };
        assert!(ready(false, false, silent).unwrap_err().contains("no disk"));
    }
}
