//! A journal entry: an event as it is stored, its bytes, its hash, and the payloads beside it.

use content_digest::Digest;
use serde::{Deserialize, Serialize};

use crate::{
    event::{Event, Recorded, payloads},
    payload::{Payload, PayloadRef},
};

/// Largest record, in bytes; payloads are not counted.
pub const RECORD_BYTES_MAX: usize = 64 * 1024;

/// An event with the bytes that the hash chain is over. Made by [`Entry::seal`] or [`Entry::open`], so the parts agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    recorded: Recorded,
    record: Vec<u8>,
    hash: Digest,
    payloads: Vec<Payload>,
}

/// Stored bytes are no entry.
#[derive(Debug, thiserror::Error)]
pub enum BadEntry<E> {
    /// The record does not decode.
    #[error("the record does not decode: {0}")]
    Record(String),
    /// A payload is not the one that the record names.
    #[error("the payload of {expected} has digest {found}")]
    Payload {
        /// What the record names.
        expected: Digest,
        /// What was found.
        found: Digest,
    },
    /// A payload could not be fetched.
    #[error("a payload could not be read")]
    Fetch(#[source] E),
}

#[derive(Serialize)]
struct Record<'a> {
    sequence: u64,
    at_ms: u64,
    previous: Digest,
    event: &'a Event<PayloadRef>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnedRecord {
    sequence: u64,
    at_ms: u64,
    previous: Digest,
    event: Event<PayloadRef>,
}

impl Entry {
    /// Encodes an event: the record is one line of JSON, naming payloads by digest and length.
    pub fn seal(recorded: Recorded) -> Self {
        let mut beside = Vec::new();
        let event = payloads::event(&recorded.event, &mut |payload: &Payload| {
            beside.push(payload.clone());
            Ok::<_, std::convert::Infallible>(payload.reference())
        })
        .unwrap_or_else(|never| match never {});
        let Recorded { sequence, at_ms, previous, .. } = recorded;
        let record = serde_json::to_vec(&Record { sequence, at_ms, previous, event: &event })
            .expect("a record has text keys and integers only");
        Self { hash: Digest::of(&record), recorded, record, payloads: beside }
    }

    /// Decodes a stored record; payloads are fetched by digest and length and checked against both.
    ///
    /// # Errors
    /// The record does not decode, or a payload is missing or not the one that is named.
    pub fn open<E>(
        record: Vec<u8>,
        mut fetch: impl FnMut(&PayloadRef) -> Result<Payload, E>,
    ) -> Result<Self, BadEntry<E>> {
        if record.len() > RECORD_BYTES_MAX {
            return Err(BadEntry::Record(format!("{} bytes, over {RECORD_BYTES_MAX}", record.len())));
        }
        let OwnedRecord { sequence, at_ms, previous, event } =
            serde_json::from_slice(&record).map_err(|error| BadEntry::Record(error.to_string()))?;
        let mut beside = Vec::new();
        let event = payloads::event(&event, &mut |named: &PayloadRef| {
            let payload = fetch(named).map_err(BadEntry::Fetch)?;
            if payload.reference() != *named {
                return Err(BadEntry::Payload { expected: named.digest, found: payload.digest() });
            }
            beside.push(payload.clone());
            Ok(payload)
        })?;
        let recorded = Recorded { sequence, at_ms, previous, event };
        Ok(Self { hash: Digest::of(&record), recorded, record, payloads: beside })
    }

    /// The event and its place.
    pub fn recorded(&self) -> &Recorded {
        &self.recorded
    }

    /// The event.
    pub fn event(&self) -> &Event {
        &self.recorded.event
    }

    /// Its number, from 0.
    pub fn sequence(&self) -> u64 {
        self.recorded.sequence
    }

    /// Wall clock at which it was recorded, in milliseconds since 1970.
    pub fn at_ms(&self) -> u64 {
        self.recorded.at_ms
    }

    /// The bytes to store.
    pub fn record(&self) -> &[u8] {
        &self.record
    }

    /// SHA-256 of the record: what the next one names as previous.
    pub fn hash(&self) -> Digest {
        self.hash
    }

    /// What is stored beside the record, in the order of naming.
    pub fn payloads(&self) -> &[Payload] {
        &self.payloads
    }

    /// Bytes that the journal takes for it: the record and its payloads.
    pub fn stored_bytes(&self) -> u64 {
        let payloads: usize = self.payloads.iter().map(Payload::len_bytes).sum();
        (self.record.len() + payloads) as u64
    }
}
