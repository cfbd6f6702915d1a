//! `PauseRun` and `ResumeRun`: both idempotent, both durable when they are answered.

use std::sync::Arc;

use proto::{
    fault::{Fault, Reason},
    runner::v1::{PauseRunRequest, PauseRunResponse, ResumeRunRequest, ResumeRunResponse, Run},
};
use runner_core::input::Declined;
use tokio::sync::oneshot;
use tonic::Request;

use super::{RunnerApi, respond_to_ask::not_driven, wire};
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
    let run = steer(api, (&namespace, &run_id), |reply| Command::Resume { by: name(&by), reply }).await?;
    Ok(ResumeRunResponse { run: Some(run) })
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
        Ok(view) => Ok(wire::run(&info.header, &view)),
        Err(CommandError::Declined(declined @ Declined::NotPausable { .. })) => {
            Err(Fault::new(Reason::NotPausable, declined.to_string()).with("run_id", run_id))
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
