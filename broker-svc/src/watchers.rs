//! Streams of records to the runner: the caller of the HTTP door has its answer after its record is acknowledged, or is refused.

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

/// Records on their way in one stream; one more is refused.
const ON_THE_WAY_MAX: usize = 1024;
/// Streams at once: one for each runner.
const STREAMS_MAX: usize = 64;
/// Longest wait for an acknowledgement.
const ACKNOWLEDGE_MAX: Duration = Duration::from_secs(10);

/// The open streams, by name.
#[derive(Default)]
pub struct Watchers {
    streams: Mutex<BTreeMap<String, Stream>>,
    opened: AtomicU64,
}

struct Stream {
    number: u64,
    outbox: mpsc::Sender<Arc<Record>>,
    waiting: BTreeMap<u64, Vec<oneshot::Sender<bool>>>,
}

/// One open stream; it closes with this.
pub struct Watch {
    watchers: Arc<Watchers>,
    name: String,
    number: u64,
    inbox: mpsc::Receiver<Arc<Record>>,
}

impl Watchers {
    /// Opens a stream. One of the same name ends: its runner began anew.
    pub fn open(self: &Arc<Self>, name: &str) -> Result<Watch, Refusal> {
        let (outbox, inbox) = mpsc::channel(ON_THE_WAY_MAX);
        let number = self.opened.fetch_add(1, Ordering::SeqCst);
        let mut streams = self.streams.lock();
        if streams.len() >= STREAMS_MAX && !streams.contains_key(name) {
            return Err(Refusal::new(Why::Busy, format!("{STREAMS_MAX} streams are open, the most there may be")));
        }
        streams.insert(name.to_owned(), Stream { number, outbox, waiting: BTreeMap::new() });
        Ok(Watch { watchers: Arc::clone(self), name: name.to_owned(), number, inbox })
    }

    /// Refuses a call whose record nobody would take.
    pub fn require(&self, name: &str) -> Result<(), Refusal> {
        let open = name.is_empty() || self.streams.lock().contains_key(name);
        if open { Ok(()) } else { Err(unrecorded("the runner does not take records now")) }
    }

    /// Hands a record over and waits until it is durable.
    pub async fn tell(&self, name: &str, record: &Arc<Record>) -> Result<(), Refusal> {
        if name.is_empty() || record.is_acknowledged() {
            return Ok(());
        }
        let durable = self.post(name, record)?;
        match tokio::time::timeout(ACKNOWLEDGE_MAX, durable).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(unrecorded("the runner cannot record it: its effect is over")),
            Ok(Err(_)) => Err(unrecorded("the runner went away before it was recorded")),
            Err(_) => Err(unrecorded("the runner did not record it in time")),
        }
    }

    /// Hands a record over that nobody waits for: its caller went away.
    pub fn tell_of_the_lost(&self, name: &str, record: &Arc<Record>) {
        if !name.is_empty() && !record.is_acknowledged() && self.post(name, record).is_err() {
            tracing::error!(
                watcher = name,
                sequence = record.sequence,
                "a call whose caller went away is not recorded"
            );
        }
    }

    fn post(&self, name: &str, record: &Arc<Record>) -> Result<oneshot::Receiver<bool>, Refusal> {
        let mut streams = self.streams.lock();
        let stream = streams.get_mut(name).ok_or_else(|| unrecorded("the runner does not take records now"))?;
        let (settle, durable) = oneshot::channel();
        let waiting = stream.waiting.entry(record.sequence).or_default();
        // The same refusal again, while the first is on its way, waits for the same acknowledgement.
        if waiting.is_empty() && stream.outbox.try_send(Arc::clone(record)).is_err() {
            stream.waiting.remove(&record.sequence);
            return Err(unrecorded("too many records are on their way"));
        }
        waiting.push(settle);
        Ok(durable)
    }

    fn settle(&self, name: &str, number: u64, sequence: u64, durable: bool) {
        let mut streams = self.streams.lock();
        let Some(stream) = streams.get_mut(name).filter(|stream| stream.number == number) else { return };
        for waiting in stream.waiting.remove(&sequence).unwrap_or_default() {
            let _caller_gone = waiting.send(durable);
        }
    }

    fn close(&self, name: &str, number: u64) {
        let mut streams = self.streams.lock();
        if streams.get(name).is_some_and(|stream| stream.number == number) {
            streams.remove(name);
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

fn unrecorded(cause: &str) -> Refusal {
    metrics::counter!("areev_broker_unrecorded_total").increment(1);
    Refusal::new(Why::AuditUnavailable, format!("the call cannot be recorded, so it has no answer: {cause}"))
}
