//! `StartRun`: every gate in its order, then the manifest, durable before the answer.

pub(super) mod options;
mod policies;

use std::{sync::Arc, time::Duration};

use content_digest::Digest;
use proto::{
    fault::{Fault, Reason},
    runner::v1::{StartRunRequest, StartRunResponse, start_run_request::InputDocument},
};
use runner_core::{
    manifest::{ENGINE_EPOCH, Manifest, WAVE_EFFECTS_MAX},
    payload::Payload,
    pinned::{NodeKind, PinnedNode, PinnedPlans, executes_natively},
    plan::Plan,
    read_input,
    refusal::Refusal,
    resolve::{Pinned, resolve},
    run_id::RunId,
    slips,
};
use serde_json::Value;
use tonic::Request;

use self::options::Options;
use super::{RunnerApi, get_run, read_fault, shown, wait_run};
use crate::{
    access::{Permission, Principal},
    api::{catalog::HostOffer, document, refusal},
    catalogue::Catalogue,
    journal::{CreateError, ReadError, RunHeader},
    runs::{StartError, Started},
};

/// When to try again after the cap on concurrent runs.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Longest wait for the broker's policy digest: without an answer the manifest says none.
const POLICY_WAIT: Duration = Duration::from_secs(2);

/// Starts the run, or finds it started by the same call.
pub async fn handle(api: &RunnerApi, request: Request<StartRunRequest>) -> Result<StartRunResponse, Fault> {
    let principal = api.allowed(&request, &request.get_ref().namespace, Permission::RunExecute)?;
    let asked = request.into_inner();
    let run_id = RunId::parse(&asked.run_id)
        .map_err(|refused| refusal::fault(refused).field("run_id", "must be 1 to 128 bytes of printable text"))?;
    let input = input(asked.input_document)?;
    let plan_hash = plan_hash(&asked.plan_hash)?;
    let call = Call { namespace: asked.namespace, run_id, plan_hash, input };
    if let Some(header) = existing(api, call.run_id.as_str())? {
        return found(api, &call, &header, asked.wait).await;
    }
    let options = Options::read(asked.options.unwrap_or_default())?;
    let (manifest, mut warnings) = resolved(api, &call, &principal, options).await?;
    priced(&manifest)?;
    match api.parts.runs.start(&manifest, call.input.clone()).await {
        Ok(Started::New(_)) => {
            warnings.extend(warned_of_asks(api, &manifest));
            Ok(StartRunResponse { warnings, ..answered(api, &call, false, asked.wait).await? })
        }
        Ok(Started::Existing(header)) => found(api, &call, &header, asked.wait).await,
        Err(error) => Err(start_fault(error)),
    }
}

/// What is said, also in the log, when the run has asks, itself or below it, that nobody who is known here can answer.
pub(super) fn warned_of_asks(api: &RunnerApi, manifest: &Manifest) -> Option<String> {
    let below = manifest.plans.values().flat_map(|pinned| &pinned.nodes);
    let mut nodes = manifest.nodes.iter().chain(below);
    let asking = nodes.find(|node| node.tool.kind() == NodeKind::Client)?;
    let respond = api.parts.access.holders(&manifest.namespace, Permission::RunRespond);
    if respond.iter().any(|name| !manifest.was_started_by(name)) {
        return None;
    }
    const SAID: &str = "the run asks people, and no principal with run.respond but those who started it is known: its asks \
                        cannot be answered; name another one in --tokens-file";
    tracing::warn!(run_id = manifest.run_id.as_str(), node = asking.node, "{SAID}");
    Some(format!("node {}: {SAID}", shown(&asking.node)))
}

