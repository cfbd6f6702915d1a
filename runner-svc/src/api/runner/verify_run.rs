//! `VerifyRun`: the journal folded again, every decision asked for anew, modules executed again if wanted. Writes nothing and
//! lets nothing out.

use std::sync::Arc;

use proto::{
    fault::{Fault, Reason},
    runner::v1::{ChildVerdict, Reexecute, VerifyRunRequest, VerifyRunResponse},
};
use runner_core::{
    entry::Entry,
    verify::{Replay, Verdict},
};
use tonic::Request;

use super::{RunnerApi, load_fault, read_fault, wire};
use crate::{
    access::Permission,
    evidence::{
        family::{Children, Family, Kin},
        reexecute::{Again, NotExecuted, Reexecution, Which},
    },
    journal::{ReadError, RunInfo},
    runs::{
        Shared, index,
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
        family(&shared, &info, reexecution.as_ref())
    });
    verifying.await.map_err(|panic| Fault::internal(&panic))?
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

/// The run and the child runs below it.
fn family(shared: &Shared, info: &RunInfo, again: Option<&Reexecution<'_>>) -> Result<VerifyRunResponse, Fault> {
    let mut family = Family::default();
    let (verdict, reexecuted, children) = verify(shared, info, again)?;
    family.add(children);
    let mut answer = answer(&info.header.run_id, &verdict, reexecuted);
    while let Some(kin) = family.take_next() {
        let child = match shared.journal.run(kin.run_id.as_str()) {
            Ok(child) => child,
            // It was not started yet, or was canceled before.
            Err(ReadError::NotFound(_)) if kin.head.is_none() => continue,
            Err(ReadError::NotFound(_)) => {
                add(&mut answer, bad(&kin, "end", "its parent's journal vouches for it, and it is not in the store"));
                continue;
            }
            Err(ReadError::Damaged(damaged)) => {
                add(&mut answer, bad(&kin, "record", &damaged.to_string()));
                continue;
            }
            Err(error) => return Err(read_fault(error)),
        };
        let (verdict, reexecuted, children) = verify(shared, &child, again)?;
        family.add(children);
        let run_id = kin.run_id.as_str().to_owned();
        let child = match kin.head.filter(|head| *head != verdict.head && verdict.is_clean()) {
            Some(head) => {
                let problem = format!(
                    "the journal of {} says that it ends with {head}, it ends with {}",
                    kin.parent, verdict.head
                );
                let sequence = verdict.events.saturating_sub(1);
                ChildVerdict { first_bad_sequence: Some(sequence), reexecuted, ..bad(&kin, "end", &problem) }
            }
            None => child_verdict(run_id, &verdict, reexecuted),
        };
        add(&mut answer, child);
    }
    answer.children_left_out = family.left_out();
    Ok(answer)
}

fn answer(run_id: &str, verdict: &Verdict, reexecuted: u64) -> VerifyRunResponse {
    let divergence = verdict.divergence.as_ref();
    VerifyRunResponse {
        clean: verdict.is_clean(),
        events: verdict.events,
        decisions: verdict.decisions,
        first_bad_sequence: divergence.map(|divergence| divergence.sequence),
        divergence: divergence.map(ToString::to_string).unwrap_or_default(),
        head_hash: verdict.head.to_hex(),
        state_digest: verdict.state_digest.to_hex(),
        reexecuted,
        divergence_class: divergence.map(|divergence| divergence.class.as_str().to_owned()).unwrap_or_default(),
        children: Vec::new(),
        children_left_out: 0,
        bad_run_id: divergence.map(|_| run_id.to_owned()).unwrap_or_default(),
    }
}

fn child_verdict(run_id: String, verdict: &Verdict, reexecuted: u64) -> ChildVerdict {
    let divergence = verdict.divergence.as_ref();
    ChildVerdict {
        run_id,
        clean: verdict.is_clean(),
        events: verdict.events,
        decisions: verdict.decisions,
        first_bad_sequence: divergence.map(|divergence| divergence.sequence),
        divergence: divergence.map(ToString::to_string).unwrap_or_default(),
        head_hash: verdict.head.to_hex(),
        state_digest: verdict.state_digest.to_hex(),
        reexecuted,
        divergence_class: divergence.map(|divergence| divergence.class.as_str().to_owned()).unwrap_or_default(),
    }
}

/// A child run that cannot be verified.
fn bad(kin: &Kin, class: &str, problem: &str) -> ChildVerdict {
    ChildVerdict {
        run_id: kin.run_id.as_str().to_owned(),
        first_bad_sequence: Some(0),
        divergence: format!("RUN-E009: {problem}"),
        divergence_class: class.to_owned(),
        ..ChildVerdict::default()
    }
}

/// The first child that is not clean is what is told of the whole, unless something before it is.
fn add(answer: &mut VerifyRunResponse, child: ChildVerdict) {
    if answer.clean && !child.clean {
        answer.clean = false;
        answer.first_bad_sequence = child.first_bad_sequence;
        answer.divergence.clone_from(&child.divergence);
        answer.divergence_class.clone_from(&child.divergence_class);
        answer.bad_run_id.clone_from(&child.run_id);
    }
    answer.children.push(child);
}

/// The run as it was when the call came, and how many effects were executed again. What its driver adds meanwhile is not
/// looked at.
fn verify(shared: &Shared, info: &RunInfo, again: Option<&Reexecution<'_>>) -> Result<(Verdict, u64, Children), Fault> {
    let (mut replay, mut reexecuted) = (Replay::new(), 0);
    let mut children = Children::of(&info.header.run_id);
    let mut left = info.next_sequence;
    let read = load::entries(&shared.journal, &info.header.run_id, 0, |entry| {
        let found = execute(&replay, &entry, again)?;
        replay.push(&entry);
        children.take(&entry);
        let of_the_first = replay.state().filter(|_| entry.sequence() == 0);
        if let Some(problem) = of_the_first.and_then(|state| index::header_differs(&info.header, state)) {
            replay.push_index(&problem);
        }
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
        Ok(()) => {
            if let Some(problem) = replay.state().and_then(|state| index::end_differs(info, state)) {
                replay.push_index(&problem);
            }
        }
        Err(Stopped::NotExecuted(cause)) => return Err(Fault::new(Reason::DependencyUnavailable, cause.to_string())),
        // The store itself does not answer: that says nothing of the run.
        Err(Stopped::Load(LoadError::Read(error @ (ReadError::Storage(_) | ReadError::TooManyWatched(_))))) => {
            return Err(load_fault(LoadError::Read(error)));
        }
        Err(Stopped::Load(damage)) => replay.push_damaged(&damage.to_string()),
    }
    Ok((replay.finish(wire::summary(info).map(|summary| summary.head)), reexecuted, children))
}

fn execute(replay: &Replay, entry: &Entry, again: Option<&Reexecution<'_>>) -> Result<Again, Stopped> {
    match again.filter(|_| replay.divergence().is_none()) {
        Some(reexecution) => reexecution.look(replay, entry).map_err(Stopped::NotExecuted),
        None => Ok(Again::Not),
    }
}
