//! Blobs for a module that declares to read them: looked up, recorded by their address, and only then handed over.

use std::time::{SystemTime, UNIX_EPOCH};

use content_digest::Digest;
use proto::sandbox::v1 as wire;
use runner_core::{
    event::Exchange,
    payload::{Payload, PayloadRef},
};
use serde_json::json;

use super::Delivery;
use crate::dispatch::{
    call_record::CallRecord,
    code::{SharedCode, read_verified},
    effect::NotJournaled,
};

/// Bytes in one part.
const CHUNK_BYTES: usize = 1024 * 1024;
/// Longest reason that a guest is told, in bytes.
pub(super) const REASON_BYTES_MAX: usize = 1024;
/// The code of a refusal, as for brokered calls.
pub(super) const REFUSED: &str = "RUN-E022";
/// How a read names itself among the audit records of brokered calls.
const DOOR: &str = "blob";

/// One read, as the sandbox tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Read {
    /// Number of the call within the effect.
    pub ordinal: u32,
    blob: Digest,
    bytes_max: u64,
}

/// What a guest gets.
enum Found {
    Bytes(Vec<u8>),
    Refused(String),
}

impl Read {
    /// Reads the sandbox's message. The error says what is wrong with it.
    pub(super) fn of(told: &wire::BlobRead) -> Result<Self, String> {
        let blob = Digest::from_uri(&told.digest).map_err(|cause| format!("a read names no blob: {cause}"))?;
        Ok(Self { ordinal: told.ordinal, blob, bytes_max: told.max_bytes })
    }

    /// SHA-256 of what the guest asked.
    fn request(&self) -> Digest {
        Digest::of(self.blob.to_uri())
    }

    /// Whether the read was recorded by an earlier delivery: what was decided then is not decided again.
    pub(super) fn is_recorded(&self, delivery: &Delivery<'_>) -> bool {
        delivery.recorded.iter().any(|known| known.ordinal == self.ordinal && known.request == self.request())
    }
}

/// Answers a read. One that was not recorded is, before this returns; the journal holds the blob's address, not its bytes.
pub(super) async fn answer(
    read: &Read,
    delivery: &mut Delivery<'_>,
    source: &SharedCode,
) -> Result<Vec<wire::BlobPart>, NotJournaled> {
    let recorded = read.is_recorded(delivery);
    let found = if recorded || delivery.code.reads_blobs() {
        look_up(read, source).await
    } else {
        Found::Refused("the definition does not declare that it reads blobs".to_owned())
    };
    let refused_json = match &found {
        Found::Bytes(_) => String::new(),
        Found::Refused(reason) => refusal(reason),
    };
    if !recorded {
        let exchange = exchange(read, &found, &refused_json);
        (delivery.journal)(exchange.clone()).await?;
        delivery.recorded.push(exchange);
    }
    let part =
        |chunk: Vec<u8>, last| wire::BlobPart { ordinal: read.ordinal, chunk, last, refused_json: String::new() };
    Ok(match found {
        Found::Refused(_) => vec![wire::BlobPart { refused_json, ..part(Vec::new(), true) }],
        Found::Bytes(bytes) if bytes.is_empty() => vec![part(bytes, true)],
        Found::Bytes(bytes) => {
            let last = (bytes.len() - 1) / CHUNK_BYTES;
            bytes.chunks(CHUNK_BYTES).enumerate().map(|(number, chunk)| part(chunk.to_vec(), number == last)).collect()
        }
    })
}

async fn look_up(read: &Read, source: &SharedCode) -> Found {
    let (source, read) = (source.clone(), read.clone());
    let uri = read.blob.to_uri();
    let looked = tokio::task::spawn_blocking(move || match source.size(&read.blob) {
        Ok(None) => Found::Refused(format!("there is no blob {uri}")),
        Ok(Some(bytes)) if bytes > read.bytes_max => {
            let max = read.bytes_max;
            Found::Refused(format!(
                "the blob {uri} has {bytes} bytes, over the {max} that may be read (max_blob_bytes)"
            ))
        }
        Ok(Some(_)) => read_verified(&source, &read.blob).map_or_else(unreadable, Found::Bytes),
        Err(cause) => unreadable(cause),
    });
    looked.await.unwrap_or_else(unreadable)
}

/// What is wrong with the store is for the log; the guest is told that the blob cannot be read.
fn unreadable(cause: impl std::fmt::Display) -> Found {
    tracing::error!(%cause, "a blob that a module reads cannot be read");
    Found::Refused("the blob cannot be read".to_owned())
}

fn refusal(reason: &str) -> String {
    let mut reason = reason.to_owned();
    proto::fault::cut(&mut reason, REASON_BYTES_MAX);
    let quoted = json!(reason);
    format!("{{\"error\":{quoted},\"code\":\"{REFUSED}\"}}")
}

fn exchange(read: &Read, found: &Found, refused_json: &str) -> Exchange {
    let (response, bytes, reason) = match found {
        Found::Bytes(bytes) => {
            let reference = json!({"blob": read.blob.to_uri(), "bytes": bytes.len()});
            (reference.to_string(), bytes.len() as u64, String::new())
        }
        Found::Refused(_) => (refused_json.to_owned(), 0, "blob_refused".to_owned()),
    };
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let record = CallRecord {
        at_ms: i64::try_from(at.as_millis()).unwrap_or(i64::MAX),
        path: read.blob.to_uri(),
        response_bytes: bytes,
        response_digest: if reason.is_empty() { read.blob.to_hex() } else { String::new() },
        reason,
        door: DOOR.to_owned(),
        ..CallRecord::default()
    };
    Exchange {
        ordinal: read.ordinal,
        request: read.request(),
        response: Payload::new(response),
        record: Some(record.to_payload()),
        // Nothing went out.
        refused: true,
        blobs: match found {
            Found::Bytes(bytes) => vec![PayloadRef { digest: read.blob, bytes: bytes.len() as u64 }],
            Found::Refused(_) => Vec::new(),
        },
    }
}
