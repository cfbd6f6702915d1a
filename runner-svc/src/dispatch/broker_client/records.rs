//! Records of calls through the broker's HTTP door: taken from the broker, handed to the effect that made the call, acknowledged
//! when they are durable. The broker answers the tool only then.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use content_digest::Digest;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use parking_lot::Mutex;
use proto::broker::v1::{
    self as wire, WatchEffectsRequest, WatchEffectsResponse, broker_service_client::BrokerServiceClient,
};
use runner_core::{event::Exchange, payload::Payload};
use tokio::{
    sync::{OnceCell, mpsc, oneshot, watch},
    time::timeout,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

use super::super::{
    call_record::CallRecord,
    effect::{Effect, JournalExchange},
    sandbox_client::words::record,
    service_client::{SHORT_CALL, Trouble, Wire},
};

/// Records of one effect that wait for the journal; one more is not recorded, and its call has no answer.
const WAITING_MAX: usize = 64;
/// Acknowledgements on their way.
const SAYINGS_MAX: usize = 256;
/// Pause before the stream is opened again.
const REOPEN: Duration = Duration::from_millis(250);
/// What the journal has in the place of an answer: the broker keeps no bodies.
const NO_RESPONSE: &str = "null";

type Key = (String, String, String, u32, u32);
/// A record with its number at the broker.
type Waiting = (u64, CallRecord, oneshot::Sender<bool>);

/// The stream, and who waits for its records. It is opened when the first effect needs it, and closed with this.
pub(in crate::dispatch) struct Records {
    name: String,
    effects: Mutex<BTreeMap<Key, Arc<mpsc::Sender<Waiting>>>>,
    state: watch::Sender<State>,
    task: OnceCell<tokio::task::JoinHandle<()>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    Open,
    /// The broker has no such stream: its records are in its own list.
    Unknown,
}

/// The records of one effect; nobody takes them after this.
pub(in crate::dispatch) struct Taken {
    records: Arc<Records>,
    key: Key,
    outbox: Arc<mpsc::Sender<Waiting>>,
    inbox: mpsc::Receiver<Waiting>,
}

impl Records {
    /// Nothing is open yet.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            name: format!("runner-{}", uuid::Uuid::now_v7()),
            effects: Mutex::default(),
            state: watch::Sender::new(State::Closed),
            task: OnceCell::new(),
        })
    }

    /// The name that tokens give for their records.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Waits until the stream is open, or the broker has none, for as long as a short call may take.
    pub(super) async fn opened(self: &Arc<Self>, client: &BrokerServiceClient<Wire>) {
        let (records, client) = (Arc::downgrade(self), client.clone());
        self.task.get_or_init(async || tokio::spawn(hold(records, client))).await;
        let mut state = self.state.subscribe();
        let _closed_for_now = timeout(SHORT_CALL, state.wait_for(|state| *state != State::Closed)).await;
    }

    /// Takes the records of an effect from now on.
    pub(super) fn take(self: &Arc<Self>, effect: &Effect) -> Taken {
        let key = &effect.key;
        let key = (effect.run_id.clone(), key.task_path.clone(), key.node.clone(), key.attempt, key.effect_seq);
        let (outbox, inbox) = mpsc::channel(WAITING_MAX);
        let outbox = Arc::new(outbox);
        self.effects.lock().insert(key.clone(), Arc::clone(&outbox));
        Taken { records: Arc::clone(self), key, outbox, inbox }
    }

    /// Whether the record became durable, as soon as that is known.
    fn hand_over(&self, told: wire::CallRecord) -> BoxFuture<'static, (u64, bool)> {
        let key = (told.run_id.clone(), told.task_path.clone(), told.node.clone(), told.attempt, told.effect_seq);
        let (sequence, (settle, settled)) = (told.sequence, oneshot::channel());
        let taken = self
            .effects
            .lock()
            .get(&key)
            .is_some_and(|effect| effect.try_send((sequence, record(told), settle)).is_ok());
        async move { (sequence, taken && settled.await.unwrap_or(false)) }.boxed()
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

