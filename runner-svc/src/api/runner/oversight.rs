//! `GetOversightReport`: who could intervene in a run, who did, and how fast it obeyed.

use proto::{
    fault::Fault,
    runner::v1::{GetOversightReportRequest, GetOversightReportResponse},
};
use tonic::Request;

use super::{RunnerApi, load_fault};
use crate::{access::Permission, evidence::oversight::Oversight, runs::load};

/// The report, one JSON text.
pub async fn handle(
    api: &RunnerApi,
    request: Request<GetOversightReportRequest>,
) -> Result<GetOversightReportResponse, Fault> {
    let asked = request.get_ref();
    api.allowed(&request, &asked.namespace, Permission::RunRead)?;
    let info = api.header(&asked.namespace, &asked.run_id)?;
    let access = &api.parts.access;
    let respond = access.holders(&asked.namespace, Permission::RunRespond);
    let cancel = access.holders(&asked.namespace, Permission::RunCancel);
    let (journal, run_id) = (api.parts.runs.shared().journal.clone(), info.header.run_id);
    let reading = tokio::task::spawn_blocking(move || {
        let mut oversight = Oversight::default();
        let state = load::folded(&journal, &run_id, |entry, state| oversight.take(entry, state))?;
        Ok(oversight.report(&state, respond, cancel))
    });
    let report = reading.await.map_err(|panic| Fault::internal(&panic))?.map_err(load_fault)?;
    let report_json = serde_json::to_string(&report).map_err(|cause| Fault::internal(&cause))?;
    Ok(GetOversightReportResponse { report_json })
}
