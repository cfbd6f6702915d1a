//! The document of a request by the HTTP door. None of its bytes is held without room for it.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use http::header;
use hyper::body::Incoming;

use crate::{
    broker::{Broker, Pass, Room},
    refusal::{Refusal, Why},
};

/// What JSON adds around a request body: escapes or base64 double it at most for all but odd bodies, and the other fields.
const DOCUMENT_FACTOR: u64 = 2;
const DOCUMENT_EXTRA_BYTES: u64 = 64 * 1024;
/// A document, and beside it what is read from it.
const COPIES: u64 = 2;

/// Reads a request's document, of a caller whose token is good.
pub async fn read(
    broker: &Broker,
    pass: &Pass,
    room: &mut Room,
    patience: Duration,
    request: http::Request<Incoming>,
) -> Result<Bytes, Refusal> {
    let max = pass.permit.ceilings.max_request_bytes * DOCUMENT_FACTOR + DOCUMENT_EXTRA_BYTES;
    let too_large = || {
        let text = format!("the request is over {max} bytes: send less, or ask for a higher request ceiling");
        Refusal::new(Why::RequestTooLarge, text)
    };
    let announced =
        request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|announced| announced > max) {
        return Err(too_large());
    }
    let reading = async {
        let mut bytes = BytesMut::new();
        let mut pieces = Body::new(request.into_body()).into_data_stream();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|_| Refusal::new(Why::MalformedRequest, "the request's body broke off"))?;
            let so_far = bytes.len() as u64 + piece.len() as u64;
            if so_far > max {
                return Err(too_large());
            }
            // Piece by piece: what is announced and does not come takes nothing from others.
            broker.make_room(room, so_far * COPIES)?;
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.freeze())
    };
    let late = |_| Err(Refusal::new(Why::DeadlineExceeded, "the request's body did not come in time"));
    tokio::time::timeout(patience, reading).await.unwrap_or_else(late)
}
