//! Bodies of calls that are blobs of the catalogue: read from it, sent, received and stored piece by piece. What is not whole is
//! never stored.

use std::sync::Arc;

use bytes::Bytes;
use content_digest::Digest;
use futures::{Stream, StreamExt as _, stream};
use proto::broker::v1::{
    FetchArtifactHead, FetchArtifactRequest, FetchArtifactResponse, FetchArtifactStart, FetchRequest,
    fetch_artifact_request::Message, fetch_artifact_response::Message as Answer,
};
use runner_core::{capability::ARTIFACT_BYTES_MAX, payload::PayloadRef};
use tokio::sync::Semaphore;
use tonic::{Status, Streaming};

use super::Granted;
use crate::catalogue::{CatalogueError, Content, Files, Upload};

/// Calls with artifacts at once; more wait. Each holds a few pieces of at most 1 MiB and what the transport's window lets in.
const IN_FLIGHT_MAX: usize = 32;

/// The way between catalogue and brokers.
pub(in crate::dispatch) struct Artifacts {
    blobs: Arc<Files>,
    slots: Semaphore,
}

/// One call.
pub(in crate::dispatch) struct Outgoing {
    /// The call, without its token, and without a body where one is read.
    pub call: FetchRequest,
    /// The blob that is the body.
    pub body: Option<Digest>,
    /// Whether the answer is to become a blob.
    pub store: bool,
}

/// An upstream's answer, all of it.
pub(in crate::dispatch) struct Answered {
    /// Status and record.
    pub head: FetchArtifactHead,
    /// Where the body is.
    pub body: Body,
    /// The blob that was sent, with its length.
    pub sent: Option<PayloadRef>,
}

/// An answer's body.
pub(in crate::dispatch) enum Body {
    /// Here.
    Inline(Vec<u8>),
    /// In the catalogue, on the disk.
    Stored(PayloadRef),
}

/// Why there is no answer.
pub(in crate::dispatch) enum Unanswered {
    /// It was not sent. The text is for the guest.
    Refused(String),
    /// The broker's status.
    Status(Status),
    /// It was answered, and the answer did not come whole or could not be kept. The head has its record.
    Broken(Box<FetchArtifactHead>),
}

impl Artifacts {
    /// From and to this catalogue.
    pub(in crate::dispatch) fn new(blobs: Arc<Files>) -> Self {
        Self { blobs, slots: Semaphore::new(IN_FLIGHT_MAX) }
    }

    /// Makes one call where its token was minted. Dropping the future ends it; nothing of an answer is kept then.
    pub(in crate::dispatch) async fn fetch(
        &self,
        granted: &Granted,
        outgoing: Outgoing,
    ) -> Result<Answered, Unanswered> {
        let _slot = self.slots.acquire().await.expect("the semaphore is never closed");
        let inline_bytes_max = outgoing.call.max_response_bytes.unwrap_or_default();
        let mut start = FetchArtifactStart {
            call: Some(FetchRequest { token: granted.egress().expose_token().to_owned(), ..outgoing.call }),
            artifact_answer: outgoing.store,
            ..FetchArtifactStart::default()
        };
        let (mut pieces, mut sent) = (None, None);
        if let Some(digest) = outgoing.body {
            let content = self.content(digest).await?;
            (start.body_ref, start.body_bytes) = (digest.to_uri(), content.size);
            sent = Some(PayloadRef { digest, bytes: content.size });
            pieces = Some(read(content));
        }
        let message = |message| FetchArtifactRequest { message: Some(message) };
        let start = stream::iter([message(Message::Start(start))]);
        let body = stream::iter(pieces).flatten().map(move |piece| message(Message::Chunk(piece)));
        let mut answer = granted.fetch_artifact(start.chain(body)).await.map_err(Unanswered::Status)?;
        let head = head(&mut answer).await?;
        let max = if outgoing.store { ARTIFACT_BYTES_MAX } else { inline_bytes_max };
        let taken = if head.body_bytes > max { None } else { self.take(&head, &mut answer, outgoing.store).await };
        match taken {
            Some(body) => Ok(Answered { head, body, sent }),
            None => Err(Unanswered::Broken(Box::new(head))),
        }
    }

