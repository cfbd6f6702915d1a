//! `WatchEffects`: records out, acknowledgements in, on one stream that the runner holds open.

use std::time::Duration;

use futures::Stream;
use proto::{
    broker::v1::{WatchEffectsRequest, WatchEffectsResponse},
    fault::{Domain, Fault, Reason},
};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::{Api, bad_field, record, status};
use crate::watchers::Watch;

/// Longest wait for the first message.
const FIRST_MAX: Duration = Duration::from_secs(10);
/// Longest name of a stream, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

struct Open {
    watch: Watch,
    inbound: Streaming<WatchEffectsRequest>,
    drain: CancellationToken,
}

pub async fn watch_effects(
    api: &Api,
    mut inbound: Streaming<WatchEffectsRequest>,
) -> Result<impl Stream<Item = Result<WatchEffectsResponse, Status>> + Send + use<>, Status> {
    let first = tokio::time::timeout(FIRST_MAX, inbound.message()).await;
    let first = first.map_err(|_| status(bad_field("watcher", "did not come in time")))??.unwrap_or_default();
    if first.watcher.is_empty() || first.watcher.len() > NAME_BYTES_MAX {
        return Err(status(bad_field("watcher", format!("is empty or over {NAME_BYTES_MAX} bytes"))));
    }
    let watch = api.broker.watchers.open(&first.watcher).map_err(|refusal| status(Fault::from(&refusal)))?;
    tracing::info!(watcher = first.watcher, "the runner takes records of the egress port");
    let open = Open { watch, inbound, drain: api.drain.clone() };
    Ok(futures::stream::unfold(Some(open), |open| async move {
        let mut open = open?;
        match open.next().await {
            Some(Ok(answer)) => Some((Ok(answer), Some(open))),
            Some(Err(status)) => Some((Err(status), None)),
            None => None,
        }
    }))
}

impl Open {
    async fn next(&mut self) -> Option<Result<WatchEffectsResponse, Status>> {
        loop {
            tokio::select! {
                found = self.watch.next() => {
                    return Some(Ok(WatchEffectsResponse { record: Some(record::wire(&*found?)) }));
                }
                message = self.inbound.message() => match message {
                    Ok(Some(message)) => self.take(&message),
                    Ok(None) => return None,
                    Err(status) => return Some(Err(status)),
                },
                () = self.drain.cancelled() => {
                    let fault = Fault::new(Reason::Draining, "the broker drains: open the stream again elsewhere or later");
                    return Some(Err(fault.into_status(Domain::Broker)));
                }
            }
        }
    }

    fn take(&self, message: &WatchEffectsRequest) {
        for (sequence, durable) in [(message.acknowledged, true), (message.not_recorded, false)] {
            self.watch.settle(sequence, durable);
        }
    }
}