impl Taken {
    /// Journals records as they come, each once: the broker tells one again whose acknowledgement it did not hear. Ends only by
    /// being dropped.
    pub(in crate::dispatch) async fn journal(&mut self, recorded: usize, journal: &JournalExchange<'_>) {
        let mut ordinal = u32::try_from(recorded).unwrap_or(u32::MAX);
        // As many as the effect may make calls.
        let mut journaled = BTreeSet::new();
        while let Some((sequence, record, settle)) = self.inbox.recv().await {
            if journaled.contains(&sequence) {
                let _broker_gone = settle.send(true);
                continue;
            }
            let exchange = Exchange {
                ordinal,
                request: record.request_digest.parse().unwrap_or_else(|_| Digest::of("")),
                response: Payload::new(NO_RESPONSE.to_owned()),
                refused: record.is_refusal(),
                record: Some(record.to_payload()),
                blobs: Vec::new(),
            };
            let durable = journal(exchange).await.is_ok();
            if durable {
                ordinal = ordinal.saturating_add(1);
                journaled.insert(sequence);
            }
            let _broker_gone = settle.send(durable);
        }
        std::future::pending().await
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut effects = self.records.effects.lock();
        // A redelivery may have taken the key over.
        if effects.get(&self.key).is_some_and(|outbox| Arc::ptr_eq(outbox, &self.outbox)) {
            effects.remove(&self.key);
        }
    }
}

/// Holds the stream open as long as anybody needs it.
async fn hold(records: std::sync::Weak<Records>, client: BrokerServiceClient<Wire>) {
    while let Some(held) = records.upgrade() {
        let name = held.name.clone();
        drop(held);
        match open(&name, client.clone()).await {
            Ok((say, hear)) => {
                let Some(held) = records.upgrade() else { return };
                held.state.send_replace(State::Open);
                drop(held);
                follow(&records, say, hear).await;
            }
            Err(status) if status.code() == Code::Unimplemented => {
                if let Some(held) = records.upgrade() {
                    held.state.send_replace(State::Unknown);
                }
                return;
            }
            Err(status) => tracing::warn!(cause = Trouble::of(&status).text(), "no stream of the broker's records"),
        }
        if let Some(held) = records.upgrade() {
            held.state.send_replace(State::Closed);
        }
        tokio::time::sleep(REOPEN).await;
    }
}

type Stream = (mpsc::Sender<WatchEffectsRequest>, Streaming<WatchEffectsResponse>);

async fn open(name: &str, mut client: BrokerServiceClient<Wire>) -> Result<Stream, tonic::Status> {
    let (say, said) = mpsc::channel(SAYINGS_MAX);
    let first = WatchEffectsRequest { watcher: name.to_owned(), ..WatchEffectsRequest::default() };
    // The channel is empty: there is room.
    let _room = say.try_send(first);
    let opening = timeout(SHORT_CALL, client.watch_effects(ReceiverStream::new(said))).await;
    let hear = opening.map_err(|_| tonic::Status::deadline_exceeded("it does not open"))??.into_inner();
    Ok((say, hear))
}

/// Hands records over and says what became of them, in whatever order that is known.
async fn follow(
    records: &std::sync::Weak<Records>,
    say: mpsc::Sender<WatchEffectsRequest>,
    mut hear: Streaming<WatchEffectsResponse>,
) {
    let mut waiting = FuturesUnordered::new();
    loop {
        tokio::select! {
            told = hear.message() => match told {
                Ok(Some(WatchEffectsResponse { record: Some(told) })) => {
                    let Some(held) = records.upgrade() else { return };
                    waiting.push(held.hand_over(told));
                }
                Ok(Some(WatchEffectsResponse { record: None })) => {}
                Ok(None) => return,
                Err(status) => {
                    tracing::warn!(cause = Trouble::of(&status).text(), "the stream of the broker's records broke");
                    return;
                }
            },
            Some((sequence, durable)) = waiting.next(), if !waiting.is_empty() => {
                let said = match durable {
                    true => WatchEffectsRequest { acknowledged: sequence, ..WatchEffectsRequest::default() },
                    false => WatchEffectsRequest { not_recorded: sequence, ..WatchEffectsRequest::default() },
                };
                if say.send(said).await.is_err() {
                    return;
                }
            }
        }
    }
}
