//! `ShadowRuns`: recorded runs played by a candidate plan; nothing is dispatched, nothing is written.

use std::sync::Arc;

use proto::{
    fault::{Fault, Reason},
    runner::v1::{self as pb, ShadowDifference, ShadowReport, ShadowRunsRequest, ShadowRunsResponse},
};
use runner_core::{
    manifest::Manifest,
    shadow::{Difference, DifferenceKind, Recording, Report},
    state::State,
};
use tonic::Request;

use super::{RunnerApi, load_fault, shown, start_run, wire};
use crate::{
    access::Permission,
    journal::Journal,
    runs::{
        RunStatus,
        load::{self, LoadError},
    },
};

/// Most runs of one call.
const RUNS_MAX: usize = 100;

/// A report a run, in the order of the request.
pub async fn handle(api: &RunnerApi, request: Request<ShadowRunsRequest>) -> Result<ShadowRunsResponse, Fault> {
    api.allowed(&request, &request.get_ref().namespace, Permission::RunRead)?;
    let asked = request.into_inner();
    if !(1..=RUNS_MAX).contains(&asked.run_ids.len()) {
        let problem = format!("has {} runs: name 1 to {RUNS_MAX}", asked.run_ids.len());
        return Err(Fault::new(Reason::InvalidArgument, format!("run_ids {problem}")).field("run_ids", problem));
    }
    let plan_hash = start_run::plan_hash(&asked.plan_hash)?;
    for run_id in &asked.run_ids {
        api.header(&asked.namespace, run_id)?;
    }
    let start_run::Candidate { plan, pinned, .. } = start_run::candidate(api, &asked.namespace, plan_hash).await?;
    let (plan, pinned) = (Arc::new(plan), Arc::new(pinned));
    let (mut reports, mut differences) = (Vec::new(), Vec::new());
    for run_id in asked.run_ids {
        let journal = api.parts.runs.shared().journal.clone();
        let (plan, pinned, id) = (Arc::clone(&plan), Arc::clone(&pinned), run_id.clone());
        let playing = tokio::task::spawn_blocking(move || {
            let (state, recording) = recorded(&journal, &id).map_err(load_fault)?;
            let source = Manifest::clone(state.manifest());
            let input_digest = recording.input().map_or(source.input_digest, runner_core::payload::Payload::digest);
            let manifest = Manifest {
                plan_hash,
                plan: plan.document().clone(),
                nodes: pinned.nodes.clone(),
                plans: pinned.plans.clone(),
                lineage: None,
                node_policies: source
                    .node_policies
                    .into_iter()
                    .filter(|(node, _)| plan.index_of(node).is_some())
                    .collect(),
                input_digest,
                ..source
            };
            recording.replay(&manifest).map_err(|corrupt| Fault::internal(&corrupt))
        });
        let report = playing.await.map_err(|panic| Fault::internal(&panic))??;
        differences.push(line(&run_id, &report));
        reports.push(told(run_id, report));
    }
    Ok(ShadowRunsResponse { differences, reports })
}

fn recorded(journal: &Journal, run_id: &str) -> Result<(State, Recording), LoadError> {
    let mut recording = Recording::default();
    let state = load::folded(journal, run_id, |entry, state| recording.take(state, entry))?;
    Ok((state, recording))
}

fn line(run_id: &str, report: &Report) -> String {
    let first = report.differences.first().map(|difference| format!("; first: {}", difference.detail));
    let stopped = report.stopped.as_ref().map(|why| format!("; not played to its end: {why}"));
    format!(
        "run {}: {} difference(s){}{}",
        shown(run_id),
        report.differences_total,
        first.unwrap_or_default(),
        stopped.unwrap_or_default()
    )
}

fn told(run_id: String, report: Report) -> ShadowReport {
    let ended = report.outcome.as_ref();
    ShadowReport {
        run_id,
        same: report.differences_total == 0 && report.stopped.is_none(),
        differences: report.differences.into_iter().map(difference).collect(),
        differences_total: u32::try_from(report.differences_total).unwrap_or(u32::MAX),
        supersteps: report.supersteps,
        effects_matched: report.effects_matched,
        status: ended.map_or(pb::RunStatus::Unspecified, |outcome| wire::status(RunStatus::of(outcome))).into(),
        reason: ended.map(runner_core::outcome::RunOutcome::reason).unwrap_or_default(),
        stopped: report.stopped.unwrap_or_default(),
    }
}

fn difference(found: Difference) -> ShadowDifference {
    let kind = match found.kind {
        DifferenceKind::NodeRuns => pb::ShadowDifferenceKind::NodeRuns,
        DifferenceKind::NodeDoesNotRun => pb::ShadowDifferenceKind::NodeDoesNotRun,
        DifferenceKind::Input => pb::ShadowDifferenceKind::Input,
        DifferenceKind::EdgeFires => pb::ShadowDifferenceKind::EdgeFires,
        DifferenceKind::EdgeDoesNotFire => pb::ShadowDifferenceKind::EdgeDoesNotFire,
        DifferenceKind::Outcome => pb::ShadowDifferenceKind::Outcome,
    };
    let (edge_src, edge_dst) = found.edge.unwrap_or_default();
    ShadowDifference {
        kind: kind.into(),
        superstep: found.superstep,
        node: found.node.unwrap_or_default(),
        edge_src,
        edge_dst,
        detail: found.detail,
    }
}
