//! Between the core's entries and the journal's records, both ways.

use runner_core::{
    entry::{BadEntry, Entry},
    event::Event,
    payload::PayloadRef,
};

use crate::journal::{Record, StoredRecord, Update, Urgency};

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

/// What changes beside the entries: asks raised and settled, and whether the run ends with them.
pub fn update(run_id: &str, entries: &[Entry], summary: Vec<u8>) -> Update {
    let mut update = Update { summary: Some(summary), ..Update::default() };
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
