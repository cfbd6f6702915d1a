//! `PauseRun` and `ResumeRun`: both idempotent, both durable when they are answered.

use std::sync::Arc;

use proto::{
    fault::{Fault, Reason},
    runner::v1::{PauseRunRequest, PauseRunResponse, ResumeRunRequest, ResumeRunResponse, Run},
};
use runner_core::{input::Declined, pinned::SUBGRAPH_DEPTH_MAX};
use tokio::sync::oneshot;
use tonic::Request;

use super::{RunnerApi, respond_to_ask::not_driven, shown};
use crate::{
    access::{Permission, Principal},
    runs::{Command, CommandError, RunView},
};

type Reply = oneshot::Sender<Result<Arc<RunView>, CommandError>>;

/// No superstep opens any more.
pub async fn pause(api: &RunnerApi, request: Request<PauseRunRequest>) -> Result<PauseRunResponse, Fault> {
    let by = api.allowed(&request, &request.get_ref().namespace, Permission::RunExecute)?;
    let PauseRunRequest { namespace, run_id } = request.into_inner();
    let run = steer(api, (&namespace, &run_id), |reply| Command::Pause { by: name(&by), reply }).await?;
    Ok(PauseRunResponse { run: Some(run) })
}

/// The next superstep opens.
pub async fn resume(api: &RunnerApi, request: Request<ResumeRunRequest>) -> Result<ResumeRunResponse, Fault> {
    let by = api.allowed(&request, &request.get_ref().namespace, Permission::RunExecute)?;
    let ResumeRunRequest { namespace, run_id } = request.into_inner();
    paused_above(api, &namespace, &run_id)?;
    let run = steer(api, (&namespace, &run_id), |reply| Command::Resume { by: name(&by), reply }).await?;
    Ok(ResumeRunResponse { run: Some(run) })
}

/// A child run of a paused run would be paused again at once: its parent is what has to be resumed.
///
/// # Errors
/// `RUN-E029`, naming the topmost run above it that is paused.
fn paused_above(api: &RunnerApi, namespace: &str, run_id: &str) -> Result<(), Fault> {
    let (mut above, mut paused) = (api.header(namespace, run_id)?.header.parent, None);
    for _level in 0..SUBGRAPH_DEPTH_MAX {
        let Some(parent) = above else { break };
        if api.parts.runs.live(&parent.run_id).is_some_and(|handle| handle.view().paused.is_some()) {
            paused = Some(parent.run_id.clone());
        }
        above = api.header(namespace, &parent.run_id)?.header.parent;
    }
    let Some(parent) = paused else { return Ok(()) };
    let text = format!("run {} is a part of run {}, which is paused: resume that one", shown(run_id), shown(&parent));
    Err(Fault::new(Reason::NotPausable, text).with("run_id", run_id).with("parent_run_id", parent))
}

fn name(by: &Principal) -> String {
    by.as_str().to_owned()
}

async fn steer(
    api: &RunnerApi,
    (namespace, run_id): (&str, &str),
    command: impl FnOnce(Reply) -> Command,
) -> Result<Run, Fault> {
    let info = api.header(namespace, run_id)?;
    let Some(handle) = api.parts.runs.reach(run_id).await else { return Err(not_there(api, run_id).await) };
    let (reply, taken) = oneshot::channel();
    if handle.send(command(reply)).await.is_err() {
        return Err(not_there(api, run_id).await);
    }
    match taken.await.unwrap_or(Err(CommandError::Stopped)) {
        Ok(view) => Ok(api.run(&info.header, &view)),
        Err(CommandError::Declined(declined @ Declined::NotPausable { .. })) => {
            Err(Fault::new(Reason::NotPausable, declined.to_string()).with("run_id", run_id))
        }
        Err(CommandError::Declined(declined @ Declined::TooManyPauses { .. })) => {
            Err(Fault::new(Reason::TooManyEvents, declined.to_string()).with("run_id", run_id))
        }
        Err(CommandError::Declined(declined)) => Err(Fault::internal(&declined)),
        Err(CommandError::Stopped) => Err(not_there(api, run_id).await),
    }
}

async fn not_there(api: &RunnerApi, run_id: &str) -> Fault {
    match api.parts.runs.shared().journal.run(run_id) {
        Ok(now) if now.finished => {
            let declined = Declined::NotPausable { state: "has ended" };
            Fault::new(Reason::NotPausable, declined.to_string()).with("run_id", run_id)
        }
        _ => not_driven(api, run_id).await,
    }
}
