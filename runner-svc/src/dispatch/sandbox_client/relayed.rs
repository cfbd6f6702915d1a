//! A module's call whose body or answer is a blob: made for it, recorded by addresses and lengths, and only then answered.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use content_digest::Digest;
use proto::{
    broker::v1::{self as broker, FetchRequest},
    fault,
    sandbox::v1 as wire,
};
use runner_core::{event::Exchange, payload::Payload};
use serde::Serialize;
use tonic::{Code, Status};

use super::{Delivery, blob, words};
use crate::dispatch::{
    broker_client::{
        Granted,
        artifacts::{Answered, Artifacts, Body, Outgoing, Unanswered},
        calling,
    },
    call_record::CallRecord,
    effect::NotJournaled,
    output::OUTPUT_BYTES_MAX,
    until::Cut,
};

/// Type of the record in a refused status's details.
const RECORD_TYPE: &str = "areev.broker.v1.CallRecord";
/// What a guest is told of a call whose answer was lost.
const BROKEN: &str =
    "the answer did not come whole or could not be stored; whether the upstream did what was asked is not known";

/// One call, as the sandbox tells it.
pub(super) struct Call {
    /// Its number within the effect.
    pub ordinal: u32,
    request: Digest,
    fetch: FetchRequest,
    body: Option<Digest>,
    store: bool,
}

/// Why it has no reply.
pub(super) enum NoReply {
    /// The effect has to stop.
    Cut(Cut),
    /// It could not be made durable.
    NotJournaled,
}

/// What the guest is answered, in the sandbox's own words for brokered calls.
#[derive(Default, Serialize)]
struct Reply<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_ref: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
}

impl Call {
    /// Reads the sandbox's message. The error says what is wrong with it.
    pub(super) fn of(told: wire::ArtifactCall) -> Result<Self, String> {
        let ordinal = told.ordinal;
        let bad = |cause: content_digest::BadDigest| format!("call {ordinal} has a bad digest: {cause}");
        let body = match told.body_ref.as_str() {
            "" => None,
            uri => Some(Digest::from_uri(uri).map_err(bad)?),
        };
        let request = told.request_digest.parse().map_err(bad)?;
        let fetch = told.call.ok_or_else(|| format!("call {ordinal} says nothing of what it calls"))?;
        if body.is_some() && !fetch.body.is_empty() {
            return Err(format!("call {ordinal} has two bodies"));
        }
        Ok(Self { ordinal, request, fetch, body, store: told.artifact_answer })
    }
}

/// Makes the call, records it, and gives what the guest is answered. The bytes are in the catalogue before the record is in the
/// journal, and that before the guest is told.
pub(super) async fn make(call: Call, delivery: &mut Delivery<'_>) -> Result<wire::ArtifactReply, NoReply> {
    let (ordinal, request) = (call.ordinal, call.request);
    let made = match outgoing(call, delivery) {
        Ok((artifacts, granted, outgoing)) => {
            let fetched = delivery.until.first(Box::pin(artifacts.fetch(granted, outgoing))).await;
            fetched.map_err(NoReply::Cut)?
        }
        Err(refused) => Err(Unanswered::Refused(refused)),
    };
    let exchange = exchange((ordinal, request), made);
    let reply_json = exchange.response.text().as_bytes().to_vec();
    (delivery.journal)(exchange.clone()).await.map_err(|NotJournaled| NoReply::NotJournaled)?;
    delivery.recorded.push(exchange);
    Ok(wire::ArtifactReply { ordinal, reply_json })
}

/// Whether the call may be made at all: the broker decides on the rest. A body is sent only by who could have read it.
fn outgoing<'a>(call: Call, delivery: &Delivery<'a>) -> Result<(&'a Artifacts, &'a Granted, Outgoing), String> {
    let Call { fetch, body, store, .. } = call;
    if body.is_some() && !delivery.code.reads_blobs() {
        return Err("the definition does not declare that it reads blobs, so it can send none: add {\"blob\": {\"read\": true}} \
                    to its capabilities"
            .to_owned());
    }
    let (artifacts, granted) = delivery.artifacts.ok_or("no credential broker for this effect")?;
    let call = FetchRequest { effect: Some(calling(delivery.effect)), ..fetch };
    Ok((artifacts, granted, Outgoing { call, body, store }))
}

