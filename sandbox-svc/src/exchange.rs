//! Answers a guest's calls in order: from what an earlier delivery recorded first, then by the broker or, for blobs, by the
//! runner; and no answer reaches the guest before the runner has made it durable.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use content_digest::Digest;
use tokio::sync::mpsc;

use crate::{
    blob::{self, BlobAnswer, Blobs},
    fetch::{self, FetchAsk},
    guest::{Call, CallKind, Gauge},
    limits::Limits,
    outbound::{Bounds, Outbound},
    outcome::{Failure, FailureKind},
    relay::{ArtifactCall, Artifacts},
};

/// One brokered call, answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// Number of the call within the effect, from 0.
    pub ordinal: u32,
    /// Digest of the guest's request.
    pub request_digest: Digest,
    /// What the guest is answered, one JSON text.
    pub reply: Vec<u8>,
    /// The broker's audit record, encoded; absent when the broker was not asked.
    pub record: Option<Vec<u8>>,
}

/// The way to the runner's journal.
pub struct Confirm {
    /// Takes exchanges to be made durable.
    pub exchanges: mpsc::Sender<Exchange>,
    /// Gives the ordinals of those that are.
    pub acknowledged: mpsc::Receiver<u32>,
}

/// Answers one effect's calls.
pub struct Desk {
    /// Exchanges of an earlier delivery, in order.
    pub recorded: VecDeque<Exchange>,
    /// Who answers the rest.
    pub outbound: Outbound,
    /// Who has the blobs.
    pub blobs: Blobs,
    /// Who makes calls whose body or answer is one.
    pub artifacts: Artifacts,
    /// The journal; the one-shot form has none.
    pub confirm: Option<Confirm>,
    /// The effect's bounds.
    pub limits: Limits,
    /// Most bytes of one reply.
    pub payload_bytes_max: usize,
    /// When the effect is stopped.
    pub ends_at: Instant,
    /// Counts the brokered calls.
    pub gauge: Arc<Gauge>,
    /// Calls of both kinds that were answered.
    pub answered: Answered,
}

/// How many calls of an effect were answered.
#[derive(Debug, Clone, Copy, Default)]
pub struct Answered {
    /// All of them: the next one's ordinal.
    all: u32,
    /// Reads of blobs.
    blobs: u32,
}

impl Desk {
    /// Answers calls until the future is dropped.
    pub async fn serve(mut self, mut calls: mpsc::Receiver<Call>) {
        while let Some(call) = calls.recv().await {
            let answer = match call.kind {
                CallKind::Fetch => self.answer(&call.request).await,
                CallKind::BlobGet => self.read(&call.request).await,
            };
            let _guest_is_gone = call.reply.send(answer);
        }
        std::future::pending().await
    }

    /// A request that does not parse or is over the budget is answered alike on every delivery and is no exchange.
    async fn answer(&mut self, request: &[u8]) -> Result<Vec<u8>, Failure> {
        let ask = match FetchAsk::parse(request) {
            Ok(ask) => ask,
            Err(error) => return Ok(fetch::refused(&error, None)),
        };
        let made = self.gauge.calls();
        if u64::from(made) >= self.limits.calls {
            let error = format!("the {} outbound calls of this effect are spent", self.limits.calls);
            return Ok(fetch::refused(&error, Some(fetch::REFUSED)));
        }
        self.gauge.set_calls(made + 1);
        let (ordinal, request_digest) = (self.answered.next(), Digest::of(request));
        match self.recorded(ordinal, request_digest)? {
            Some(reply) => Ok(reply),
            None if ask.has_artifacts() => self.with_artifacts(ordinal, request_digest, ask).await,
            None => self.exchange(ordinal, request_digest, ask).await,
        }
    }

    /// Reads of blobs cost no call; the runner records them, by the blob's address.
    async fn read(&mut self, request: &[u8]) -> Result<Vec<u8>, Failure> {
        let digest = match blob::parse(request) {
            Ok(digest) => digest,
            Err(error) => return Ok(fetch::refused(&error, None)),
        };
        if self.answered.blobs >= blob::READS_MAX {
            let error = format!("the {} reads of blobs of this effect are spent", blob::READS_MAX);
            return Ok(fetch::refused(&error, Some(fetch::REFUSED)));
        }
        self.answered.blobs += 1;
        let ordinal = self.answered.next();
        let recorded = self.recorded(ordinal, Digest::of(request))?;
        let again = match recorded {
            Some(reply) if !blob::is_reference(&reply) => return Ok(reply),
            recorded => recorded.is_some(),
        };
        match self.blobs.get(ordinal, digest, self.limits.blob_bytes).await? {
            BlobAnswer::Bytes(bytes) => Ok(blob::reply(&bytes)),
            BlobAnswer::Refused(reply) if !again => Ok(reply),
            BlobAnswer::Refused(_) => Err(Failure::canceled(&format!(
                "the blob {} was read before and cannot be read again",
                digest.to_uri()
            ))),
        }
    }

