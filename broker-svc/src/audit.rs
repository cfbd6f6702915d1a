//! The record of every call and every distinct refusal, in a bounded buffer. Never a body, a query, a header value or a secret.

use std::{
    collections::VecDeque,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use content_digest::Digest;
use lru::LruCache;
use parking_lot::Mutex;

use crate::{
    refusal::{Class, Why, cut},
    token::Binding,
};

/// Records kept in memory; past it the oldest goes.
pub const RECORDS_MAX: usize = 10_000;
/// Refusals that are told apart at once.
const DISTINCT_MAX: usize = 4096;
/// The same refusal is recorded again after this time.
const DISTINCT_MEMORY: Duration = Duration::from_secs(60);
/// Longest path, method or credential name that a record keeps, in bytes.
const TEXT_BYTES_MAX: usize = 1024;

/// Which way a call came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Door {
    /// `BrokerService.Fetch`.
    Grpc,
    /// The egress port.
    Http,
}

impl Door {
    /// The word in records and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
        }
    }
}

/// One call or refusal.
#[derive(Debug, Clone)]
pub struct Record {
    /// Number in the buffer, from 1.
    pub sequence: u64,
    /// When it began.
    pub at: SystemTime,
    /// Whose it was; absent when the token was not accepted.
    pub binding: Option<Arc<Binding>>,
    /// Number of the call within the effect.
    pub ordinal: u32,
    /// The credential that was asked for.
    pub credential: String,
    /// The method.
    pub method: String,
    /// The scheme.
    pub scheme: &'static str,
    /// Host and, if not the scheme's own, port.
    pub host: String,
    /// Path without query.
    pub path: String,
    /// The upstream's status, or 0.
    pub status: u16,
    /// Bytes of the request body.
    pub request_bytes: u64,
    /// Bytes of the answer's body.
    pub response_bytes: u64,
    /// Digest of the request body, once it was read.
    pub request_digest: Option<Digest>,
    /// Digest of the body handed back.
    pub response_digest: Option<Digest>,
    /// The origins that redirects led to or wanted to lead to, in order.
    pub redirects: Vec<String>,
    /// A request of the call was sent, or began to be, even if the call then came to nothing.
    pub went_out: bool,
    /// Why it was refused or failed.
    pub why: Option<Why>,
    /// The policy that decided.
    pub policy_digest: Digest,
    /// To the last byte.
    pub duration: Duration,
    /// The door.
    pub door: Door,
    /// Set once the runner has made it durable.
    pub acknowledged: Arc<AtomicBool>,
}

impl Record {
    /// The reason for which nothing was sent, where nothing will change by trying again. A call that went out is none of these,
    /// however it ended: each has a record of its own.
    pub fn refused(&self) -> Option<Why> {
        self.why.filter(|why| !self.went_out && is_refusal(*why))
    }

    /// Whether the runner has made it durable.
    pub fn is_acknowledged(&self) -> bool {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// The runner has made it durable.
    pub fn acknowledge(&self) {
        self.acknowledged.store(true, Ordering::SeqCst);
    }
}

/// What makes two refusals the same.
#[derive(PartialEq, Eq, Hash)]
struct Sameness {
    /// The binding's place in memory: the record keeps it there as long as this is remembered.
    token: Option<usize>,
    why: Why,
    door: Door,
    words: [String; 4],
}

/// The buffer.
pub struct Audit {
    state: Mutex<State>,
}

struct State {
    next: u64,
    records: VecDeque<Arc<Record>>,
    distinct: LruCache<Sameness, (Instant, Arc<Record>)>,
}

impl Default for Audit {
    fn default() -> Self {
        let distinct = LruCache::new(NonZeroUsize::new(DISTINCT_MAX).expect("the bound is not zero"));
        Self { state: Mutex::new(State { next: 1, records: VecDeque::new(), distinct }) }
    }
}

impl Audit {
    /// Takes a record in and gives it its number. A refusal that was recorded a moment ago is answered with that record.
    pub fn record(&self, mut record: Record) -> Arc<Record> {
        for text in [&mut record.method, &mut record.credential, &mut record.path] {
            *text = cut(text, TEXT_BYTES_MAX);
        }
        count(&record);
        let mut state = self.state.lock();
        let sameness = record.refused().map(|why| Sameness::of(&record, why));
        if let Some((seen, first)) = sameness.as_ref().and_then(|key| state.distinct.get(key))
            && seen.elapsed() < DISTINCT_MEMORY
        {
            return Arc::clone(first);
        }
        record.sequence = state.next;
        state.next += 1;
        let record = Arc::new(record);
        if state.records.len() == RECORDS_MAX {
            state.records.pop_front();
        }
        state.records.push_back(Arc::clone(&record));
        if let Some(key) = sameness {
            state.distinct.put(key, (Instant::now(), Arc::clone(&record)));
        }
        drop(state);
        log(&record);
        record
    }

    /// The newest records below a sequence number, newest first; of one run, or of all where `run_id` is empty.
    pub fn list(&self, run_id: &str, below: u64, most: usize) -> Vec<Arc<Record>> {
        let of_run = |record: &&Arc<Record>| {
            run_id.is_empty() || record.binding.as_ref().is_some_and(|binding| binding.run_id == run_id)
        };
        let state = self.state.lock();
        state.records.iter().rev().filter(|record| record.sequence < below).filter(of_run).take(most).cloned().collect()
    }
}

impl Sameness {
    fn of(record: &Record, why: Why) -> Self {
        let words = [&record.host, &record.path, &record.method, &record.credential].map(Clone::clone);
        let token = record.binding.as_ref().map(|binding| Arc::as_ptr(binding) as usize);
        Self { token, why, door: record.door, words }
    }
}

/// Whether nothing will change by trying again.
fn is_refusal(why: Why) -> bool {
    // Floods, by their nature: one record tells of all.
    if matches!(why, Why::AuthLimited | Why::RateExceeded) {
        return true;
    }
    match why.class() {
        Class::Malformed | Class::Token | Class::Policy | Class::Calls | Class::RequestSize => true,
        Class::AnswerSize | Class::Busy | Class::Upstream | Class::Deadline => false,
    }
}

fn count(record: &Record) {
    let (outcome, reason) = match record.why {
        None => ("answered", ""),
        Some(why) if record.refused().is_some() => ("refused", why.code()),
        Some(why) => ("failed", why.code()),
    };
    let labels = [("door", record.door.as_str()), ("outcome", outcome), ("reason", reason)];
    metrics::counter!("areev_broker_calls_total", &labels).increment(1);
    metrics::histogram!("areev_broker_call_seconds", "outcome" => outcome).record(record.duration.as_secs_f64());
}

fn log(record: &Record) {
    let (door, reason) = (record.door.as_str(), record.why.map_or("", Why::code));
    let Some(binding) = record.binding.as_deref() else {
        tracing::info!(door, reason, "turned away");
        return;
    };
    let (run, node, tool) = (&binding.run_id, &binding.node, &binding.tool_name);
    let (method, host, path) = (&record.method, &record.host, &record.path);
    match record.why {
        None => tracing::debug!(run, node, tool, door, method, host, path, status = record.status, "answered"),
        Some(_) if record.refused().is_some() => {
            tracing::info!(run, node, tool, door, method, host, path, reason, "refused")
        }
        Some(_) => tracing::warn!(run, node, tool, door, method, host, path, reason, "failed"),
    }
}
