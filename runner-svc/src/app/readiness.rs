//! Whether this process may get traffic, and why not.

use std::sync::Arc;

use proto::{
    admin::{Notes, Readiness},
    serve::Health as Reported,
};
use tokio_util::sync::CancellationToken;

use crate::{journal::Health, runs::Runs};

/// How often health checks are told anew, at most.
const TELL_EVERY: std::time::Duration = std::time::Duration::from_millis(250);

/// Ready while the store takes writes and the process does not drain.
pub fn of(runs: &Runs, drain: &CancellationToken) -> Readiness {
    let (health, drain) = (runs.shared().journal.health(), drain.clone());
    Arc::new(move || {
        let now = health.borrow().clone();
        let ready = match now {
            _ if drain.is_cancelled() => Err("draining".to_owned()),
            Health::Ready => Ok(()),
            Health::DiskFull => Err("the disk is full: only cancels and ends of runs are written".to_owned()),
            Health::Unavailable { reason } => Err(format!("the store does not write: {reason}")),
        };
        Box::pin(std::future::ready(ready))
    })
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
