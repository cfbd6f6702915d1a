//! Sending one decided call and reading its bounded answer.

mod clients;
mod courier;
mod outgoing_body;
mod tls;

use std::net::IpAddr;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use url::Url;

pub use clients::{Clients, Pinned};
pub use courier::{Courier, Own};
pub use tls::{BadAuthority, client_tls};

use crate::{
    method::Method,
    origin::Host,
    refusal::{Refusal, Why},
    target::Target,
};

/// A request as it will be sent.
pub struct Outgoing {
    /// Method.
    pub method: Method,
    /// The URL, with an injected parameter where the credential is one.
    pub url: Url,
    /// Headers, the credential's included.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

/// A call that was decided and whose addresses were checked.
pub struct Outbound<'a> {
    /// Where to.
    pub target: &'a Target,
    /// Checked addresses; connections go to these alone.
    pub addresses: &'a [IpAddr],
    /// Name of the credential, for connections are not shared between credentials.
    pub credential: Option<&'a str>,
    /// The request.
    pub request: Outgoing,
    /// Most bytes of the answer's body.
    pub answer_bytes_max: u64,
    /// Takes secrets out of what the log says of a failure: a certificate's names, say, are the upstream's words.
    pub scrub: &'a (dyn Fn(String) -> String + Send + Sync),
}

/// The upstream's answer, as it came.
pub struct Answer {
    /// Status.
    pub status: u16,
    /// All headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Vec<u8>,
}

/// The request's headers: the caller's, and what the broker sets itself.
pub fn headers(given: Vec<(HeaderName, HeaderValue)>, content_type: Option<HeaderValue>, body: &Bytes) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::USER_AGENT, user_agent());
    headers.extend(given);
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if !body.is_empty() {
        let kind = content_type.unwrap_or(HeaderValue::from_static("application/json"));
        headers.insert(header::CONTENT_TYPE, kind);
    }
    headers
}

/// Who the broker says that it is.
fn user_agent() -> HeaderValue {
    HeaderValue::from_static(concat!("areev-broker/", env!("CARGO_PKG_VERSION")))
}

/// Sends. The caller bounds the time.
async fn send(clients: &Clients, outbound: Outbound<'_>) -> Result<Answer, Refusal> {
    let origin = outbound.target.origin();
    let client = clients.get(&Pinned {
        origin: origin.clone(),
        credential: outbound.credential.map(str::to_owned),
        addresses: outbound.addresses.to_vec(),
    })?;
    let failed = |cause| failed(&origin.host, cause, outbound.scrub);
    let asked = outbound.request.method;
    let method = http::Method::from_bytes(asked.as_str().as_bytes()).expect("the six methods are tokens");
    let (body, _until_here) = outgoing_body::outgoing(outbound.request.body);
    let request = client
        .request(method, outbound.request.url)
        .headers(outbound.request.headers)
        .body(body)
        .build()
        .map_err(failed)?;
    let response = client.execute(request).await.map_err(failed)?;
    if asked != Method::Head && is_encoded(response.headers()) {
        let text = format!(
            "{} answered with a compressed or otherwise encoded body although it was asked not to",
            origin.host
        );
        return Err(Refusal::new(Why::EncodedBody, text));
    }
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let body = read(response, outbound.answer_bytes_max, asked, failed).await?;
    Ok(Answer { status, headers, body })
}

async fn read(
    response: reqwest::Response,
    max: u64,
    method: Method,
    failed: impl Fn(reqwest::Error) -> Refusal,
) -> Result<Vec<u8>, Refusal> {
    let announced = if method == Method::Head { Some(0) } else { response.content_length() };
    if announced.is_some_and(|announced| announced > max) {
        return Err(too_large(max));
    }
    // At once what it may become: a buffer that grew would for a moment be there twice. What is not written to takes no memory.
    let mut body = Vec::with_capacity(usize::try_from(announced.unwrap_or(max)).unwrap_or(0));
    let mut pieces = response.bytes_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(&failed)?;
        if body.len() as u64 + piece.len() as u64 > max {
            return Err(too_large(max));
        }
        body.extend_from_slice(&piece);
    }
    body.shrink_to_fit();
    Ok(body)
}

/// The refusal for an answer over its ceiling.
pub fn too_large(max: u64) -> Refusal {
    let text = format!("the answer is over {max} bytes: ask for less, or for a higher response ceiling");
    Refusal::new(Why::ResponseTooLarge, text)
}

/// Whether the body's bytes are others than what they mean: nothing could be found in them. Chunks are taken apart on the way.
fn is_encoded(headers: &HeaderMap) -> bool {
    let codings = |name| {
        let lines = headers.get_all(name).into_iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
        lines.map(<[u8]>::trim_ascii).filter(|coding| !coding.eq_ignore_ascii_case(b"identity"))
    };
    let mut transfer = codings(header::TRANSFER_ENCODING);
    let chunked = transfer.next().is_none_or(|coding| coding.eq_ignore_ascii_case(b"chunked"));
    codings(header::CONTENT_ENCODING).next().is_some() || !chunked || transfer.next().is_some()
}

/// What the caller is told names the host alone; the log has the cause, without the URL.
fn failed(host: &Host, cause: reqwest::Error, scrub: impl Fn(String) -> String) -> Refusal {
    let (why, text) = if cause.is_connect() {
        (Why::ConnectFailed, format!("no connection to {host}: it refused, is down or its certificate does not verify"))
    } else {
        (Why::UpstreamFailed, format!("the exchange with {host} broke before its answer was whole"))
    };
    tracing::debug!(%host, reason = why.code(), cause = crate::refusal::cut(&scrub(chain(cause.without_url())), 512), "upstream failed");
    Refusal::new(why, text)
}

fn chain(cause: reqwest::Error) -> String {
    let mut text = cause.to_string();
    let mut next = std::error::Error::source(&cause);
    // As deep as such chains are: reqwest, hyper-util, hyper, TLS, the system.
    for _ in 0..8 {
        let Some(inner) = next else { break };
        text = format!("{text}: {inner}");
        next = inner.source();
    }
    text
}
