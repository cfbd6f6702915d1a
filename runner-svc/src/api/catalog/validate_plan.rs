//! `ValidatePlan`: everything that keeps a plan from starting here, at once.

use proto::{
    fault::{Fault, Reason},
    runner::v1::{PlanProblem, ValidatePlanRequest, ValidatePlanResponse, validate_plan_request::Plan as Form},
};
use runner_core::{plan::Plan, refusal::Refusal, resolve::resolve, slips};
use serde_json::{Map, Value};
use tonic::Request;

use super::{CatalogApi, HostOffer, failure, put_blob::digest, stored};
use crate::{
    access::Permission,
    api::refusal::reason,
    catalogue::{Catalogue, CatalogueError, authored, grain::BadGrain},
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
    api.on_disk(move |catalogue| looked_at(catalogue, &namespace, source, &host)).await
}

enum Source {
    Stored(content_digest::Digest),
    Document(Map<String, Value>),
}

fn members(form: stored::Form) -> Result<Map<String, Value>, Fault> {
    stored::members(Some(form), ("document", "plan_json"))
}

fn looked_at(
    catalogue: &Catalogue,
    namespace: &str,
    source: Source,
    host: &HostOffer,
) -> Result<ValidatePlanResponse, CatalogueError> {
    let (fields, warnings, bad) = match source {
        Source::Stored(hash) => match catalogue.plan_fields(&hash)? {
            Ok(fields) => {
                let warnings = slips::of_plan(&fields);
                (fields, warnings, None)
            }
            Err(refusal) => return Ok(ValidatePlanResponse { problems: vec![problem(refusal)], warnings: Vec::new() }),
        },
        Source::Document(members) => {
            // What the time of authoring is makes no difference to what is wrong.
            let authored = authored::plan(&members, namespace, 0);
            // A grain has no place for some of what a document says.
            let document = Value::Object(members);
            let warnings = slips::of_plan(&document);
            match authored {
                Ok(grain) => (Value::Object(grain.fields()), warnings, None),
                Err(bad) => (document, warnings, Some(bad)),
            }
        }
    };
    let problems = of_plan(catalogue, namespace, &fields, host, bad.as_ref())?;
    Ok(ValidatePlanResponse { problems, warnings })
}

/// What is wrong with the plan as a whole, then with each node. A document that breaks only the grain format says that.
fn of_plan(
    catalogue: &Catalogue,
    namespace: &str,
    fields: &Value,
    host: &HostOffer,
    format: Option<&BadGrain>,
) -> Result<Vec<PlanProblem>, CatalogueError> {
    let mut refusals = Plan::from_fields(fields).err().unwrap_or_default();
    if refusals.is_empty()
        && let Some(bad) = format
    {
        let (reason, message) = (Reason::BadGrain.name().to_owned(), bad.to_string());
        return Ok(vec![PlanProblem { reason, message, ..PlanProblem::default() }]);
    }
    // Nodes can be judged even where the plan around them is wrong, as long as it can be read.
    if let Ok(document) = Plan::read_document(fields) {
        refusals.extend(resolve(&document, &catalogue.lookup(namespace), &host.profile())?.refusals);
    }
    Ok(refusals.into_iter().map(problem).collect())
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