    /// What an earlier delivery recorded for a call, if it got so far.
    fn recorded(&mut self, ordinal: u32, request: Digest) -> Result<Option<Vec<u8>>, Failure> {
        match self.recorded.pop_front() {
            Some(recorded) if recorded.request_digest == request => Ok(Some(recorded.reply)),
            Some(recorded) => Err(diverged(ordinal, request, recorded.request_digest)),
            None => Ok(None),
        }
    }

    /// The runner makes such a call, and has recorded it when it answers. What is refused here is recorded as any other.
    async fn with_artifacts(
        &mut self,
        ordinal: u32,
        request_digest: Digest,
        ask: FetchAsk,
    ) -> Result<Vec<u8>, Failure> {
        let nobody = match (&self.outbound, &self.artifacts) {
            (Outbound::Nobody(why), _) => Some(why.as_str()),
            (_, Artifacts::Nobody(why)) => Some(*why),
            (_, Artifacts::Runner(_)) => None,
        };
        let refused = nobody.map(|why| fetch::refused(why, Some(fetch::REFUSED))).or_else(|| self.too_long(&ask));
        match (&mut self.artifacts, refused) {
            (Artifacts::Runner(relay), None) => {
                let response_bytes = self.limits.response_bytes;
                relay.call(ArtifactCall { ordinal, request_digest, ask, response_bytes }).await
            }
            (_, refused) => self.recorded_as(ordinal, request_digest, refused.unwrap_or_default(), None).await,
        }
    }

    /// The refusal of a body that is over its bound.
    fn too_long(&self, ask: &FetchAsk) -> Option<Vec<u8>> {
        let (bytes, max) = (ask.body.as_ref().map_or(0, String::len) as u64, self.limits.request_bytes);
        let error = || format!("the request's body has {bytes} bytes, over the {max} that it may have");
        (bytes > max).then(|| fetch::refused(&error(), Some(fetch::REFUSED)))
    }

    async fn exchange(&mut self, ordinal: u32, request_digest: Digest, ask: FetchAsk) -> Result<Vec<u8>, Failure> {
        let (mut reply, record) = if let Some(refused) = self.too_long(&ask) {
            (refused, None)
        } else {
            let bounds = Bounds { ordinal, response_bytes: self.limits.response_bytes, ends_at: self.ends_at };
            let answer = self.outbound.ask(ask, &bounds).await;
            (answer.reply, answer.record)
        };
        if reply.len() > self.payload_bytes_max {
            let max = self.payload_bytes_max;
            let error = format!("the answer has {} bytes as JSON, over the {max} that it may have", reply.len());
            reply = fetch::refused(&error, Some(fetch::REFUSED));
        }
        self.recorded_as(ordinal, request_digest, reply, record).await
    }

    /// An answer, once it is durable.
    async fn recorded_as(
        &mut self,
        ordinal: u32,
        request_digest: Digest,
        reply: Vec<u8>,
        record: Option<Vec<u8>>,
    ) -> Result<Vec<u8>, Failure> {
        if let Some(confirm) = &mut self.confirm {
            confirm.keep(Exchange { ordinal, request_digest, reply: reply.clone(), record }).await?;
        }
        Ok(reply)
    }
}

impl Answered {
    fn next(&mut self) -> u32 {
        self.all += 1;
        self.all - 1
    }
}

impl Confirm {
    async fn keep(&mut self, exchange: Exchange) -> Result<(), Failure> {
        let ordinal = exchange.ordinal;
        let gone = || {
            let text = format!("the caller ended its stream before exchange {ordinal} was acknowledged");
            Failure::canceled(&text)
        };
        self.exchanges.send(exchange).await.map_err(|_| gone())?;
        match self.acknowledged.recv().await {
            Some(acknowledged) if acknowledged == ordinal => Ok(()),
            Some(other) => Err(Failure::canceled(&format!("the caller acknowledged exchange {other}, not {ordinal}"))),
            None => Err(gone()),
        }
    }
}

fn diverged(ordinal: u32, asked: Digest, recorded: Digest) -> Failure {
    let text = format!(
        "replay diverged: brokered call {ordinal} asks for {asked}, an earlier delivery recorded {recorded}; a guest must ask the same again for the same input"
    );
    Failure::new(FailureKind::Abi, text)
}
