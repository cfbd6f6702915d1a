//! `GetRun`, and the view of a run that others answer with.

use proto::{
    fault::Fault,
    runner::v1::{GetRunRequest, GetRunResponse, Run},
};
use runner_core::why::Waiting;
use tonic::Request;

use super::{RunnerApi, wire};
use crate::{
    access::Permission,
    journal::RunInfo,
    runs::{Quarantined, Recovering, RunStatus, RunView, Summary},
};

/// The run as it durably stands.
pub async fn handle(api: &RunnerApi, request: Request<GetRunRequest>) -> Result<GetRunResponse, Fault> {
    let (namespace, run_id) = (&request.get_ref().namespace, &request.get_ref().run_id);
    api.allowed(&request, namespace, Permission::RunRead)?;
    let info = api.header(namespace, run_id)?;
    Ok(GetRunResponse { run: Some(view(api, &info).await?) })
}

/// From its driver while it is driven, else from its journal.
pub async fn view(api: &RunnerApi, info: &RunInfo) -> Result<Run, Fault> {
    let run_id = &info.header.run_id;
    if let Some(handle) = api.parts.runs.live(run_id) {
        return Ok(driven(api, info, &handle.view()));
    }
    if let Some(quarantine) = api.parts.runs.quarantined_since(run_id) {
        return Ok(quarantined(info, quarantine));
    }
    if let Some(recovering) = api.parts.runs.recovering(run_id) {
        return Ok(not_taken_over(info, &recovering));
    }
    let state = api.folded(run_id).await?;
    Ok(api.run(&info.header, &RunView::of(&state)))
}

/// What can be said of a run that no driver has yet: where it stood, and what its recovery waits for.
fn not_taken_over(info: &RunInfo, recovering: &Recovering) -> Run {
    let mut run = wire::summary(info).map_or_else(Run::default, |summary| wire::row(&info.header, &summary));
    if recovering.failed {
        run.reason.clone_from(&recovering.what);
    }
    run.waiting = vec![wire::waiting(&Waiting {
        what: format!("recovery: {}", recovering.what),
        since_ms: recovering.since_ms,
        unblocked_by: recovering.unblocked_by.to_owned(),
        barred: Vec::new(),
    })];
    run
}

/// A run as its driver sees it, with its asks and those of its child runs.
pub fn driven(api: &RunnerApi, info: &RunInfo, view: &RunView) -> Run {
    let asks = api.parts.runs.asks(&info.header.run_id);
    Run { asks: asks.iter().map(wire::ask).collect(), ..api.run(&info.header, view) }
}

/// What can be said of a run whose records are damaged.
fn quarantined(info: &RunInfo, quarantine: Quarantined) -> Run {
    let Quarantined { reason, since_ms } = quarantine;
    let what = format!("quarantined: {reason}");
    let unblocked_by = "its repair and a restart, or a fork of what is whole of it".to_owned();
    let waiting = vec![wire::waiting(&Waiting { what, since_ms, unblocked_by, barred: Vec::new() })];
    let summary = wire::summary(info).unwrap_or(Summary {
        status: RunStatus::Quarantined,
        reason: String::new(),
        failed_node: None,
        finished_at_ms: None,
        spent: Default::default(),
        events: info.next_sequence,
        head: content_digest::Digest::ZERO,
    });
    let row = wire::row(&info.header, &Summary { status: RunStatus::Quarantined, reason, ..summary });
    Run { waiting, ..row }
}
