//! `Execute`: one effect over one bidirectional stream.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use proto::{
    fault::reason_of,
    sandbox::v1::{
        self as pb, ExecuteRequest, ExecuteResponse, Start, execute_request::Message,
        execute_response::Message as Reply,
    },
};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Status, Streaming};

use super::{status, wire};
use crate::{
    blob::{self, BlobPart, BlobRead},
    effect::Effect,
    error::Refusal,
    exchange::{Confirm, Exchange},
    guest::Gauge,
    outcome::{Failure, Outcome},
    relay::{ArtifactCall, ArtifactReply, Relay},
    sandbox::{Accepted, Caller, Sandbox},
};

/// How long a stream may stay without its first message.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// An input of more bytes than this takes a while to be looked through.
const INPUT_LASTS_BYTES: usize = 64 * 1024;
/// How long a caller may take to end its stream after the outcome.
const LINGER: Duration = Duration::from_secs(2);
/// Messages on their way; exchanges go one by one.
const MESSAGES_WAITING_MAX: usize = 2;

/// The replies to one call. Dropped when the caller goes away, which stops the guest.
pub struct Replies {
    messages: mpsc::Receiver<Result<ExecuteResponse, Status>>,
    _stop: DropGuard,
}

/// Why a running effect is stopped from outside.
enum Stop {
    /// The caller said so, or its stream broke: it is told the outcome, if it still listens.
    Caller(&'static str),
    /// The caller broke the protocol: it is told a status.
    Protocol(String),
}

/// Takes the first message and lets the effect in; what follows goes on beside the replies.
pub async fn execute(sandbox: Arc<Sandbox>, mut requests: Streaming<ExecuteRequest>) -> Result<Replies, Status> {
    let protocol = |text: &str| status(Refusal::Protocol(text.to_owned()));
    let first = tokio::time::timeout(START_TIMEOUT, requests.message())
        .await
        .map_err(|_| protocol("no first message came"))?
        // What the service says itself is said as it is; what the transport says has no code of ours.
        .map_err(|cause| if reason_of(&cause).is_some() { cause } else { protocol(cause.message()) })?;
    let Some(Message::Start(start)) = first.and_then(|request| request.message) else {
        return Err(protocol("the first message of Execute is `start`"));
    };
    let effect = read(&sandbox, start).await.map_err(status)?;
    let accepted = sandbox.accept(effect).await.map_err(status)?;
    let (replies, messages) = mpsc::channel(MESSAGES_WAITING_MAX);
    let stop = CancellationToken::new();
    let id = proto::serve::request_id().unwrap_or_default();
    let driving = drive(sandbox, accepted, requests, replies, stop.clone());
    tokio::spawn(proto::serve::scope(id, driving));
    Ok(Replies { messages, _stop: stop.drop_guard() })
}

/// Reads the first message; a large one where it is in nobody's way.
async fn read(sandbox: &Sandbox, start: Start) -> Result<Effect, Refusal> {
    let bounds = sandbox.bounds;
    let recorded: usize = start.recorded.iter().map(|exchange| exchange.reply_json.len()).sum();
    if start.input_json.len() + recorded <= INPUT_LASTS_BYTES {
        return wire::effect(start, &bounds);
    }
    let reading = sandbox.background.block(move || wire::effect(start, &bounds)).await;
    reading.unwrap_or_else(|cause| Err(Refusal::Internal(cause.to_string())))
}

/// Runs the effect to its end, or drops it in the middle: then it is stopped and its slot is free.
async fn drive(
    sandbox: Arc<Sandbox>,
    accepted: Accepted,
    mut requests: Streaming<ExecuteRequest>,
    replies: mpsc::Sender<Result<ExecuteResponse, Status>>,
    stop: CancellationToken,
) {
    let gauge = Arc::new(Gauge::default());
    let (exchanges, to_send) = mpsc::channel(1);
    let (acknowledgements, acknowledged) = mpsc::channel(MESSAGES_WAITING_MAX);
    let (reads, to_read) = mpsc::channel(1);
    let (parts, blob) = mpsc::channel(MESSAGES_WAITING_MAX);
    let (calls, to_call) = mpsc::channel(1);
    let (answers, replies_to_calls) = mpsc::channel(1);
    let confirm = Confirm { exchanges, acknowledged };
    let artifacts = Relay { calls, replies: replies_to_calls };
    let caller = Caller { confirm, blobs: blob::Runner { reads, parts: blob }, artifacts };
    let mut attended =
        Attended { acknowledgements: Some(acknowledgements), to_send, to_read, parts, to_call, answers, awaited: None };
    let started = std::time::Instant::now();
    let last = tokio::select! {
        biased;
        () = stop.cancelled() => return,
        ended = sandbox.execute(accepted, caller, Arc::clone(&gauge)) => ended.map_err(status),
        stopped = attended.attend(&mut requests, &replies) => match stopped {
            Stop::Caller(why) => Ok(Outcome {
                result: Err(Failure::canceled(why)),
                fuel_used: gauge.fuel_used(),
                peak_memory_bytes: gauge.peak_memory_bytes(),
                duration: started.elapsed(),
                calls: gauge.calls(),
            }),
            Stop::Protocol(text) => Err(status(Refusal::Protocol(text))),
        },
    };
    let last = last.map(|outcome| ExecuteResponse { message: Some(Reply::Outcome(wire::outcome(outcome))) });
    // What the broker did is told also when the effect ended before its exchange could be on its way.
    if let Ok(exchange) = attended.to_send.try_recv() {
        let _caller_is_gone = replies.send(Ok(told(exchange))).await;
    }
    let _caller_is_gone = replies.send(last).await;
    drop(replies);
    let _lingered_enough = tokio::time::timeout(LINGER, to_the_end(&mut requests)).await;
}

fn told(exchange: Exchange) -> ExecuteResponse {
    ExecuteResponse { message: Some(Reply::Exchange(wire::exchange(exchange))) }
}

/// Reads what still comes, until the caller half-closes. A stream that is dropped before is reset; and of those the transport
/// takes only so many before it takes the peer for hostile and closes the connection.
async fn to_the_end(requests: &mut Streaming<ExecuteRequest>) {
    while let Ok(Some(_)) = requests.message().await {}
}

/// What goes to and fro beside the start and the outcome.
struct Attended {
    /// Takes acknowledgements; gone when the caller has no more to say.
    acknowledgements: Option<mpsc::Sender<u32>>,
    to_send: mpsc::Receiver<Exchange>,
    to_read: mpsc::Receiver<BlobRead>,
    parts: mpsc::Sender<BlobPart>,
    to_call: mpsc::Receiver<ArtifactCall>,
    answers: mpsc::Sender<ArtifactReply>,
    /// What the caller is to answer.
    awaited: Option<Awaited>,
}

/// What only the caller can give: a guest waits for one thing at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    /// The parts of a blob, for the read of this ordinal.
    Blob(u32),
    /// The end of the call with artifacts of this ordinal.
    Artifact(u32),
}

