//! `GetBlob`: hashed first, then sent piece by piece as the caller takes them.

use std::sync::Arc;

use proto::{
    fault::{Domain, Fault, Reason},
    runner::v1::{GetBlobRequest, GetBlobResponse},
};
use tokio::sync::Semaphore;
use tonic::Request;

use super::{Answers, CatalogApi, blocking, put_blob::digest};
use crate::{access::Permission, catalogue::Content};

/// Verifies the blob, and begins to send it.
pub async fn handle(api: &CatalogApi, request: Request<GetBlobRequest>) -> Result<Answers<GetBlobResponse>, Fault> {
    let principal = api.caller(&request)?;
    api.parts.access.allow_anywhere(&principal, Permission::RunRead)?;
    let digest = digest("digest", &request.into_inner().digest)?;
    let content = api.on_disk(move |catalogue| catalogue.blobs().content(&digest)).await?;
    let content = content.ok_or_else(|| {
        let text = format!("there is no blob {}: store it with PutBlob", digest.to_uri());
        Fault::new(Reason::BlobNotFound, text).with("digest", digest.to_hex())
    })?;
    let disk = Arc::clone(&api.disk);
    Ok(Box::pin(futures::stream::try_unfold(content, move |content| {
        let disk = Arc::clone(&disk);
        async move { piece(&disk, content).await.map_err(|fault| fault.into_status(Domain::Runner)) }
    })))
}

async fn piece(disk: &Arc<Semaphore>, mut content: Content) -> Result<Option<(GetBlobResponse, Content)>, Fault> {
    let (piece, content) = blocking(disk, move || content.next_piece().map(|piece| (piece, content))).await?;
    Ok((!piece.is_empty()).then_some((GetBlobResponse { chunk: piece }, content)))
}
