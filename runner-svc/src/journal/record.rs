//! What is stored for a run: records going in, records coming out, and what changes beside them.

use std::sync::Arc;

use content_digest::Digest;
use runner_core::payload::Payload;

use super::error::Damaged;

pub use runner_core::entry::RECORD_BYTES_MAX;

/// One event as the core encoded it, with the texts it names by digest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// The encoded event, at most [`RECORD_BYTES_MAX`].
    pub bytes: Vec<u8>,
    /// Texts that the event names by digest, at most [`RECORD_PAYLOADS_MAX`] of [`PAYLOAD_BYTES_MAX`] each.
    pub payloads: Vec<Payload>,
}

/// A record as it was read back, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// Its place in the run's journal, from 0.
    pub sequence: u64,
    /// The encoded event.
    pub bytes: Vec<u8>,
    /// The texts, in the order they were given.
    pub payloads: Vec<Payload>,
}

/// What is known of a run from its start and never changes.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RunHeader {
    /// The run's id, at most 128 bytes.
    pub run_id: String,
    /// Its namespace.
    pub namespace: String,
    /// Its plan.
    pub plan_hash: Digest,
    /// When it was started, milliseconds since 1970.
    pub started_at_ms: u64,
    /// Who started it.
    pub principal: String,
    /// Digest of its manifest.
    pub manifest_digest: Digest,
    /// Digest of its input, so that a repeated start is told from another one.
    pub input_digest: Digest,
    /// Of a child run: the run that it is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentHeader>,
}

/// Which effect of which run a child run is.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ParentHeader {
    /// The parent's id.
    pub run_id: String,
    /// The effect's `tool_call_id`.
    pub tool_call_id: Digest,
}

/// A run as it durably stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunInfo {
    /// What it is.
    pub header: RunHeader,
    /// Sequence number of the next record: how many there are.
    pub next_sequence: u64,
    /// Whether it has ended.
    pub finished: bool,
    /// Fence of its lease: whoever takes the run over gets the next one.
    pub fence: u64,
    /// Its latest status document, see [`Update::summary`].
    pub summary: Arc<[u8]>,
}

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRow {
    /// The run's number: grows with each start, serves as the cursor of lists.
    pub number: u64,
    /// The run, or why it cannot be read; other rows are not affected.
    pub run: Result<RunInfo, Damaged>,
}

/// Records of a run, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The records; empty at the end.
    pub records: Vec<StoredRecord>,
    /// Sequence number to read from next.
    pub next: u64,
}

/// What changes beside the records of one append, in the same atomic batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Update {
    /// The run's new status document, at most [`SUMMARY_BYTES_MAX`]; `None` leaves the old one.
    pub summary: Option<Vec<u8>>,
    /// Asks raised by these records.
    pub asks_opened: Vec<Digest>,
    /// Asks settled by these records.
    pub asks_closed: Vec<Digest>,
    /// Whether the run ends with these records: nothing is appended after it.
    pub finished: bool,
}

/// Who wants to drive a run, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Principal, node id and random instance id, at most [`HOLDER_BYTES_MAX`].
    pub holder: String,
    /// Length of the lease in milliseconds.
    pub ttl_ms: u64,
    /// The claimant's clock, milliseconds since 1970.
    pub now_ms: u64,
}

/// The sole right to drive a run until it ends or is taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Who drives.
    pub holder: String,
    /// The number that makes a former driver's appends fail.
    pub fence: u64,
    /// When it ends, milliseconds since 1970.
    pub until_ms: u64,
}

/// A run to be made, with its first records and its first lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRun {
    /// What it is.
    pub header: RunHeader,
    /// Who drives it first.
    pub claim: Claim,
    /// Its first records; they get the sequence numbers from 0.
    pub records: Vec<Record>,
    /// What changes beside them.
    pub update: Update,
}

/// The run exists now, durably.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// The first lease; its fence is 1.
    pub lease: Lease,
    /// The sequence number of the next record.
    pub next_sequence: u64,
}

/// Records to be added to a run, on two conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Append {
    /// The run.
    pub run_id: String,
    /// Condition: the sequence number of the first of these records is the run's next.
    pub expected_next: u64,
    /// Condition: the writer's fence is the run's.
    pub fence: u64,
    /// Whether it may use the room that is kept for ending runs.
    pub urgency: Urgency,
    /// The records, in order; may be empty if only the update matters.
    pub records: Vec<Record>,
    /// What changes beside them.
    pub update: Update,
}

/// Whether an append may use the room that is kept for ending runs on a full disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Urgency {
    /// Work: refused on a full disk.
    #[default]
    Work,
    /// A cancel request or a run's end: written even then.
    Closing,
}

/// The records are durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The sequence number of the next record.
    pub next_sequence: u64,
}

/// A pending ask in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAsk {
    /// The run's number, see [`RunRow::number`]; with `ask_id` the cursor of the list.
    pub run_number: u64,
    /// The run.
    pub run_id: String,
    /// The ask's `tool_call_id`.
    pub ask_id: Digest,
}

/// Most texts that one event names.
pub const RECORD_PAYLOADS_MAX: usize = 1024;
/// Largest text; the largest result a tool may have is below it.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Texts up to this size lie beside their event, larger ones in files of their own.
pub const PAYLOAD_INLINE_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of one append inside the store (texts in files do not count).
pub const APPEND_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Largest status document of a run.
pub const SUMMARY_BYTES_MAX: usize = 3 * 1024;
/// Largest name of a lease's holder.
pub const HOLDER_BYTES_MAX: usize = 384;
/// Most asks that one append raises or settles.
pub const APPEND_ASKS_MAX: usize = 4096;
/// Bytes from which a page of records ends; a single larger record is a page of its own.
pub const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most records of a page.
pub const PAGE_RECORDS_MAX: usize = 1024;
/// Most rows of a list's page.
pub const LIST_ROWS_MAX: usize = 1000;
