//! `ListRuns`: newest first; or the child runs of one run, in the order of their start.

use std::collections::BTreeSet;

use content_digest::Digest;
use proto::{
    fault::{Fault, Reason},
    runner::v1::{self as pb, ListRunsRequest, ListRunsResponse, Run},
};
use tonic::Request;

use super::{RunnerApi, load_fault, read_fault, wire};
use crate::{
    access::Permission,
    api::page,
    journal::{Damaged, LIST_ROWS_MAX, Place, RunInfo, RunRow},
    runs::{RunStatus, load},
};

/// Rows that one call reads at most: a filter that few runs pass ends a page early.
const ROWS_READ_MAX: usize = 10_000;

/// One page.
pub async fn handle(api: &RunnerApi, request: Request<ListRunsRequest>) -> Result<ListRunsResponse, Fault> {
    api.allowed(&request, &request.get_ref().namespace, Permission::RunRead)?;
    let asked = request.into_inner();
    let limit = page::size(asked.page_size)?;
    if !asked.parent_run_id.is_empty() {
        return children(api, asked, limit).await;
    }
    let plan = match asked.plan_hash.as_str() {
        "" => None,
        hash => Some(super::start_run::plan_hash(hash)?),
    };
    let statuses = statuses(&asked.statuses)?;
    let filters = statuses.iter().map(|status| status.to_string());
    let with_children = asked.include_children.to_string();
    let filters = [asked.namespace.clone(), asked.plan_hash.clone(), with_children].into_iter().chain(filters);
    let query = page::Query::of("ListRuns", filters);
    let mut before = query.number(&asked.page_token)?;
    let (mut runs, mut read) = (Vec::new(), 0);
    while runs.len() < limit && read < ROWS_READ_MAX {
        let rows = rows(api, &asked.namespace, plan, before)?;
        if rows.is_empty() {
            return Ok(ListRunsResponse { runs, next_page_token: String::new() });
        }
        for row in rows {
            (before, read) = (Some(row.number), read + 1);
            let run = match row.run {
                Ok(info) if !asked.include_children && info.header.parent.is_some() => continue,
                Ok(info) => shown(api, &info),
                Err(damaged) => Some(unreadable(&asked.namespace, &damaged)),
            };
            let passes = |run: &Run| statuses.is_empty() || statuses.contains(&run.status);
            runs.extend(run.filter(passes));
            if runs.len() == limit {
                break;
            }
        }
    }
    Ok(ListRunsResponse { runs, next_page_token: query.token_of(before) })
}

/// A status that does not exist filters nothing out and nothing in: it is refused, not guessed.
fn statuses(asked: &[i32]) -> Result<BTreeSet<i32>, Fault> {
    let known = |status: i32| pb::RunStatus::try_from(status).is_ok_and(|status| status != pb::RunStatus::Unspecified);
    match asked.iter().find(|status| !known(**status)) {
        Some(unknown) => {
            let problem = format!("has {unknown}, which is no status that this release knows");
            Err(Fault::new(Reason::InvalidArgument, format!("statuses {problem}")).field("statuses", problem))
        }
        None => Ok(asked.iter().copied().collect()),
    }
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

/// A run of which the store does not even keep how it stood: that it is there, and why nothing more is said of it. Its id
/// is lost with its header; the reason says what is known of it then.
fn unreadable(namespace: &str, damaged: &Damaged) -> Run {
    let has_id = damaged.place != Place::Header;
    Run {
        run_id: if has_id { damaged.run_id.clone() } else { String::new() },
        namespace: namespace.to_owned(),
        status: wire::status(RunStatus::Quarantined).into(),
        reason: damaged.to_string(),
        ..Run::default()
    }
}

/// As its driver sees it, where it is driven: that a child run of it asks a person is in its own journal nowhere.
fn shown(api: &RunnerApi, info: &RunInfo) -> Option<Run> {
    if let Some(handle) = api.parts.runs.live(&info.header.run_id) {
        return Some(wire::row(&info.header, &handle.view().summary));
    }
    let mut run = wire::row(&info.header, &wire::summary(info)?);
    if let Some(reason) = api.parts.runs.quarantine_of(&info.header.run_id) {
        run.status = wire::status(RunStatus::Quarantined).into();
        run.reason = reason;
    }
    Some(run)
}

/// The child runs of a run, as its journal has them.
async fn children(api: &RunnerApi, asked: ListRunsRequest, limit: usize) -> Result<ListRunsResponse, Fault> {
    if !asked.plan_hash.is_empty() {
        let text = "plan_hash and parent_run_id do not go together: give one of them";
        return Err(Fault::new(Reason::InvalidArgument, text).field("plan_hash", "must be empty with parent_run_id"));
    }
    let parent = api.header(&asked.namespace, &asked.parent_run_id)?;
    let statuses = statuses(&asked.statuses)?;
    let filters = statuses.iter().map(|status| status.to_string());
    let filters = [asked.namespace.clone(), asked.parent_run_id.clone()].into_iter().chain(filters);
    let query = page::Query::of("ListRuns of a parent", filters);
    let from = usize::try_from(query.number(&asked.page_token)?.unwrap_or(0)).map_err(|_| page::bad_token())?;
    let (journal, parent_id) = (api.parts.runs.shared().journal.clone(), parent.header.run_id);
    let reading = tokio::task::spawn_blocking(move || load::effects(&journal, &parent_id));
    let (_, effects) = reading.await.map_err(|panic| Fault::internal(&panic))?.map_err(load_fault)?;
    let ids: Vec<_> = effects.into_iter().filter_map(|effect| effect.child_run).collect();
    let page = ids.iter().skip(from).take(limit);
    let next = from + page.len();
    // A child whose start is still to come has no journal yet.
    let infos = page.filter_map(|id| api.header(&asked.namespace, id.as_str()).ok());
    let runs = infos.filter_map(|info| shown(api, &info));
    let passes = |run: &Run| statuses.is_empty() || statuses.contains(&run.status);
    let next_page_token = query.token_of((next < ids.len()).then_some(next as u64));
    Ok(ListRunsResponse { runs: runs.filter(passes).collect(), next_page_token })
}