    /// The blob that is to be sent, hashed.
    async fn content(&self, digest: Digest) -> Result<Content, Unanswered> {
        let (blobs, uri) = (Arc::clone(&self.blobs), digest.to_uri());
        let found = off_thread(move || {
            match blobs.size(&digest)? {
                Some(bytes) if bytes > ARTIFACT_BYTES_MAX => return Ok(Err(bytes)),
                Some(_) | None => {}
            }
            blobs.content(&digest).map(Ok)
        });
        match found.await {
            Some(Ok(Some(content))) => Ok(content),
            Some(Ok(None)) => Err(Unanswered::Refused(format!("there is no blob {uri}"))),
            Some(Err(bytes)) => Err(Unanswered::Refused(format!(
                "the blob {uri} has {bytes} bytes, over the {ARTIFACT_BYTES_MAX} that an artifact may have"
            ))),
            None => Err(Unanswered::Refused(format!("the blob {uri} cannot be read"))),
        }
    }

    /// The whole body, or nothing.
    async fn take(
        &self,
        head: &FetchArtifactHead,
        answer: &mut Streaming<FetchArtifactResponse>,
        store: bool,
    ) -> Option<Body> {
        let digest = Digest::from_uri(&head.body_ref).ok()?;
        if !store {
            let mut body = Vec::new();
            while let Some(chunk) = chunk(answer, body.len() as u64, head.body_bytes).await? {
                body.extend_from_slice(&chunk);
            }
            return (body.len() as u64 == head.body_bytes && Digest::of(&body) == digest).then_some(Body::Inline(body));
        }
        let blobs = Arc::clone(&self.blobs);
        let mut upload = off_thread(move || blobs.begin()).await?;
        while let Some(chunk) = chunk(answer, upload.size(), head.body_bytes).await? {
            upload = off_thread(move || written(upload, &chunk)).await?;
        }
        if upload.size() != head.body_bytes {
            return None;
        }
        // On the disk under its address when this returns, before any event names it.
        off_thread(move || upload.finish(Some(digest))).await?;
        Some(Body::Stored(PayloadRef { digest, bytes: head.body_bytes }))
    }
}

async fn head(answer: &mut Streaming<FetchArtifactResponse>) -> Result<FetchArtifactHead, Unanswered> {
    match answer.message().await.map_err(Unanswered::Status)?.and_then(|first| first.message) {
        Some(Answer::Head(head)) => Ok(head),
        Some(Answer::Chunk(_)) | None => {
            Err(Unanswered::Status(Status::internal("the broker's answer has no head before its body")))
        }
    }
}

/// The next bytes; nothing at the end. The outer nothing: it broke off, or is longer than was announced.
async fn chunk(answer: &mut Streaming<FetchArtifactResponse>, so_far: u64, announced: u64) -> Option<Option<Bytes>> {
    match answer.message().await {
        Ok(None) => Some(None),
        Ok(Some(FetchArtifactResponse { message: Some(Answer::Chunk(chunk)) })) => {
            (so_far + chunk.len() as u64 <= announced).then_some(Some(chunk))
        }
        Ok(Some(_)) => None,
        Err(status) => {
            tracing::warn!(code = ?status.code(), cause = status.message(), "the broker's answer broke off");
            None
        }
    }
}

fn written(mut upload: Upload, chunk: &[u8]) -> Result<Upload, CatalogueError> {
    upload.write(chunk).map(|()| upload)
}

/// The bytes of a blob in pieces. One that cannot be read on ends early, and the broker sends nothing of it.
fn read(content: Content) -> impl Stream<Item = Bytes> + Send {
    stream::unfold(content, |mut content| async move {
        let next = off_thread(move || content.next_piece().map(|piece| (piece, content))).await;
        next.filter(|(piece, _)| !piece.is_empty()).map(|(piece, content)| (Bytes::from(piece), content))
    })
}

/// The disk may make one wait. What is wrong with it is for the log.
async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T, CatalogueError> + Send + 'static) -> Option<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(done)) => Some(done),
        Ok(Err(cause)) => {
            tracing::error!(%cause, "an artifact cannot be read or stored");
            None
        }
        Err(cause) => {
            tracing::error!(%cause, "an artifact cannot be read or stored");
            None
        }
    }
}
