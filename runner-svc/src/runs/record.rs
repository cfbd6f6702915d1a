//! Between the core's entries and the journal's records, both ways.

use runner_core::{
    entry::{BadEntry, Entry},
    event::Event,
    payload::{Payload, PayloadRef},
};

use crate::journal::{
    APPEND_ASKS_MAX, APPEND_BYTES_MAX, Append, PAYLOAD_INLINE_BYTES_MAX, Record, StoredRecord, Update, Urgency,
};

/// Bytes of one append, the store's own framing not counted: half of what it takes leaves room for that.
const PART_BYTES_MAX: usize = APPEND_BYTES_MAX / 2;
/// Entries of one append: each may open or settle one ask.
const PART_ENTRIES_MAX: usize = APPEND_ASKS_MAX / 2;

/// A record's text that the journal did not hand back.
#[derive(Debug, thiserror::Error)]
#[error("the text of {} bytes that the record names is not beside it", .0.bytes)]
pub struct Absent(PayloadRef);

/// An entry as the journal stores it.
pub fn stored(entry: &Entry) -> Record {
    Record { bytes: entry.record().to_vec(), payloads: entry.payloads().to_vec() }
}

/// A stored record as an entry, its texts checked against their digests.
pub fn opened(record: StoredRecord) -> Result<Entry, BadEntry<Absent>> {
    let StoredRecord { bytes, payloads, .. } = record;
    Entry::open(bytes, |named| {
        payloads.iter().find(|payload| payload.digest() == named.digest).cloned().ok_or(Absent(*named))
    })
}

/// A part of a run's entries as one append by a lease's holder; the summary belongs to the last part.
pub fn append((run_id, fence): (&str, u64), urgency: Urgency, part: &[Entry], summary: Option<Vec<u8>>) -> Append {
    Append {
        run_id: run_id.to_owned(),
        expected_next: part.first().map_or(0, Entry::sequence),
        fence,
        urgency,
        records: part.iter().map(stored).collect(),
        update: update(run_id, part, summary),
    }
}

/// Entries in parts that are one append each: a wide superstep, or many results at once, are more than one append holds.
pub fn parts(entries: &[Entry]) -> Vec<&[Entry]> {
    let mut parts = Vec::new();
    let (mut begin, mut bytes) = (0, 0);
    for (place, entry) in entries.iter().enumerate() {
        let more = inline_bytes(entry);
        if place > begin && (bytes + more > PART_BYTES_MAX || place - begin >= PART_ENTRIES_MAX) {
            parts.push(&entries[begin..place]);
            (begin, bytes) = (place, 0);
        }
        bytes += more;
    }
    if begin < entries.len() {
        parts.push(&entries[begin..]);
    }
    parts
}

/// Bytes of an entry inside the store; larger texts lie in files.
fn inline_bytes(entry: &Entry) -> usize {
    let texts = entry.payloads().iter().map(Payload::len_bytes).filter(|bytes| *bytes <= PAYLOAD_INLINE_BYTES_MAX);
    entry.record().len() + texts.sum::<usize>()
}

/// What changes beside the entries: asks raised and settled, and whether the run ends with them.
pub fn update(run_id: &str, entries: &[Entry], summary: Option<Vec<u8>>) -> Update {
    let mut update = Update { summary, ..Update::default() };
    for entry in entries {
        match entry.event() {
            Event::AskRaised { key, .. } => update.asks_opened.push(key.tool_call_id(run_id)),
            Event::AskAnswered { key, .. } | Event::ResultRecorded { key, .. } => {
                let ask = key.tool_call_id(run_id);
                if key.kind == runner_core::key::EffectKind::Ask {
                    update.asks_closed.push(ask);
                }
            }
            Event::RunFinished { .. } => update.finished = true,
            _ => {}
        }
    }
    update
}

/// Ends and cancels are written even on a full disk.
pub fn urgency(entries: &[Entry]) -> Urgency {
    let closing = |entry: &Entry| matches!(entry.event(), Event::RunFinished { .. } | Event::CancelRequested { .. });
    if entries.iter().any(closing) { Urgency::Closing } else { Urgency::Work }
}
