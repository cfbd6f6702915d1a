//! `PutGrain`: stores a grain's bytes as they came from elsewhere.

use proto::{
    fault::Fault,
    runner::v1::{PutGrainRequest, PutGrainResponse},
};
use tonic::Request;

use super::{CatalogApi, blocking, stored::store};
use crate::{access::Permission, catalogue::grain::Grain};

/// Checks the format strictly, and stores the very bytes.
pub async fn handle(api: &CatalogApi, request: Request<PutGrainRequest>) -> Result<PutGrainResponse, Fault> {
    let principal = api.caller(&request)?;
    api.parts.access.allow_anywhere(&principal, Permission::CatalogWrite)?;
    let bytes = request.into_inner().grain;
    let decoded = move || Grain::decode(bytes);
    let grain = blocking(&api.disk, decoded).await?;
    let answer = PutGrainResponse { grain_hash: grain.hash().to_hex(), grain_type: grain.kind().name().to_owned() };
    store(api, &principal, grain).await?;
    Ok(answer)
}
