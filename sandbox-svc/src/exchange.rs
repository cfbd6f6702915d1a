//! Answers a guest's brokered calls in order: from what an earlier delivery recorded first, then by the broker; and no
//! answer reaches the guest before the runner has made it durable.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use content_digest::Digest;
use tokio::sync::mpsc;

use crate::{
    fetch::{self, FetchAsk},
    guest::{Call, Gauge},
    limits::Limits,
    outbound::{Bounds, Outbound},
    outcome::{Failure, FailureKind},
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
    /// The journal; the one-shot form has none.
    pub confirm: Option<Confirm>,
    /// The effect's bounds.
    pub limits: Limits,
    /// Most bytes of one reply.
    pub payload_bytes_max: usize,
    /// When the effect is stopped.
    pub ends_at: Instant,
    /// Counts the calls.
    pub gauge: Arc<Gauge>,
}

impl Desk {
    /// Answers calls until the future is dropped.
    pub async fn serve(mut self, mut calls: mpsc::Receiver<Call>) {
        while let Some(call) = calls.recv().await {
            let answer = self.answer(&call.request).await;
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
        let ordinal = self.gauge.calls();
        if u64::from(ordinal) >= self.limits.calls {
            let error = format!("the {} outbound calls of this effect are spent", self.limits.calls);
            return Ok(fetch::refused(&error, Some(fetch::REFUSED)));
        }
        self.gauge.set_calls(ordinal + 1);
        let request_digest = Digest::of(request);
        match self.recorded.pop_front() {
            Some(recorded) if recorded.request_digest == request_digest => Ok(recorded.reply),
            Some(recorded) => Err(diverged(ordinal, request_digest, recorded.request_digest)),
            None => self.exchange(ordinal, request_digest, ask).await,
        }
    }

    async fn exchange(&mut self, ordinal: u32, request_digest: Digest, ask: FetchAsk) -> Result<Vec<u8>, Failure> {
        let body_bytes = ask.body.as_ref().map_or(0, String::len) as u64;
        let (mut reply, record) = if body_bytes > self.limits.request_bytes {
            let max = self.limits.request_bytes;
            let error = format!("the request's body has {body_bytes} bytes, over the {max} that it may have");
            (fetch::refused(&error, Some(fetch::REFUSED)), None)
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
        if let Some(confirm) = &mut self.confirm {
            confirm.keep(Exchange { ordinal, request_digest, reply: reply.clone(), record }).await?;
        }
        Ok(reply)
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
