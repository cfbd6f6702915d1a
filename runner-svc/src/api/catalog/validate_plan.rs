//! `ValidatePlan`: everything that keeps a plan from starting here, at once.

use proto::{
    fault::{Fault, Reason},
    runner::v1::{PlanProblem, ValidatePlanRequest, ValidatePlanResponse, validate_plan_request::Plan as Form},
};
use runner_core::{
    plan::Plan,
    refusal::{Refusal, RefusalCode},
    resolve::{HostProfile, resolve},
};
use serde_json::{Map, Value};
use tonic::Request;

use super::{CatalogApi, HostOffer, failure, put_blob::digest, stored};
use crate::{
    access::Permission,
    api::refusal::reason,
    catalogue::{Catalogue, CatalogueError, authored},
};

/// Checks the plan as a start would, and stores nothing.
pub async fn handle(api: &CatalogApi, request: Request<ValidatePlanRequest>) -> Result<ValidatePlanResponse, Fault> {
    let principal = api.caller(&request)?;
    let request = request.into_inner();
    if request.namespace.is_empty() {
        return Err(failure::invalid("namespace", "is required"));
    }
    api.parts.access.allow(&principal, &request.namespace, Permission::RunRead)?;
    let source = match request.plan {
        Some(Form::PlanHash(hash)) => Source::Stored(digest("plan_hash", &hash)?),
        Some(Form::PlanJson(text)) => Source::Document(members(stored::Form::Text(text))?),
        Some(Form::Document(structure)) => Source::Document(members(stored::Form::Structure(structure))?),
        None => return Err(failure::invalid("plan_hash", "or plan_json or document is required")),
    };
    let (namespace, host) = (request.namespace, (api.parts.host)());
    let problems = api.on_disk(move |catalogue| problems(catalogue, &namespace, source, &host)).await?;
    Ok(ValidatePlanResponse { problems })
}

enum Source {
    Stored(content_digest::Digest),
    Document(Map<String, Value>),
}

fn members(form: stored::Form) -> Result<Map<String, Value>, Fault> {
    stored::members(Some(form), ("document", "plan_json"))
}

fn problems(
    catalogue: &Catalogue,
    namespace: &str,
    source: Source,
    host: &HostOffer,
) -> Result<Vec<PlanProblem>, CatalogueError> {
    let fields = match source {
        Source::Stored(hash) => match catalogue.grain(&hash)? {
            Some(grain) if grain.is_plan() => grain.fields(),
            Some(grain) => {
                let text = format!("{hash} is a grain of type {}: name a plan", grain.kind().name());
                return Ok(vec![problem(Refusal::new(RefusalCode::BadPlan, text))]);
            }
            None => {
                let text = format!("there is no plan {hash}: store it with PutPlan");
                return Ok(vec![problem(Refusal::new(RefusalCode::Unresolved, text))]);
            }
        },
        // What the time of authoring is makes no difference to what is wrong.
        Source::Document(members) => match authored::plan(&members, namespace, 0) {
            Ok(grain) => grain.fields(),
            Err(bad) => {
                let as_plan = Plan::from_fields(&Value::Object(members));
                let format = PlanProblem {
                    reason: Reason::BadGrain.name().to_owned(),
                    message: bad.to_string(),
                    ..PlanProblem::default()
                };
                return Ok(
                    as_plan.map_or_else(|refusals| refusals.into_iter().map(problem).collect(), |_| vec![format])
                );
            }
        },
    };
    let plan = match Plan::from_fields(&Value::Object(fields)) {
        Ok(plan) => plan,
        Err(refusals) => return Ok(refusals.into_iter().map(problem).collect()),
    };
    let profile = HostProfile {
        pins: &host.pins,
        sandbox_url: host.sandbox_url,
        sandbox_cmd: host.sandbox_cmd,
        host_tool: host.host_tool,
    };
    let resolution = resolve(&plan, &catalogue.lookup(namespace), &profile)?;
    Ok(resolution.refusals.into_iter().map(problem).collect())
}

fn problem(refusal: Refusal) -> PlanProblem {
    let reason = reason(refusal.code);
    PlanProblem {
        code: reason.code().unwrap_or_default().to_owned(),
        reason: reason.name().to_owned(),
        message: refusal.text,
        node: refusal.node.unwrap_or_default(),
    }
}
