//! What an append may measure; checked before it is queued.

use super::{
    error::TooLarge,
    frame::{self, SEAL_BYTES, VALUE_BYTES_MAX},
    record::{
        APPEND_ASKS_MAX, APPEND_BYTES_MAX, Claim, HOLDER_BYTES_MAX, PAYLOAD_BYTES_MAX, RECORD_BYTES_MAX,
        RECORD_PAYLOADS_MAX, Record, RunHeader, SUMMARY_BYTES_MAX, Update,
    },
};

/// Checks records and update; returns the bytes they will take in the store, seals and keys left out.
pub(super) fn check(records: &[Record], update: &Update) -> Result<usize, TooLarge> {
    for record in records {
        within("a record", record.bytes.len(), RECORD_BYTES_MAX)?;
        within("the number of a record's texts", record.payloads.len(), RECORD_PAYLOADS_MAX)?;
        for payload in &record.payloads {
            within("a text", payload.text().len(), PAYLOAD_BYTES_MAX)?;
        }
    }
    let summary = update.summary.as_ref().map_or(0, Vec::len);
    within("a run's status document", summary, SUMMARY_BYTES_MAX)?;
    within("the number of asks", update.asks_opened.len() + update.asks_closed.len(), APPEND_ASKS_MAX)?;
    let bytes = records.iter().map(frame::encoded_len).sum::<usize>() + summary;
    within("an append", bytes, APPEND_BYTES_MAX)?;
    Ok(bytes)
}

/// Checks the name of a lease's holder.
pub(super) fn check_claim(claim: &Claim) -> Result<(), TooLarge> {
    within("the name of a lease's holder", claim.holder.len(), HOLDER_BYTES_MAX)
}

/// Encodes a header and checks that it is one value.
pub(super) fn encode_header(header: &RunHeader) -> Result<Vec<u8>, TooLarge> {
    let bytes = serde_json::to_vec(header).expect("strings and digests always have a JSON form");
    within("a run's id, namespace and principal together", bytes.len(), VALUE_BYTES_MAX - SEAL_BYTES)?;
    Ok(bytes)
}

fn within(what: &'static str, size: usize, limit: usize) -> Result<(), TooLarge> {
    if size > limit { Err(TooLarge { what, size, limit }) } else { Ok(()) }
}
