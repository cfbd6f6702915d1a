//! `ForkRun`: a new run that goes on from where another one was, with the same plan or with another.

use std::sync::Arc;

use proto::{
    fault::{Fault, Reason},
    runner::v1::{ForkRunRequest, ForkRunResponse},
};
use runner_core::{
    child,
    lineage::Lineage,
    manifest::{ENGINE_EPOCH, Manifest, WAVE_EFFECTS_MAX},
    resolve::admit_again,
    run_id::RunId,
    state::State,
};
use tonic::Request;

use super::{
    RunnerApi, get_run, load_fault, shown,
    start_run::{self, Call, options::Options},
};
use crate::{
    access::{Permission, Principal},
    api::refusal,
    journal::RunHeader,
    runs::{Started, load},
};

/// Principals that started the runs before a fork, at most.
const STARTERS_MAX: usize = 64;

/// The fork, or the one that the same call made before.
pub async fn handle(api: &RunnerApi, request: Request<ForkRunRequest>) -> Result<ForkRunResponse, Fault> {
    let principal = api.allowed(&request, &request.get_ref().namespace, Permission::RunExecute)?;
    let asked = request.into_inner();
    let source = api.header(&asked.namespace, &asked.run_id)?;
    let run_id = RunId::parse(&asked.new_run_id)
        .map_err(|refused| refusal::fault(refused).field("new_run_id", "must be 1 to 128 bytes of printable text"))?;
    let at = point(api, &asked).await?;
    let plan_hash = match asked.plan_hash.as_str() {
        "" => source.header.plan_hash,
        text => start_run::plan_hash(text)?,
    };
    let call = Call { namespace: asked.namespace, run_id, plan_hash, input: at.document().clone() };
    let lineage = lineage(&at)?;
    if let Some(header) = start_run::existing(api, call.run_id.as_str())? {
        return found(api, &call, &header, &lineage).await;
    }
    let options = Options::of_fork(asked.options.unwrap_or_default(), at.manifest())?;
    let manifest = if plan_hash == at.manifest().plan_hash {
        same_plan(api, &call, &principal, (options, &at, lineage.clone())).await?
    } else {
        // What is said of nodes is said of the plan before.
        let of_old_plan = options.node_policies == at.manifest().node_policies;
        let node_policies = if of_old_plan { Default::default() } else { options.node_policies };
        let (resolved, _slips) =
            start_run::resolved(api, &call, &principal, Options { node_policies, ..options }).await?;
        Manifest { lineage: Some(Lineage { checkpoint: None, ..lineage.clone() }), ..resolved }
    };
    start_run::priced(&manifest)?;
    match api.parts.runs.start(&manifest, call.input.clone()).await {
        Ok(Started::New(_)) => {
            start_run::warned_of_asks(api, &manifest);
            answered(api, &call).await
        }
        Ok(Started::Existing(header)) => found(api, &call, &header, &lineage).await,
        Err(error) => Err(start_run::start_fault(error)),
    }
}

/// The state that the fork goes on from.
async fn point(api: &RunnerApi, asked: &ForkRunRequest) -> Result<State, Fault> {
    let (journal, run_id, superstep) = (api.parts.runs.shared().journal.clone(), asked.run_id.clone(), asked.superstep);
    let folding = tokio::task::spawn_blocking(move || load::fork_point(&journal, &run_id, superstep));
    let found = folding.await.map_err(|panic| Fault::internal(&panic))?.map_err(load_fault)?;
    let refused = |problem: &str| {
        let text = format!("superstep {superstep} of run {} {problem}", shown(&asked.run_id));
        Fault::new(Reason::InvalidArgument, text).field("superstep", problem)
    };
    let state = found
        .ok_or_else(|| refused("is not closed: name a closed one, or 0 for the last from which a fork goes on"))?;
    if !state.is_forkable() {
        return Err(refused("ended with a failure for good or a cancel: name an earlier one, or 0"));
    }
    Ok(state)
}

