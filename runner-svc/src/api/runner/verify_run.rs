//! `VerifyRun`: the journal folded again, every decision asked for anew, modules executed again if wanted. Writes nothing and
//! lets nothing out.

use std::sync::Arc;

use proto::{
    fault::{Fault, Reason},
    runner::v1::{Reexecute, VerifyRunRequest, VerifyRunResponse},
};
use runner_core::{
    entry::Entry,
    verify::{Replay, Verdict},
};
use tonic::Request;

use super::{RunnerApi, load_fault, wire};
use crate::{
    access::Permission,
    evidence::reexecute::{Again, NotExecuted, Reexecution, Which},
    journal::{ReadError, RunInfo},
    runs::{
        Shared,
        load::{self, LoadError},
    },
};

/// The verdict.
pub async fn handle(api: &RunnerApi, request: Request<VerifyRunRequest>) -> Result<VerifyRunResponse, Fault> {
    let asked = request.get_ref();
    api.allowed(&request, &asked.namespace, Permission::RunRead)?;
    let which = which(api, asked.reexecute)?;
    let info = api.header(&asked.namespace, &asked.run_id)?;
    let shared = Arc::clone(api.parts.runs.shared());
    let runtime = tokio::runtime::Handle::current();
    let verifying = tokio::task::spawn_blocking(move || {
        let reexecution = which.map(|which| Reexecution {
            dispatcher: &shared.dispatcher,
            which,
            effect_timeout: shared.effect_timeout,
            runtime,
        });
        verify(&shared, &info, reexecution.as_ref())
    });
    let (verdict, reexecuted) = verifying.await.map_err(|panic| Fault::internal(&panic))??;
    let divergence = verdict.divergence.as_ref();
    Ok(VerifyRunResponse {
        clean: verdict.is_clean(),
        events: verdict.events,
        decisions: verdict.decisions,
        first_bad_sequence: divergence.map(|divergence| divergence.sequence),
        divergence: divergence.map(ToString::to_string).unwrap_or_default(),
        head_hash: verdict.head.to_hex(),
        state_digest: verdict.state_digest.to_hex(),
        reexecuted,
        divergence_class: divergence.map(|divergence| divergence.class.as_str().to_owned()).unwrap_or_default(),
    })
}

fn which(api: &RunnerApi, reexecute: i32) -> Result<Option<Which>, Fault> {
    let wrong = |problem: &str| {
        let text = format!("reexecute {problem}");
        Err(Fault::new(Reason::InvalidArgument, text).field("reexecute", problem))
    };
    let which = match Reexecute::try_from(reexecute) {
        Ok(Reexecute::Unspecified) => return Ok(None),
        Ok(Reexecute::Pure) => Which::Pure,
        Ok(Reexecute::AllWasm) => Which::AllWasm,
        Err(_) => return wrong("is none that this release knows: give PURE or ALL_WASM"),
    };
    let profile = api.parts.runs.shared().dispatcher.profile();
    match which {
        Which::Pure if profile.sandbox_url || profile.sandbox_cmd => Ok(Some(which)),
        Which::AllWasm if profile.sandbox_url => Ok(Some(which)),
        Which::Pure => wrong("needs a sandbox: configure --sandbox-url or --sandbox-cmd"),
        Which::AllWasm => wrong("ALL_WASM needs a sandbox service: configure --sandbox-url"),
    }
}

/// What a verification ends early for: the run's records, or something that says nothing of the run.
enum Stopped {
    Load(LoadError),
    NotExecuted(NotExecuted),
}

impl From<LoadError> for Stopped {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}

/// The run as it was when the call came, and how many effects were executed again. What its driver adds meanwhile is not
/// looked at.
fn verify(shared: &Shared, info: &RunInfo, again: Option<&Reexecution<'_>>) -> Result<(Verdict, u64), Fault> {
    let (mut replay, mut reexecuted) = (Replay::new(), 0);
    let mut left = info.next_sequence;
    let read = load::entries(&shared.journal, &info.header.run_id, 0, |entry| {
        let found = execute(&replay, &entry, again)?;
        replay.push(&entry);
        match found {
            Again::Not => {}
            Again::Same => reexecuted += 1,
            Again::Different(problem) => {
                reexecuted += 1;
                replay.push_execution(entry.sequence(), &problem);
            }
        }
        left = left.saturating_sub(1);
        Ok::<_, Stopped>(left > 0 && replay.divergence().is_none())
    });
    match read {
        Ok(()) if left > 0 && replay.divergence().is_none() => {
            replay.push_damaged(&format!("the journal ends {left} events too early"));
        }
        Ok(()) => {}
        Err(Stopped::NotExecuted(cause)) => return Err(Fault::new(Reason::DependencyUnavailable, cause.to_string())),
        // The store itself does not answer: that says nothing of the run.
        Err(Stopped::Load(LoadError::Read(error @ (ReadError::Storage(_) | ReadError::TooManyWatched(_))))) => {
            return Err(load_fault(LoadError::Read(error)));
        }
        Err(Stopped::Load(damage)) => replay.push_damaged(&damage.to_string()),
    }
    Ok((replay.finish(wire::summary(info).map(|summary| summary.head)), reexecuted))
}

fn execute(replay: &Replay, entry: &Entry, again: Option<&Reexecution<'_>>) -> Result<Again, Stopped> {
    match again.filter(|_| replay.divergence().is_none()) {
        Some(reexecution) => reexecution.look(replay, entry).map_err(Stopped::NotExecuted),
        None => Ok(Again::Not),
    }
}
