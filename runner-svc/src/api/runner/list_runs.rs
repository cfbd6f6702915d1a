//! `ListRuns`: newest first.

use std::collections::BTreeSet;

use content_digest::Digest;
use proto::{
    fault::Fault,
    runner::v1::{ListRunsRequest, ListRunsResponse, Run},
};
use tonic::Request;

use super::{RunnerApi, read_fault, wire};
use crate::{
    access::Permission,
    api::page,
    journal::{LIST_ROWS_MAX, RunRow},
    runs::RunStatus,
};

/// Rows that one call reads at most: a filter that few runs pass ends a page early.
const ROWS_READ_MAX: usize = 10_000;

/// One page.
pub async fn handle(api: &RunnerApi, request: Request<ListRunsRequest>) -> Result<ListRunsResponse, Fault> {
    api.allowed(&request, &request.get_ref().namespace, Permission::RunRead)?;
    let asked = request.into_inner();
    let limit = page::size(asked.page_size)?;
    let plan = match asked.plan_hash.as_str() {
        "" => None,
        hash => Some(super::start_run::plan_hash(hash)?),
    };
    let statuses: BTreeSet<i32> = asked.statuses.iter().copied().collect();
    let mut before = page::number(&asked.page_token)?;
    let (mut runs, mut read) = (Vec::new(), 0);
    while runs.len() < limit && read < ROWS_READ_MAX {
        let rows = rows(api, &asked.namespace, plan, before)?;
        if rows.is_empty() {
            return Ok(ListRunsResponse { runs, next_page_token: String::new() });
        }
        for row in rows {
            (before, read) = (Some(row.number), read + 1);
            if let Some(run) = shown(api, row).filter(|run| statuses.is_empty() || statuses.contains(&run.status)) {
                runs.push(run);
            }
            if runs.len() == limit {
                break;
            }
        }
    }
    Ok(ListRunsResponse { runs, next_page_token: page::token_of(before) })
}

fn rows(api: &RunnerApi, namespace: &str, plan: Option<Digest>, before: Option<u64>) -> Result<Vec<RunRow>, Fault> {
    let journal = &api.parts.runs.shared().journal;
    let limit = LIST_ROWS_MAX.min(256);
    match plan {
        Some(plan) => journal.list_runs_of_plan(namespace, plan, before, limit),
        None => journal.list_runs(namespace, before, limit),
    }
    .map_err(read_fault)
}

/// A run that cannot be read at all is not listed; the log names it.
fn shown(api: &RunnerApi, row: RunRow) -> Option<Run> {
    let info = row.run.inspect_err(|damaged| tracing::warn!(%damaged, "a run is left out of a list")).ok()?;
    let mut run = wire::row(&info.header, &wire::summary(&info)?);
    if let Some(reason) = api.parts.runs.quarantine_of(&info.header.run_id) {
        run.status = wire::status(RunStatus::Quarantined).into();
        run.reason = reason;
    }
    Some(run)
}
