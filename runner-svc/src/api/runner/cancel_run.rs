//! `CancelRun`: idempotent; exactly one of canceled or already finished.

use proto::{
    fault::{Fault, Reason},
    runner::v1::{CancelResult, CancelRunRequest, CancelRunResponse, Run, RunStatus},
};
use runner_core::text::is_hidden;
use tokio::sync::oneshot;
use tonic::Request;

use super::{RunnerApi, get_run, load_fault};
use crate::{
    access::Permission,
    journal::RunInfo,
    runs::{Command, CommandError, load},
};

/// Longest reason, in bytes.
const REASON_BYTES_MAX: usize = 1024;

/// Characters without width that words and signs of many languages are written with.
const JOINERS: [char; 2] = ['\u{200c}', '\u{200d}'];

/// The receipt, once the run has ended.
pub async fn handle(api: &RunnerApi, request: Request<CancelRunRequest>) -> Result<CancelRunResponse, Fault> {
    let by = api.allowed(&request, &request.get_ref().namespace, Permission::RunCancel)?;
    let asked = request.into_inner();
    if asked.reason.len() > REASON_BYTES_MAX {
        let problem = format!("has {} bytes: give at most {REASON_BYTES_MAX}", asked.reason.len());
        return Err(Fault::new(Reason::InvalidArgument, format!("reason {problem}")).field("reason", problem));
    }
    if let Some(hidden) = asked.reason.chars().find(|c| is_hidden(*c) && !JOINERS.contains(c)) {
        let problem = format!("has the character {}: give one line of visible text", hidden.escape_default());
        return Err(Fault::new(Reason::InvalidArgument, format!("reason {problem}")).field("reason", problem));
    }
    let info = api.header(&asked.namespace, &asked.run_id)?;
    let Some(handle) = api.parts.runs.reach(&asked.run_id).await else { return finished(api, &info).await };
    let (reply, told) = oneshot::channel();
    let command = Command::Cancel { by: by.as_str().to_owned(), reason: asked.reason, reply };
    let ended = match handle.send(command).await {
        Ok(()) => told.await.unwrap_or(Err(CommandError::Stopped)),
        Err(stopped) => Err(stopped),
    };
    match ended {
        Ok(ended) => {
            let run = get_run::driven(api, &info, &ended.view);
            receipt(api, &info, run).await
        }
        // It ended between the look and the call, or this process does not drive it any more.
        Err(_) => finished(api, &info).await,
    }
}

async fn finished(api: &RunnerApi, info: &RunInfo) -> Result<CancelRunResponse, Fault> {
    let info = api.header(&info.header.namespace, &info.header.run_id)?;
    let run = get_run::view(api, &info).await?;
    if !info.finished {
        return Err(super::respond_to_ask::not_driven(api, &info.header.run_id).await);
    }
    receipt(api, &info, run).await
}

/// The receipt of a run that has ended, from the journals of the run and its child runs: the same however often it is asked for.
async fn receipt(api: &RunnerApi, info: &RunInfo, run: Run) -> Result<CancelRunResponse, Fault> {
    if run.status() != RunStatus::Canceled {
        let result = CancelResult::AlreadyFinished.into();
        return Ok(CancelRunResponse { result, run: Some(run), ..Default::default() });
    }
    let (journal, run_id) = (api.parts.runs.shared().journal.clone(), info.header.run_id.clone());
    let reading = tokio::task::spawn_blocking(move || load::receipt(&journal, &run_id));
    let receipt = reading.await.map_err(|panic| Fault::internal(&panic))?.map_err(load_fault)?;
    Ok(CancelRunResponse {
        result: CancelResult::Canceled.into(),
        fence_sequence: receipt.sequence,
        effects_stopped: receipt.effects_stopped,
        tokens_revoked: receipt.tokens_revoked,
        run: Some(run),
    })
}
