//! `PutPlan`: authors a plan.

use proto::{
    fault::Fault,
    runner::v1::{PutPlanRequest, PutPlanResponse, put_plan_request::Document},
};
use runner_core::slips;
use serde_json::Value;
use tonic::Request;

use super::{
    CatalogApi,
    stored::{Form, members, namespace, store},
};
use crate::{access::Permission, catalogue::authored};

/// Makes the grain, checks it, and stores it. Whether its graph makes sense, `ValidatePlan` tells.
pub async fn handle(api: &CatalogApi, request: Request<PutPlanRequest>) -> Result<PutPlanResponse, Fault> {
    let principal = api.caller(&request)?;
    let request = request.into_inner();
    let form = request.document.map(|document| match document {
        Document::Plan(structure) => Form::Structure(structure),
        Document::PlanJson(text) => Form::Text(text),
    });
    let members = members(form, ("plan", "plan_json"))?;
    let namespace = namespace(&members, &request.namespace)?;
    api.parts.access.allow(&principal, &namespace, Permission::CatalogWrite)?;
    let now_ms = (api.parts.now_ms)();
    let warnings = slips::of_plan(&Value::Object(members.clone()));
    let authored = move || authored::plan(&members, &namespace, now_ms);
    let grain = super::blocking(&api.disk, authored).await?;
    let plan_hash = grain.hash().to_hex();
    store(api, &principal, grain).await?;
    Ok(PutPlanResponse { plan_hash, warnings })
}
