//! `PutDefinition`: authors a definition.

use proto::{
    fault::Fault,
    runner::v1::{PutDefinitionRequest, PutDefinitionResponse, put_definition_request::Document},
};
use runner_core::slips;
use tonic::Request;

use super::{
    CatalogApi,
    stored::{Form, members, namespace, store},
};
use crate::{access::Permission, catalogue::authored};

/// Makes the grain, checks it, and stores it.
pub async fn handle(api: &CatalogApi, request: Request<PutDefinitionRequest>) -> Result<PutDefinitionResponse, Fault> {
    let principal = api.caller(&request)?;
    let request = request.into_inner();
    let form = request.document.map(|document| match document {
        Document::Definition(structure) => Form::Structure(structure),
        Document::DefinitionJson(text) => Form::Text(text),
    });
    let members = members(form, ("definition", "definition_json"))?;
    let namespace = namespace(&members, &request.namespace)?;
    api.parts.access.allow(&principal, &namespace, Permission::CatalogWrite)?;
    let now_ms = (api.parts.now_ms)();
    let warnings = slips::of_definition(&members);
    let authored = move || authored::definition(members, &namespace, now_ms);
    let grain = super::blocking(&api.disk, authored).await?;
    let definition_hash = grain.hash().to_hex();
    store(api, &principal, grain).await?;
    Ok(PutDefinitionResponse { definition_hash, warnings })
}
