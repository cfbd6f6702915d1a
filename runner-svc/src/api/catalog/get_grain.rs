//! `GetGrain`: a grain's bytes and fields.

use proto::{
    fault::{Fault, Reason},
    runner::v1::{GetGrainRequest, GetGrainResponse},
};
use tonic::Request;

use super::{CatalogApi, failure, put_blob::digest};
use crate::access::Permission;

/// Reads the grain, if the caller may read its namespace.
pub async fn handle(api: &CatalogApi, request: Request<GetGrainRequest>) -> Result<GetGrainResponse, Fault> {
    let principal = api.caller(&request)?;
    let hash = digest("grain_hash", &request.into_inner().grain_hash)?;
    let access = std::sync::Arc::clone(&api.parts.access);
    api.on_disk(move |catalogue| {
        let grain = catalogue.grain(&hash).map_err(failure::fault)?.ok_or_else(|| {
            Fault::new(Reason::GrainNotFound, format!("there is no grain {hash}")).with("grain_hash", hash.to_hex())
        })?;
        access.allow(&principal, grain.namespace(), Permission::RunRead)?;
        Ok(GetGrainResponse {
            grain_hash: hash.to_hex(),
            grain_type: grain.kind().name().to_owned(),
            fields_json: grain.fields_json(),
            grain: grain.bytes().to_vec(),
        })
    })
    .await
}
