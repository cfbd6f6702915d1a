//! `WaitRun`: until the end, or until a person is asked. The deadline of the call bounds the wait.

use proto::{
    fault::Fault,
    runner::v1::{Run, WaitRunRequest, WaitRunResponse},
};
use tonic::Request;

use super::{RunnerApi, draining, get_run};
use crate::{
    access::Permission,
    journal::RunInfo,
    runs::{Handle, RunStatus, RunView},
};

/// The run as it stands after the wait.
pub async fn handle(api: &RunnerApi, request: Request<WaitRunRequest>) -> Result<WaitRunResponse, Fault> {
    let asked = request.get_ref();
    api.allowed(&request, &asked.namespace, Permission::RunRead)?;
    let info = api.header(&asked.namespace, &asked.run_id)?;
    Ok(WaitRunResponse { run: Some(until(api, &info, asked.until_ask).await?) })
}

/// Waits on the run's driver; a run that is not driven is as it is.
pub async fn until(api: &RunnerApi, info: &RunInfo, or_ask: bool) -> Result<Run, Fault> {
    match api.parts.runs.reach(&info.header.run_id).await {
        Some(handle) => follow(api, info, &handle, or_ask).await,
        None => get_run::view(api, info).await,
    }
}

/// Whether only people can move the run on.
fn rests(view: &RunView) -> bool {
    matches!(view.summary.status, RunStatus::Waiting | RunStatus::Paused)
}

async fn follow(api: &RunnerApi, info: &RunInfo, handle: &Handle, or_ask: bool) -> Result<Run, Fault> {
    let mut views = handle.follow();
    let reached = views.wait_for(|view| view.is_over() || (or_ask && rests(view)));
    let reached = api.parts.drain.run_until_cancelled(reached).await;
    match reached.map(|view| view.map(|view| std::sync::Arc::clone(&view))) {
        Some(Ok(view)) => Ok(get_run::driven(api, info, &view)),
        // Not driven here any more before it was reached.
        Some(Err(_)) => get_run::view(api, info).await,
        None => Err(draining()),
    }
}
