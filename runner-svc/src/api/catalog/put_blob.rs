//! `PutBlob`: bytes in pieces, onto the disk as they arrive.

use std::{sync::Arc, time::Duration};

use content_digest::Digest;
use proto::{
    fault::{Fault, Reason},
    runner::v1::{PutBlobRequest, PutBlobResponse, put_blob_request::Message},
};
use tokio::time::timeout;
use tonic::{Request, Streaming};

use super::{CatalogApi, blocking, failure};
use crate::{access::Permission, catalogue::Upload};

/// Largest piece, in bytes.
const PIECE_BYTES_MAX: usize = 1 << 20;
/// Longest wait for the next piece.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// When to come back when all uploads are taken.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Takes the pieces, and answers when all are on disk under their address.
pub async fn handle(api: &CatalogApi, request: Request<Streaming<PutBlobRequest>>) -> Result<PutBlobResponse, Fault> {
    let principal = api.caller(&request)?;
    api.parts.access.allow_anywhere(&principal, Permission::CatalogWrite)?;
    let Ok(_slot) = api.uploads.try_acquire() else {
        return Err(Fault::new(Reason::Busy, "all uploads are taken: try again").retry_after(RETRY_AFTER));
    };
    let mut pieces = request.into_inner();
    let mut expected = None;
    let blobs = Arc::clone(api.parts.catalogue.blobs());
    let mut upload = blocking(&api.disk, move || blobs.begin()).await?;
    let mut is_first = true;
    while let Some(message) = next(&mut pieces).await? {
        match message {
            Message::ExpectedDigest(text) if is_first => expected = Some(digest("expected_digest", &text)?),
            Message::ExpectedDigest(_) => return Err(failure::invalid("expected_digest", "must come first, once")),
            Message::Chunk(piece) => upload = write(api, upload, piece).await?,
        }
        is_first = false;
    }
    let size_bytes = upload.size();
    let digest = blocking(&api.disk, move || upload.finish(expected)).await?;
    tracing::info!(%principal, %digest, size_bytes, "blob stored");
    Ok(PutBlobResponse { digest: digest.to_uri(), size_bytes })
}

/// Reads a digest that a request names, in either spelling.
pub fn digest(field: &str, text: &str) -> Result<Digest, Fault> {
    text.parse().map_err(|bad: content_digest::BadDigest| failure::invalid(field, &bad.to_string()))
}

async fn next(pieces: &mut Streaming<PutBlobRequest>) -> Result<Option<Message>, Fault> {
    let waited = timeout(IDLE_MAX, pieces.message()).await;
    let Ok(message) = waited else {
        let text = format!("no piece came for {} s: the upload is given up", IDLE_MAX.as_secs());
        return Err(Fault::new(Reason::DeadlineExceeded, text));
    };
    let message = message
        .map_err(|broken| Fault::new(Reason::InvalidArgument, format!("the upload broke off: {}", broken.message())))?;
    let Some(message) = message else { return Ok(None) };
    message.message.map(Some).ok_or_else(|| failure::invalid("message", "must be expected_digest or chunk"))
}

async fn write(api: &CatalogApi, mut upload: Upload, piece: Vec<u8>) -> Result<Upload, Fault> {
    if piece.len() > PIECE_BYTES_MAX {
        return Err(failure::invalid("chunk", "must have at most 1 MiB: send smaller pieces"));
    }
    blocking(&api.disk, move || upload.write(&piece).map(|()| upload)).await
}