fn lineage(at: &State) -> Result<Lineage, Fault> {
    let source = at.manifest();
    let before = source.lineage.iter().flat_map(|lineage| lineage.started_by.iter());
    let mut started_by: Vec<String> = Vec::new();
    for starter in before.chain([&source.principal]).chain(&source.initiator) {
        if !started_by.contains(starter) {
            started_by.push(starter.clone());
        }
    }
    if started_by.len() > STARTERS_MAX {
        let problem = format!("and the runs before it were started by more than {STARTERS_MAX} principals");
        let text = format!("run {} {problem}: start a new run", shown(source.run_id.as_str()));
        return Err(Fault::new(Reason::InvalidArgument, text).field("run_id", problem));
    }
    Ok(Lineage {
        run_id: source.run_id.clone(),
        superstep: at.supersteps(),
        sequence: at.events() - 1,
        head: at.head(),
        started_by,
        checkpoint: at.checkpoint(),
    })
}

/// Takes over what the run froze, without resolving anything again. What the host allows it allows now.
async fn same_plan(
    api: &RunnerApi,
    call: &Call,
    principal: &Principal,
    (options, at, lineage): (Options, &State, Lineage),
) -> Result<Manifest, Fault> {
    let source = Arc::clone(at.manifest());
    options.check(at.plan())?;
    let levels = child::levels(&source.nodes, &source.plans);
    call.run_id
        .leaves_room(levels)
        .map_err(|refused| refusal::fault(refused).field("new_run_id", "must leave room for the ids of child runs"))?;
    let (catalogue, host) = (Arc::clone(&api.parts.catalogue), (api.parts.host)());
    let (frozen, namespace) = (Arc::clone(&source), call.namespace.clone());
    let admitting = tokio::task::spawn_blocking(move || {
        let nodes = frozen.nodes.iter().chain(frozen.plans.values().flat_map(|below| &below.nodes));
        admit_again(nodes, &catalogue.lookup(&namespace), &host.profile())
    });
    if let Some(refused) = admitting.await.map_err(|panic| Fault::internal(&panic))?? {
        return Err(refusal::fault(refused));
    }
    let native_isolation = start_run::native_isolation(api, &source.nodes, &source.plans).await;
    Ok(Manifest {
        run_id: call.run_id.clone(),
        native_isolation,
        parent: None,
        lineage: Some(lineage),
        principal: principal.as_str().to_owned(),
        initiator: options.initiator.filter(|initiator| initiator != principal.as_str()),
        budgets: options.budgets,
        on_dangling: options.on_dangling,
        node_policies: options.node_policies,
        wave_effects_max: Some(WAVE_EFFECTS_MAX),
        reserves_storage: true,
        ask_ttl_ms: options.ask_ttl_ms,
        durability: api.parts.durability,
        policy_digest: start_run::policy_digest(api).await,
        input_digest: call.input.digest(),
        engine_epoch: ENGINE_EPOCH,
        engine_version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at_ms: api.parts.runs.shared().now_ms(),
        ..Manifest::clone(&source)
    })
}

/// A run of this id is there: the same fork again is answered with it, anything else is refused.
async fn found(api: &RunnerApi, call: &Call, header: &RunHeader, lineage: &Lineage) -> Result<ForkRunResponse, Fault> {
    if header.namespace == call.namespace && header.plan_hash == call.plan_hash {
        let state = api.folded(&header.run_id).await?;
        let same = |found: &Lineage| found.run_id == lineage.run_id && found.sequence == lineage.sequence;
        if state.manifest().lineage.as_ref().is_some_and(same) {
            return answered(api, call).await;
        }
    }
    let id = shown(call.run_id.as_str());
    let text = format!("run {id} exists and is not this fork: choose another new_run_id");
    Err(Fault::new(Reason::RunExists, text).field("new_run_id", "is taken"))
}

async fn answered(api: &RunnerApi, call: &Call) -> Result<ForkRunResponse, Fault> {
    let info = api.header(&call.namespace, call.run_id.as_str())?;
    Ok(ForkRunResponse { run: Some(get_run::view(api, &info).await?) })
}