/// A budget of money needs prices to be counted in.
///
/// # Errors
/// `RUN-E006`, saying what to configure.
pub(super) fn priced(manifest: &Manifest) -> Result<(), Fault> {
    let unpriced = manifest.model().filter(|model| model.price.is_none());
    let Some((model, budget)) = unpriced.zip(manifest.budgets.max_usd_micros) else { return Ok(()) };
    let text = format!(
        "max_usd_micros is {budget} and the price of the model {} is not known: start the runner with --model-input-price and \
         --model-output-price, or leave the budget out",
        shown(&model.name)
    );
    Err(Fault::new(Reason::NoModel, text).field("options.budgets.max_usd_micros", "needs the model's prices"))
}

/// A plan's address from a request.
pub fn plan_hash(text: &str) -> Result<Digest, Fault> {
    text.parse().map_err(|_| {
        let text =
            format!("plan_hash {} is no address: give the 64 hex digits that PutPlan answered with", shown(text));
        Fault::new(Reason::Unresolved, text).field("plan_hash", "must be 64 hex digits")
    })
}

pub(super) struct Call {
    pub(super) namespace: String,
    pub(super) run_id: RunId,
    pub(super) plan_hash: Digest,
    pub(super) input: Payload,
}

fn input(document: Option<InputDocument>) -> Result<Payload, Fault> {
    let text = match document {
        None => "{}".to_owned(),
        Some(InputDocument::InputJson(text)) => text,
        Some(InputDocument::Input(structure)) => Value::Object(document::of_struct("input", structure)?).to_string(),
    };
    read_input(&text).map_err(|refused| refusal::fault(refused).field("input_json", "must be JSON of at most 8 MiB"))
}

pub(super) fn existing(api: &RunnerApi, run_id: &str) -> Result<Option<RunHeader>, Fault> {
    match api.parts.runs.shared().journal.run(run_id) {
        Ok(info) => Ok(Some(info.header)),
        Err(ReadError::NotFound(_)) => Ok(None),
        Err(error) => Err(read_fault(error)),
    }
}

/// A run of this id is there: the same call again is answered with it, any other is refused. Of a run in another namespace
/// nothing is told but that the id is taken.
async fn found(api: &RunnerApi, call: &Call, header: &RunHeader, wait: bool) -> Result<StartRunResponse, Fault> {
    let same = header.namespace == call.namespace
        && header.plan_hash == call.plan_hash
        && header.input_digest == call.input.digest();
    if same {
        return answered(api, call, true, wait).await;
    }
    let id = shown(call.run_id.as_str());
    let differs = if header.namespace != call.namespace {
        "elsewhere"
    } else if header.plan_hash != call.plan_hash {
        "with another plan"
    } else {
        "with another input"
    };
    let text = format!("run {id} exists {differs}: choose another run id");
    Err(Fault::new(Reason::RunExists, text).field("run_id", "is taken"))
}

async fn answered(api: &RunnerApi, call: &Call, existing: bool, wait: bool) -> Result<StartRunResponse, Fault> {
    let info = api.header(&call.namespace, call.run_id.as_str())?;
    let run = if wait { wait_run::until(api, &info, true).await? } else { get_run::view(api, &info).await? };
    Ok(StartRunResponse { run: Some(run), existing, warnings: Vec::new() })
}

/// Reads the plan, checks it, resolves each node; what comes out names everything that the run will use. And what in the plan
/// looks like a slip.
pub(super) async fn resolved(
    api: &RunnerApi,
    call: &Call,
    principal: &Principal,
    options: Options,
) -> Result<(Manifest, Vec<String>), Fault> {
    let plan_hash = call.plan_hash;
    let Candidate { plan, pinned, slips } = candidate(api, &call.namespace, plan_hash).await?;
    options.check(&plan)?;
    call.run_id
        .leaves_room(pinned.levels)
        .map_err(|refused| refusal::fault(refused).field("run_id", "must leave room for the ids of child runs"))?;
    let initiator = options.initiator.filter(|initiator| initiator != principal.as_str());
    let native_isolation = native_isolation(api, &pinned.nodes, &pinned.plans).await;
    let manifest = Manifest {
        run_id: call.run_id.clone(),
        namespace: call.namespace.clone(),
        plan_hash,
        plan: plan.document().clone(),
        nodes: pinned.nodes,
        plans: pinned.plans,
        parent: None,
        lineage: None,
        principal: principal.as_str().to_owned(),
        initiator,
        budgets: options.budgets,
        on_dangling: options.on_dangling,
        node_policies: options.node_policies,
        ask_ttl_ms: options.ask_ttl_ms,
        wave_effects_max: Some(WAVE_EFFECTS_MAX),
        reserves_storage: true,
        durability: api.parts.durability,
        policy_digest: policy_digest(api).await,
        native_isolation,
        input_digest: call.input.digest(),
        engine_epoch: ENGINE_EPOCH,
        engine_version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at_ms: api.parts.runs.shared().now_ms(),
    };
    Ok((manifest, slips))
}

