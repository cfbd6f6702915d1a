//! `PutModule`: bytes under the digest that they hash to.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use content_digest::Digest;
use proto::sandbox::v1::{PutModuleRequest, PutModuleResponse, put_module_request::Message};
use tonic::{Status, Streaming};

use super::{status, wire};
use crate::{error::Refusal, module_cache::CodeFault, sandbox::Sandbox};

/// Bytes of one message.
const CHUNK_BYTES_MAX: usize = 1024 * 1024;
/// Longest upload.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(120);

/// Takes one upload.
pub async fn put_module(sandbox: &Sandbox, messages: Streaming<PutModuleRequest>) -> Result<PutModuleResponse, Status> {
    let busy = || Refusal::Busy("too many uploads at once".to_owned());
    let _upload = sandbox.uploads.try_acquire().map_err(|_| status(busy()))?;
    let received = tokio::time::timeout(UPLOAD_TIMEOUT, receive(messages, sandbox.bounds.module_bytes_max)).await;
    let slow = || {
        let text = format!("the upload took longer than {} seconds", UPLOAD_TIMEOUT.as_secs());
        status(Refusal::Protocol(text))
    };
    let (named, bytes) = received.map_err(|_| slow())??;
    let internal = |cause: CodeFault| status(Refusal::Internal(cause.to_string()));
    let found = sandbox.modules.hash(bytes.clone()).await.map_err(internal)?;
    if found != named {
        return Err(status(Refusal::DigestMismatch { named, found }));
    }
    let size_bytes = bytes.len() as u64;
    sandbox.modules.put(found, bytes);
    tracing::debug!(digest = %found, size_bytes, "took a module");
    Ok(PutModuleResponse { digest: found.to_uri(), size_bytes })
}

async fn receive(mut messages: Streaming<PutModuleRequest>, bytes_max: u64) -> Result<(Digest, Bytes), Status> {
    let first = messages.message().await?.and_then(|request| request.message);
    let named = match first {
        Some(Message::Digest(text)) => wire::digest("digest", &text).map_err(status)?,
        Some(Message::Chunk(_)) | None => {
            return Err(status(Refusal::Protocol("the first message of an upload names its digest".to_owned())));
        }
    };
    let mut bytes = BytesMut::new();
    while let Some(request) = messages.message().await? {
        let Some(Message::Chunk(chunk)) = request.message else {
            return Err(status(Refusal::Protocol("after its digest an upload has chunks only".to_owned())));
        };
        if chunk.len() > CHUNK_BYTES_MAX {
            let text = format!("{} bytes; send at most {CHUNK_BYTES_MAX} a message", chunk.len());
            return Err(status(Refusal::Field { field: "chunk", text }));
        }
        if (bytes.len() + chunk.len()) as u64 > bytes_max {
            return Err(status(Refusal::ModuleTooLarge(bytes_max)));
        }
        bytes.extend_from_slice(&chunk);
    }
    // Kept for long: no more memory than it has bytes, where one that grew has up to twice that.
    Ok((named, Bytes::from(Vec::from(bytes).into_boxed_slice())))
}