fn exchange((ordinal, request): (u32, Digest), made: Result<Answered, Unanswered>) -> Exchange {
    let (reply, record, blobs) = match made {
        Ok(Answered { mut head, body, sent }) => {
            let headers = joined(std::mem::take(&mut head.headers));
            let mut blobs = Vec::from_iter(sent);
            let reply = match body {
                Body::Stored(stored) => {
                    blobs.push(stored);
                    let body_ref = Some(stored.digest.to_uri());
                    text(&Reply {
                        status: Some(head.status),
                        body_ref,
                        size_bytes: Some(stored.bytes),
                        headers,
                        ..Reply::default()
                    })
                }
                Body::Inline(bytes) => inline((head.status, headers), &bytes),
            };
            (reply, head.record, blobs)
        }
        Err(Unanswered::Refused(why)) => (refused(why, true), None, Vec::new()),
        Err(Unanswered::Broken(head)) => (refused(BROKEN.to_owned(), false), head.record, Vec::new()),
        Err(Unanswered::Status(status)) => {
            (refusal_of(&status), fault::attached::<broker::CallRecord>(&status, RECORD_TYPE), Vec::new())
        }
    };
    let record = record.map(words::record);
    Exchange {
        ordinal,
        request,
        response: Payload::new(reply),
        refused: record.as_ref().is_none_or(CallRecord::is_refusal),
        record: record.as_ref().map(CallRecord::to_payload),
        blobs,
    }
}

/// Lines of one header are joined with commas.
fn joined(lines: Vec<broker::Header>) -> BTreeMap<String, String> {
    let mut headers = BTreeMap::<String, String>::new();
    for broker::Header { name, value } in lines {
        headers.entry(name).and_modify(|line| *line = format!("{line}, {value}")).or_insert(value);
    }
    headers
}

fn inline((status, headers): (u32, BTreeMap<String, String>), bytes: &[u8]) -> String {
    let body = std::str::from_utf8(bytes).ok();
    let body_base64 = body.is_none().then(|| STANDARD.encode(bytes));
    let reply = text(&Reply { status: Some(status), body, body_base64, headers, ..Reply::default() });
    if reply.len() <= OUTPUT_BYTES_MAX {
        return reply;
    }
    let bytes = reply.len();
    refused(format!("the answer has {bytes} bytes as JSON, over the {OUTPUT_BYTES_MAX} that it may have"), true)
}

/// What the broker itself says is handed on; what the transport says stays in the log.
fn refusal_of(status: &Status) -> String {
    let spoken = fault::reason_of(status).is_some();
    match status.code() {
        Code::Unavailable | Code::Unknown | Code::Internal if !spoken => {
            tracing::warn!(code = ?status.code(), cause = status.message(), "the broker cannot be reached");
            refused("the credential broker cannot be reached; the call was not answered".to_owned(), false)
        }
        Code::DeadlineExceeded | Code::Cancelled if !spoken => {
            refused("the call was not answered before the effect's deadline".to_owned(), false)
        }
        _ => {
            let text = status.message();
            let words = text.strip_prefix(blob::REFUSED).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(text);
            refused(words.to_owned(), true)
        }
    }
}

fn refused(mut error: String, coded: bool) -> String {
    fault::cut(&mut error, blob::REASON_BYTES_MAX);
    text(&Reply { error: Some(error), code: coded.then_some(blob::REFUSED), ..Reply::default() })
}

fn text(reply: &Reply<'_>) -> String {
    serde_json::to_string(reply).expect("texts and numbers always serialise")
}
