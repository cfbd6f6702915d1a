//! `VerifyRun`: the journal folded again, every decision asked for anew. Dispatches and writes nothing.

use proto::{
    fault::{Fault, Reason},
    runner::v1::{Reexecute, VerifyRunRequest, VerifyRunResponse},
};
use runner_core::verify::{Replay, Verdict};
use tonic::Request;

use super::{RunnerApi, load_fault, wire};
use crate::{
    access::Permission,
    journal::{Journal, ReadError, RunInfo},
    runs::load::{self, LoadError},
};

/// The verdict.
pub async fn handle(api: &RunnerApi, request: Request<VerifyRunRequest>) -> Result<VerifyRunResponse, Fault> {
    let asked = request.get_ref();
    api.allowed(&request, &asked.namespace, Permission::RunRead)?;
    if asked.reexecute != i32::from(Reexecute::Unspecified) {
        let text = "verifying by executing modules again is not in this release: leave reexecute unset";
        return Err(Fault::new(Reason::NotImplemented, text).field("reexecute", "is not in this release"));
    }
    let info = api.header(&asked.namespace, &asked.run_id)?;
    let journal = api.parts.runs.shared().journal.clone();
    let verifying = tokio::task::spawn_blocking(move || verify(&journal, &info));
    let verdict = verifying.await.map_err(|panic| Fault::internal(&panic))??;
    Ok(VerifyRunResponse {
        clean: verdict.is_clean(),
        events: verdict.events,
        decisions: verdict.decisions,
        first_bad_sequence: verdict.divergence.as_ref().map(|divergence| divergence.sequence),
        divergence: verdict.divergence.as_ref().map(ToString::to_string).unwrap_or_default(),
        head_hash: verdict.head.to_hex(),
        state_digest: verdict.state_digest.to_hex(),
    })
}

/// The run as it was when the call came: what its driver adds meanwhile is not looked at.
fn verify(journal: &Journal, info: &RunInfo) -> Result<Verdict, Fault> {
    let mut replay = Replay::new();
    let mut left = info.next_sequence;
    let read = load::entries(journal, &info.header.run_id, 0, |entry| {
        replay.push(&entry);
        left = left.saturating_sub(1);
        Ok::<_, LoadError>(left > 0)
    });
    match read {
        Ok(()) if left > 0 => replay.push_damaged(&format!("the journal ends {left} events too early")),
        Ok(()) => {}
        // The store itself does not answer: that says nothing of the run.
        Err(LoadError::Read(error @ (ReadError::Storage(_) | ReadError::TooManyWatched(_)))) => {
            return Err(load_fault(LoadError::Read(error)));
        }
        Err(damage) => replay.push_damaged(&damage.to_string()),
    }
    Ok(replay.finish(wire::summary(info).map(|summary| summary.head)))
}