impl Awaited {
    /// Why an effect ends whose caller will not answer any more.
    fn lost(self) -> Stop {
        Stop::Caller(match self {
            Self::Blob(_) => "the caller ended its stream while the guest read a blob",
            Self::Artifact(_) => "the caller ended its stream while the guest's call with artifacts was made",
        })
    }
}

impl Attended {
    /// Carries exchanges and reads out, acknowledgements and blobs in, until the caller stops the effect.
    ///
    /// A caller that has no more to say half-closes its stream, as grpcurl does: that stops nothing by itself. Only a call
    /// of the guest's that can no longer be answered ends the effect then.
    async fn attend(
        &mut self,
        requests: &mut Streaming<ExecuteRequest>,
        replies: &mpsc::Sender<Result<ExecuteResponse, Status>>,
    ) -> Stop {
        loop {
            let reply = tokio::select! {
                Some(exchange) = self.to_send.recv() => told(exchange),
                Some(read) = self.to_read.recv() => match self.awaits(Awaited::Blob(read.ordinal)) {
                    Some(stop) => return stop,
                    None => ExecuteResponse { message: Some(Reply::Blob(wire::blob_read(read))) },
                },
                Some(call) = self.to_call.recv() => match self.awaits(Awaited::Artifact(call.ordinal)) {
                    Some(stop) => return stop,
                    None => ExecuteResponse { message: Some(Reply::Artifact(wire::artifact_call(call))) },
                },
                request = requests.message(), if self.acknowledgements.is_some() => match self.take(request).await {
                    Some(stop) => return stop,
                    None => continue,
                },
                else => return std::future::pending().await,
            };
            if replies.send(Ok(reply)).await.is_err() {
                return Stop::Caller("the caller went away");
            }
        }
    }

    /// Takes one message of the caller's. Answers why to stop, if that is what it means.
    async fn take(&mut self, request: Result<Option<ExecuteRequest>, Status>) -> Option<Stop> {
        let message = match request {
            Ok(Some(request)) => request.message,
            Ok(None) => {
                self.acknowledgements = None;
                return self.awaited.map(Awaited::lost);
            }
            Err(_) => return Some(Stop::Caller("the caller's stream broke")),
        };
        match message {
            Some(Message::Ack(ack)) => {
                let taken = self.acknowledgements.as_ref().is_some_and(|waiting| waiting.try_send(ack.ordinal).is_ok());
                let text = || format!("exchange {} was not awaiting its ack", ack.ordinal);
                (!taken).then(|| Stop::Protocol(text()))
            }
            Some(Message::Blob(part)) => self.part(part).await.err().map(Stop::Protocol),
            Some(Message::Artifact(reply)) => self.answer(reply).await.err().map(Stop::Protocol),
            Some(Message::Cancel(_)) => Some(Stop::Caller("the caller canceled")),
            Some(Message::Start(_)) => Some(Stop::Protocol("`start` came a second time".to_owned())),
            None => Some(Stop::Protocol("a message has none of start, ack, cancel, blob and artifact".to_owned())),
        }
    }

    /// Something is asked of the caller. Answers why to stop, if nobody is there to give it.
    fn awaits(&mut self, awaited: Awaited) -> Option<Stop> {
        self.awaited = Some(awaited);
        self.acknowledgements.is_none().then(|| awaited.lost())
    }

    async fn answer(&mut self, reply: pb::ArtifactReply) -> Result<(), String> {
        if self.awaited != Some(Awaited::Artifact(reply.ordinal)) {
            return Err(format!("call {} was not awaiting its end", reply.ordinal));
        }
        self.awaited = None;
        let answer = ArtifactReply { ordinal: reply.ordinal, reply: reply.reply_json };
        let _effect_has_ended = self.answers.send(answer).await;
        Ok(())
    }

    async fn part(&mut self, part: pb::BlobPart) -> Result<(), String> {
        if self.awaited != Some(Awaited::Blob(part.ordinal)) {
            return Err(format!("read {} was not awaiting a part of a blob", part.ordinal));
        }
        if part.last || !part.refused_json.is_empty() {
            self.awaited = None;
        }
        let _effect_has_ended = self.parts.send(wire::blob_part(part)?).await;
        Ok(())
    }
}

impl Stream for Replies {
    type Item = Result<ExecuteResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.messages.poll_recv(context)
    }
}