/// Of the broker's policy in force; none without a broker, or when it does not answer.
pub(super) async fn policy_digest(api: &RunnerApi) -> Option<Digest> {
    let asking = api.parts.runs.shared().dispatcher.policy_digest();
    tokio::time::timeout(POLICY_WAIT, asking).await.ok().and_then(Result::ok).flatten()
}

/// A plan as a start would run it.
pub(super) struct Candidate {
    pub(super) plan: Plan,
    pub(super) pinned: Pinned,
    /// What in it looks like a slip of the pen.
    slips: Vec<String>,
}

/// Resolves a plan as a start would, for a run that is not started.
pub(super) async fn candidate(api: &RunnerApi, namespace: &str, plan_hash: Digest) -> Result<Candidate, Fault> {
    let (catalogue, host) = (Arc::clone(&api.parts.catalogue), (api.parts.host)());
    let namespace = namespace.to_owned();
    let resolving = tokio::task::spawn_blocking(move || pinned(&catalogue, &namespace, plan_hash, &host));
    resolving.await.map_err(|panic| Fault::internal(&panic))?
}

/// What isolates native blobs now; nobody is asked for a run that executes none.
pub(super) async fn native_isolation(api: &RunnerApi, nodes: &[PinnedNode], plans: &PinnedPlans) -> Vec<String> {
    if !executes_natively(nodes, plans) {
        return Vec::new();
    }
    let asking = api.parts.runs.shared().dispatcher.native_isolation();
    tokio::time::timeout(POLICY_WAIT, asking).await.unwrap_or_default()
}

fn pinned(catalogue: &Catalogue, namespace: &str, plan_hash: Digest, host: &HostOffer) -> Result<Candidate, Fault> {
    let refused = |refused: Refusal| refusal::fault(refused);
    let fields = catalogue.plan_fields(&plan_hash)?.map_err(refused)?;
    let first = |refusals: Vec<Refusal>| refusals.into_iter().next();
    let plan = Plan::from_fields(&fields).map_err(|refusals| match first(refusals) {
        Some(refusal) => refused(refusal),
        None => Fault::internal(&"a plan was refused without a reason"),
    })?;
    let resolution = resolve(plan.document(), &catalogue.lookup(namespace), &host.profile())?;
    Ok(Candidate { plan, pinned: resolution.into_pinned().map_err(refused)?, slips: slips::of_plan(&fields) })
}

pub(super) fn start_fault(error: StartError) -> Fault {
    match error {
        StartError::TooMany(_) => Fault::new(Reason::TooManyRuns, error.to_string()).retry_after(RETRY_AFTER),
        StartError::Create(CreateError::TooLarge(large)) => Fault::new(Reason::TooLarge, large.to_string()),
        StartError::Create(CreateError::Damaged(damaged)) => Fault::new(Reason::Damaged, damaged.to_string()),
        StartError::Create(CreateError::Storage(storage)) => {
            Fault::new(Reason::StorageUnavailable, storage.reason).retry_after(RETRY_AFTER)
        }
        StartError::Create(CreateError::AlreadyExists(_)) | StartError::Broken(_) => Fault::internal(&error),
    }
}
