//! `FetchArtifact`: one outbound call for the runner whose body or answer goes by digest, in chunks.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use content_digest::Digest;
use futures::{Stream, StreamExt as _, stream};
use proto::{
    broker::v1::{
        FetchArtifactHead, FetchArtifactRequest, FetchArtifactResponse, FetchArtifactStart,
        fetch_artifact_request::Message, fetch_artifact_response::Message as Answer,
    },
    fault::Fault,
};
use tokio::{sync::mpsc, time::timeout};
use tonic::{Status, Streaming};

use super::{Api, bad_field, fetch, held::Held, record, status};
use crate::{
    audit::Door,
    broker::{Coming, Request},
    refusal::{Refusal, Why},
    token::Claimed,
};

/// Longest wait for the first message.
const FIRST_MAX: Duration = Duration::from_secs(10);
/// Bytes of the body in one message.
const CHUNK_BYTES: usize = 1024 * 1024;
/// Messages of an answer that wait to be sent.
const MESSAGES_WAITING_MAX: usize = 1;

pub async fn fetch_artifact(
    api: &Api,
    mut inbound: Streaming<FetchArtifactRequest>,
) -> Result<(impl Stream<Item = Result<FetchArtifactResponse, Status>> + Send + use<>, Held), Status> {
    let first = timeout(FIRST_MAX, inbound.message()).await;
    let first = first.map_err(|_| status(bad_field("start", "did not come in time")))??;
    let Some(Message::Start(start)) = first.and_then(|first| first.message) else {
        return Err(status(bad_field("start", "has to be the first message")));
    };
    let token = start.call.as_ref().map(|call| call.token.as_str()).unwrap_or_default();
    let pass = api.broker.admit(token, Door::Grpc).map_err(fetch::refused)?;
    let permit = Arc::clone(&pass.permit);
    let (request, claimed) = request(start, inbound).map_err(|fault| status(*fault))?;
    let pass = api.broker.bind_relayed(pass, claimed.as_ref()).map_err(fetch::refused)?;
    let mut done = api.broker.call(pass, request).await.map_err(fetch::refused)?;
    let (body, record) = (Bytes::from(std::mem::take(&mut done.body)), Arc::clone(&done.record));
    let head = FetchArtifactHead {
        status: done.status.into(),
        body_bytes: body.len() as u64,
        body_ref: record.response_digest.unwrap_or(Digest::ZERO).to_uri(),
        record: Some(record::wire(&record)),
        headers: fetch::headers(&mut done),
    };
    let held = Held::new(done.into_room().share(body.len()));
    let holding = held.clone();
    let (sender, messages) = mpsc::channel(MESSAGES_WAITING_MAX);
    let left = permit.deadline.duration_since(api.broker.tokens.now()).unwrap_or_default();
    // It ends by itself: with the last chunk, with its reader, with the effect or with its time.
    tokio::spawn(async move {
        let whole = tokio::select! {
            told = timeout(left, hand_over(head, body, &sender)) => told.is_ok(),
            () = permit.ended.cancelled() => false,
        };
        if !whole {
            holding.give_back();
        }
    });
    Ok((stream::unfold(messages, |mut messages| async move { Some((messages.recv().await?, messages)) }), held))
}

/// A call, and the effect that it is said to be made for.
type Called = (Request, Option<Claimed>);

fn request(start: FetchArtifactStart, inbound: Streaming<FetchArtifactRequest>) -> Result<Called, Box<Fault>> {
    let call = start.call.unwrap_or_default();
    let coming = match start.body_ref.as_str() {
        "" => None,
        _ if !call.body.is_empty() => {
            return Err(Box::new(bad_field("body_ref", "is set together with call.body: give one of them")));
        }
        text => {
            let digest = Digest::from_uri(text).map_err(|cause| Box::new(bad_field("body_ref", cause.to_string())))?;
            Some(Coming { digest, bytes: start.body_bytes, pieces: Box::pin(inbound.map(piece)) })
        }
    };
    let (call, claimed) = fetch::request_of(call);
    Ok((Request { coming, artifact: start.artifact_answer, ..call }, claimed))
}

fn piece(message: Result<FetchArtifactRequest, Status>) -> Result<Bytes, Refusal> {
    match message.map(|message| message.message) {
        Ok(Some(Message::Chunk(chunk))) => Ok(chunk),
        Ok(_) => Err(Refusal::new(Why::MalformedRequest, "a message of the request body has no chunk")),
        Err(_) => Err(Refusal::new(Why::CallerGone, "the request body broke off")),
    }
}

/// The answer, as fast as its reader takes it.
async fn hand_over(
    head: FetchArtifactHead,
    mut body: Bytes,
    sender: &mpsc::Sender<Result<FetchArtifactResponse, Status>>,
) {
    let mut next = Some(Answer::Head(head));
    while let Some(message) = next {
        if sender.send(Ok(FetchArtifactResponse { message: Some(message) })).await.is_err() {
            return;
        }
        let chunk = body.split_to(body.len().min(CHUNK_BYTES));
        next = (!chunk.is_empty()).then_some(Answer::Chunk(chunk));
    }
}
