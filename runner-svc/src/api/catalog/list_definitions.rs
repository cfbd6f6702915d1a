//! `ListDefinitions`: a namespace's definitions by name.

use proto::{
    fault::Fault,
    runner::v1::{DefinitionSummary, ListDefinitionsRequest, ListDefinitionsResponse},
};
use tonic::Request;

use super::{CatalogApi, failure};
use crate::{
    access::Permission,
    api::{page, stamp},
    catalogue,
};

/// One page, the newest of a name first.
pub async fn handle(
    api: &CatalogApi,
    request: Request<ListDefinitionsRequest>,
) -> Result<ListDefinitionsResponse, Fault> {
    let principal = api.caller(&request)?;
    let request = request.into_inner();
    if request.namespace.is_empty() {
        return Err(failure::invalid("namespace", "is required"));
    }
    api.parts.access.allow(&principal, &request.namespace, Permission::RunRead)?;
    let query = page::Query::of("ListDefinitions", [&request.namespace]);
    let (limit, place) = (page::size(request.page_size)?, query.place(&request.page_token)?);
    let found =
        api.on_disk(move |catalogue| catalogue.definitions(&request.namespace, place.as_deref(), limit)).await?;
    let found = found.map_err(|_| page::bad_token())?;
    let definitions = found.items.into_iter().map(summary).collect();
    Ok(ListDefinitionsResponse { definitions, next_page_token: query.token(found.next) })
}

fn summary(found: catalogue::DefinitionSummary) -> DefinitionSummary {
    DefinitionSummary {
        definition_hash: found.hash.to_hex(),
        tool_name: found.tool_name,
        tool_description: found.tool_description,
        executor_kind: found.executor_kind,
        executor_uri: found.executor_uri,
        runtime: found.runtime,
        created_at: Some(stamp::of_ms(found.created_at_ms)),
    }
}
