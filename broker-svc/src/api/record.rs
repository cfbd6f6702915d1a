//! An audit record on the wire.

use content_digest::Digest;
use proto::broker::v1::CallRecord;

use crate::audit::Record;

/// The record as a message.
pub fn wire(record: &Record) -> CallRecord {
    let binding = record.binding.as_deref().cloned().unwrap_or_default();
    let hex = |digest: Option<Digest>| digest.map_or_else(String::new, |digest| digest.to_hex());
    CallRecord {
        sequence: record.sequence,
        at: Some(record.at.into()),
        run_id: binding.run_id,
        task_path: binding.task_path,
        node: binding.node,
        attempt: binding.attempt,
        effect_seq: binding.effect_seq,
        ordinal: record.ordinal,
        tool_name: binding.tool_name,
        definition_hash: binding.definition_hash,
        credential: record.credential.clone(),
        method: record.method.clone(),
        scheme: record.scheme.to_owned(),
        host: record.host.clone(),
        path: record.path.clone(),
        status: record.status.into(),
        request_bytes: record.request_bytes,
        response_bytes: record.response_bytes,
        request_digest: hex(record.request_digest),
        response_digest: hex(record.response_digest),
        reason: record.why.map_or("", |why| why.code()).to_owned(),
        policy_digest: record.policy_digest.to_hex(),
        duration: record.duration.try_into().ok(),
        went_out: record.went_out,
        redirects: record.redirects.clone(),
        door: record.door.as_str().to_owned(),
    }
}
