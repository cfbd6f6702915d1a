//! `GetOversightReport`: who could intervene in a run, who did, and how fast it obeyed.

use proto::{
    fault::Fault,
    runner::v1::{GetOversightReportRequest, GetOversightReportResponse},
};
use tonic::Request;

use super::{RunnerApi, load_fault};
use crate::{
    access::Permission,
    evidence::{
        family::{Children, Family},
        oversight::{Oversight, Report, Totals},
    },
    journal::{Journal, ReadError},
    runs::load::{self, LoadError},
};

/// Child runs whose reports are told whole; others are counted.
const CHILDREN_SHOWN_MAX: usize = 100;

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
    let reading = tokio::task::spawn_blocking(move || family(&journal, &run_id, (&respond, &cancel)));
    let report = reading.await.map_err(|panic| Fault::internal(&panic))?.map_err(load_fault)?;
    let report_json = serde_json::to_string(&report).map_err(|cause| Fault::internal(&cause))?;
    Ok(GetOversightReportResponse { report_json })
}

/// The run's report with those of the child runs below it.
fn family(journal: &Journal, run_id: &str, who: (&[String], &[String])) -> Result<Report, LoadError> {
    let (mut family, mut totals) = (Family::default(), Totals::default());
    let (mut report, children) = one(journal, run_id, who)?;
    family.add(children);
    totals.count(&report);
    while let Some(kin) = family.take_next() {
        let (child, children) = match one(journal, kin.run_id.as_str(), who) {
            Ok(read) => read,
            // It was not started.
            Err(LoadError::Read(ReadError::NotFound(_))) => continue,
            Err(error) => return Err(error),
        };
        family.add(children);
        totals.count(&child);
        if report.children.len() < CHILDREN_SHOWN_MAX {
            report.children.push(child);
        } else {
            report.children_left_out += 1;
        }
    }
    report.children_left_out += family.left_out();
    report.totals = Some(totals);
    Ok(report)
}

fn one(
    journal: &Journal,
    run_id: &str,
    (respond, cancel): (&[String], &[String]),
) -> Result<(Report, Children), LoadError> {
    let (mut oversight, mut children) = (Oversight::default(), Children::of(run_id));
    let state = load::folded(journal, run_id, |entry, state| {
        oversight.take(entry, state);
        children.take(entry);
    })?;
    Ok((oversight.report(&state, respond.to_vec(), cancel.to_vec()), children))
}
