//! The broker's client: one `Fetch` per brokered call.

use std::time::{Duration, Instant};

use prost::Message as _;
use proto::{
    broker::v1::{CallRecord, CallingEffect, FetchRequest, Header, broker_service_client::BrokerServiceClient},
    dial::HandOn,
    fault,
};
use tonic::{Code, Status, service::interceptor::InterceptedService, transport::Channel};

use crate::{
    effect::Whose,
    fetch::{self, FetchAsk},
    outbound::{Answer, Bounds, Token},
};

const RECORD_TYPE: &str = "areev.broker.v1.CallRecord";
/// What a message has beside a body.
const ENVELOPE_BYTES: usize = 64 * 1024;

/// Reaches the broker. Cheap to clone.
#[derive(Clone)]
pub struct BrokerClient(BrokerServiceClient<InterceptedService<Channel, HandOn>>);

impl BrokerClient {
    /// Wraps a channel.
    pub fn new(channel: Channel) -> Self {
        let max = proto::serve::MESSAGE_BYTES_MAX;
        let client = BrokerServiceClient::with_interceptor(channel, HandOn);
        Self(client.max_decoding_message_size(max + ENVELOPE_BYTES).max_encoding_message_size(max))
    }

    /// Makes one call; every end of it is an answer. Dropping the future aborts it at the broker.
    pub async fn fetch(&self, (token, whose): (&Token, &Whose), ask: FetchAsk, bounds: &Bounds) -> Answer {
        let mut request = tonic::Request::new(FetchRequest {
            token: token.reveal().to_owned(),
            effect: Some(calling(whose)),
            max_response_bytes: Some(bounds.response_bytes),
            ..to_wire(ask, bounds.ordinal)
        });
        request.set_timeout(bounds.ends_at.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)));
        match self.0.clone().fetch(request).await {
            Ok(reply) => answered(reply.into_inner(), bounds),
            Err(status) => refused(&status),
        }
    }
}

fn calling(whose: &Whose) -> CallingEffect {
    CallingEffect {
        run_id: whose.key.run_id.clone(),
        task_path: whose.key.task_path.clone(),
        node: whose.key.node.clone(),
        attempt: whose.key.attempt,
        effect_seq: whose.key.effect_seq,
        tool_name: whose.tool_name.clone(),
        definition_hash: whose.definition_hash.clone(),
        tenant: whose.tenant.clone(),
    }
}

/// A guest's call in the broker's words, without the token, the effect and the bound that are the caller's to add.
pub fn to_wire(ask: FetchAsk, ordinal: u32) -> FetchRequest {
    FetchRequest {
        url: ask.url,
        method: ask.method.unwrap_or_default(),
        credential: ask.credential,
        headers: ask.headers.into_iter().map(|(name, value)| Header { name, value }).collect(),
        body: ask.body.unwrap_or_default().into_bytes(),
        response_headers: ask.response_headers,
        ordinal,
        ..FetchRequest::default()
    }
}

fn answered(reply: proto::broker::v1::FetchResponse, bounds: &Bounds) -> Answer {
    let record = reply.record.map(|record| record.encode_to_vec());
    let bytes = reply.body.len() as u64;
    if bytes > bounds.response_bytes {
        return Answer { record, ..Answer::too_large(bytes, bounds.response_bytes) };
    }
    let lines = reply.headers.into_iter().map(|header| (header.name, header.value)).collect();
    Answer { reply: fetch::answered(reply.status, &reply.body, lines), record }
}

/// What the broker itself says is handed on; what the transport says stays in the log.
fn refused(status: &Status) -> Answer {
    let record = fault::attached::<CallRecord>(status, RECORD_TYPE).map(|record| record.encode_to_vec());
    let spoken = fault::reason_of(status).is_some();
    let answer = match status.code() {
        Code::Unavailable | Code::Unknown | Code::Internal if !spoken => {
            tracing::warn!(code = ?status.code(), cause = status.message(), "the broker cannot be reached");
            Answer::refused("the credential broker cannot be reached; the call was not answered", None)
        }
        Code::DeadlineExceeded | Code::Cancelled if !spoken => {
            Answer::refused("the call was not answered before the effect's deadline", None)
        }
        _ => {
            let text = status.message();
            let text = text.strip_prefix(fetch::REFUSED).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(text);
            Answer::refused(text, Some(fetch::REFUSED))
        }
    };
    Answer { record, ..answer }
}

#[cfg(test)]
mod tests {
    use proto::fault::{Domain, Fault, Reason};

    use super::*;

    #[test]
    fn a_refusal_keeps_its_code_its_text_and_its_record() {
        let record = CallRecord { host: "api.example.com".to_owned(), ..CallRecord::default() };
        let status = Fault::new(Reason::EgressRefused, "host evil.example is not allowed").into_status(Domain::Broker);
        let answer = refused(&fault::attach(status, RECORD_TYPE, &record));
        assert_eq!(answer.reply, br#"{"error":"host evil.example is not allowed","code":"RUN-E022"}"#);
        assert_eq!(answer.record, Some(record.encode_to_vec()));
    }

    #[test]
    fn a_broker_that_is_down_is_an_error_without_its_address() {
        let answer = refused(&Status::unavailable("tcp connect error: 10.0.0.7:7430"));
        let text = String::from_utf8(answer.reply).unwrap();
        assert!(text.contains("cannot be reached") && !text.contains("10.0.0.7"), "{text}");
    }
}
