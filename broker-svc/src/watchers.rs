//! Streams of records to the runner: the caller of the HTTP door has its answer after its record is acknowledged, or is refused.
//! A record that was told and not settled is told again when the stream is opened again.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::{
    audit::Record,
    refusal::{Refusal, Why},
};

/// Records of one stream that are not settled; one more is refused.
const UNSETTLED_MAX: usize = 1024;
/// Streams, one for each runner: those that are open, and closed ones whose runner may come back.
const STREAMS_MAX: usize = 64;
/// Longest wait for an acknowledgement.
const ACKNOWLEDGE_MAX: Duration = Duration::from_secs(10);

/// The streams, by name.
#[derive(Default)]
pub struct Watchers {
    streams: Mutex<BTreeMap<String, Stream>>,
    opened: AtomicU64,
}

struct Stream {
    number: u64,
    /// Absent while it is closed.
    outbox: Option<mpsc::Sender<Arc<Record>>>,
    /// By sequence number. They are told again when the stream is opened again.
    unsettled: BTreeMap<u64, Unsettled>,
}

/// A record that is neither durable nor given up.
struct Unsettled {
    record: Arc<Record>,
    waiting: Vec<oneshot::Sender<bool>>,
}

/// One open stream; it closes with this.
pub struct Watch {
    watchers: Arc<Watchers>,
    name: String,
    number: u64,
    inbox: mpsc::Receiver<Arc<Record>>,
}

impl Watchers {
    /// Opens a stream. An open one of the same name ends. What was told before and is not settled is told again, in order.
    pub fn open(self: &Arc<Self>, name: &str) -> Result<Watch, Refusal> {
        let number = self.opened.fetch_add(1, Ordering::SeqCst);
        let mut streams = self.streams.lock();
        if streams.len() >= STREAMS_MAX && !streams.contains_key(name) && !forget_one(&mut streams) {
            return Err(Refusal::new(Why::Busy, format!("{STREAMS_MAX} streams are open, the most there may be")));
        }
        let (outbox, inbox) = mpsc::channel(UNSETTLED_MAX);
        let stream = streams.entry(name.to_owned()).or_insert_with(|| Stream {
            number,
            outbox: None,
            unsettled: BTreeMap::new(),
        });
        for unsettled in stream.unsettled.values() {
            outbox.try_send(Arc::clone(&unsettled.record)).expect("there is room for all that may be unsettled");
        }
        (stream.number, stream.outbox) = (number, Some(outbox));
        Ok(Watch { watchers: Arc::clone(self), name: name.to_owned(), number, inbox })
    }

    /// Refuses a call whose record nobody would take: that of a token without a stream, or one whose stream is closed.
    pub fn require(&self, name: &str) -> Result<(), Refusal> {
        if name.is_empty() {
            return Err(unrecorded("the token was minted without a `watcher`, so it is good at the gRPC door alone"));
        }
        let open = self.streams.lock().get(name).is_some_and(|stream| stream.outbox.is_some());
        if open { Ok(()) } else { Err(unrecorded("the runner does not take records now")) }
    }

    /// Hands a record over and waits until it is durable. A stream that closes meanwhile may be opened again.
    pub async fn tell(&self, name: &str, record: &Arc<Record>) -> Result<(), Refusal> {
        if record.is_acknowledged() {
            return Ok(());
        }
        let (settle, durable) = oneshot::channel();
        self.post(name, record, Some(settle))?;
        match tokio::time::timeout(ACKNOWLEDGE_MAX, durable).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(unrecorded("the runner cannot record it: its effect is over")),
            Ok(Err(_)) => Err(unrecorded("the runner went away before it was recorded")),
            Err(_) => Err(unrecorded("the runner did not record it in time")),
        }
    }

    /// Hands a record over that nobody waits for: its caller went away.
    pub fn tell_of_the_lost(&self, name: &str, record: &Arc<Record>) {
        if !name.is_empty() && !record.is_acknowledged() && self.post(name, record, None).is_err() {
            dropped(name, record);
        }
    }

    fn post(&self, name: &str, record: &Arc<Record>, settle: Option<oneshot::Sender<bool>>) -> Result<(), Refusal> {
        let mut streams = self.streams.lock();
        let stream = streams.get_mut(name).ok_or_else(|| unrecorded("the runner does not take records now"))?;
        // The same refusal again, while the first is on its way, waits for the same acknowledgement.
        if let Some(known) = stream.unsettled.get_mut(&record.sequence) {
            known.waiting.extend(settle);
            return Ok(());
        }
        if stream.unsettled.len() >= UNSETTLED_MAX {
            return Err(unrecorded("too many records are on their way"));
        }
        if let Some(outbox) = &stream.outbox {
            // Without its reader, or for the moment without room, it is told when the stream is opened again.
            let _told_later = outbox.try_send(Arc::clone(record));
        }
        let unsettled = Unsettled { record: Arc::clone(record), waiting: settle.into_iter().collect() };
        stream.unsettled.insert(record.sequence, unsettled);
        Ok(())
    }

    fn settle(&self, name: &str, number: u64, sequence: u64, durable: bool) {
        let mut streams = self.streams.lock();
        let Some(stream) = streams.get_mut(name).filter(|stream| stream.number == number) else { return };
        let Some(settled) = stream.unsettled.remove(&sequence) else { return };
        if durable {
            settled.record.acknowledge();
        } else if settled.waiting.is_empty() {
            dropped(name, &settled.record);
        }
        for waiting in settled.waiting {
            let _caller_gone = waiting.send(durable);
        }
    }

    fn close(&self, name: &str, number: u64) {
        let mut streams = self.streams.lock();
        if let Some(stream) = streams.get_mut(name).filter(|stream| stream.number == number) {
            stream.outbox = None;
        }
    }
}

impl Watch {
    /// The next record; nothing once another stream of this name is open.
    pub async fn next(&mut self) -> Option<Arc<Record>> {
        self.inbox.recv().await
    }

    /// A record is durable, or cannot become so.
    pub fn settle(&self, sequence: u64, durable: bool) {
        self.watchers.settle(&self.name, self.number, sequence, durable);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watchers.close(&self.name, self.number);
    }
}

/// Gives up the stream that has been closed for the longest time, if one is closed.
fn forget_one(streams: &mut BTreeMap<String, Stream>) -> bool {
    let closed = streams.iter().filter(|(_, stream)| stream.outbox.is_none());
    let Some(name) = closed.min_by_key(|(_, stream)| stream.number).map(|(name, _)| name.clone()) else {
        return false;
    };
    for unsettled in streams.remove(&name).into_iter().flat_map(|stream| stream.unsettled.into_values()) {
        dropped(&name, &unsettled.record);
    }
    true
}

/// A call went out, or was refused, and no journal will ever say so. The record itself stays in the broker's list.
fn dropped(watcher: &str, record: &Record) {
    metrics::counter!("areev_broker_unrecorded_total").increment(1);
    let (sequence, went_out) = (record.sequence, record.went_out);
    tracing::error!(
        watcher,
        sequence,
        went_out,
        "the record of a call is in no journal: its runner is gone or cannot take it"
    );
}

fn unrecorded(cause: &str) -> Refusal {
    metrics::counter!("areev_broker_unrecorded_total").increment(1);
    Refusal::new(Why::AuditUnavailable, format!("the call cannot be recorded, so it has no answer: {cause}"))
}
