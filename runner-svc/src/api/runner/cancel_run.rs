//! `CancelRun`: idempotent; exactly one of canceled or already finished.

use proto::{
    fault::{Fault, Reason},
    runner::v1::{CancelResult, CancelRunRequest, CancelRunResponse, RunStatus},
};
use runner_core::event::Event;
use tokio::sync::oneshot;
use tonic::Request;

use super::{RunnerApi, get_run, load_fault};
use crate::{
    access::Permission,
    runs::{
        Command, CommandError,
        load::{self, LoadError},
    },
};

/// Longest reason, in bytes.
const REASON_BYTES_MAX: usize = 1024;

/// The receipt, once the run has ended.
pub async fn handle(api: &RunnerApi, request: Request<CancelRunRequest>) -> Result<CancelRunResponse, Fault> {
    let by = api.allowed(&request, &request.get_ref().namespace, Permission::RunCancel)?;
    let asked = request.into_inner();
    if asked.reason.len() > REASON_BYTES_MAX {
        let problem = format!("has {} bytes: give at most {REASON_BYTES_MAX}", asked.reason.len());
        return Err(Fault::new(Reason::InvalidArgument, format!("reason {problem}")).field("reason", problem));
    }
    let info = api.header(&asked.namespace, &asked.run_id)?;
    let Some(handle) = api.parts.runs.reach(&asked.run_id).await else { return finished(api, &info).await };
    let (reply, receipt) = oneshot::channel();
    let command = Command::Cancel { by: by.as_str().to_owned(), reason: asked.reason, reply };
    let receipt = match handle.send(command).await {
        Ok(()) => receipt.await.unwrap_or(Err(CommandError::Stopped)),
        Err(stopped) => Err(stopped),
    };
    match receipt {
        Ok(receipt) => Ok(CancelRunResponse {
            result: result(receipt.canceled).into(),
            fence_sequence: receipt.fence_sequence,
            effects_stopped: receipt.effects_stopped,
            tokens_revoked: receipt.tokens_revoked,
            run: Some(get_run::driven(api, &info, &receipt.view)),
        }),
        // It ended between the look and the call, or this process does not drive it any more.
        Err(_) => finished(api, &info).await,
    }
}

async fn finished(api: &RunnerApi, info: &crate::journal::RunInfo) -> Result<CancelRunResponse, Fault> {
    let info = api.header(&info.header.namespace, &info.header.run_id)?;
    let run = get_run::view(api, &info).await?;
    if !info.finished {
        return Err(super::respond_to_ask::not_driven(api, &info.header.run_id));
    }
    let canceled = run.status() == RunStatus::Canceled;
    let fence_sequence = if canceled { fence(api, &info.header.run_id).await? } else { 0 };
    Ok(CancelRunResponse { result: result(canceled).into(), fence_sequence, run: Some(run), ..Default::default() })
}

/// Where the cancel of an ended run stands in its journal.
async fn fence(api: &RunnerApi, run_id: &str) -> Result<u64, Fault> {
    let (journal, run_id) = (api.parts.runs.shared().journal.clone(), run_id.to_owned());
    let reading = tokio::task::spawn_blocking(move || {
        let mut fence = 0;
        load::entries(&journal, &run_id, 0, |entry| {
            let is_cancel = matches!(entry.event(), Event::CancelRequested { .. });
            if is_cancel {
                fence = entry.sequence();
            }
            Ok::<_, LoadError>(!is_cancel)
        })?;
        Ok(fence)
    });
    reading.await.map_err(|panic| Fault::internal(&panic))?.map_err(load_fault)
}

fn result(canceled: bool) -> CancelResult {
    if canceled { CancelResult::Canceled } else { CancelResult::AlreadyFinished }
}
