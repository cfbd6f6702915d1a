//! `ListPlans`: a namespace's plans, newest first.

use proto::{
    fault::Fault,
    runner::v1::{ListPlansRequest, ListPlansResponse, PlanSummary},
};
use tonic::Request;

use super::{CatalogApi, failure};
use crate::{
    access::Permission,
    api::{page, stamp},
    catalogue,
};

/// One page.
pub async fn handle(api: &CatalogApi, request: Request<ListPlansRequest>) -> Result<ListPlansResponse, Fault> {
    let principal = api.caller(&request)?;
    let request = request.into_inner();
    if request.namespace.is_empty() {
        return Err(failure::invalid("namespace", "is required"));
    }
    api.parts.access.allow(&principal, &request.namespace, Permission::RunRead)?;
    let query = page::Query::of("ListPlans", [&request.namespace]);
    let (limit, place) = (page::size(request.page_size)?, query.place(&request.page_token)?);
    let found = api.on_disk(move |catalogue| catalogue.plans(&request.namespace, place.as_deref(), limit)).await?;
    let found = found.map_err(|_| page::bad_token())?;
    let plans = found.items.into_iter().map(summary).collect();
    Ok(ListPlansResponse { plans, next_page_token: query.token(found.next) })
}

fn summary(found: catalogue::PlanSummary) -> PlanSummary {
    PlanSummary {
        plan_hash: found.hash.to_hex(),
        name: found.name,
        nodes: found.nodes,
        edges: found.edges,
        created_at: Some(stamp::of_ms(found.created_at_ms)),
    }
}
