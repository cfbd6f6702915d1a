//! `StatBlob`: whether a blob is here, and whether it may execute.

use proto::{
    fault::Fault,
    runner::v1::{StatBlobRequest, StatBlobResponse},
};
use tonic::Request;

use super::{CatalogApi, put_blob::digest};
use crate::access::Permission;

/// Looks, without reading the bytes.
pub async fn handle(api: &CatalogApi, request: Request<StatBlobRequest>) -> Result<StatBlobResponse, Fault> {
    let principal = api.caller(&request)?;
    api.parts.access.allow_anywhere(&principal, Permission::RunRead)?;
    let digest = digest("digest", &request.into_inner().digest)?;
    let size = api.on_disk(move |catalogue| catalogue.blobs().size(&digest)).await?;
    let pinned = (api.parts.host)().pins.contains(&digest);
    Ok(StatBlobResponse {
        digest: digest.to_uri(),
        present: size.is_some(),
        size_bytes: size.unwrap_or_default(),
        pinned,
    })
}
