//! The HTTP door: `POST /` with the token in its one header and the call as JSON, for child processes.

mod document;

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use http::{HeaderValue, Method, Response, StatusCode, header};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::Semaphore,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    audit::Door,
    broker::{Broker, Denied, Pass, Request},
    refusal::{Class, Refusal, Why},
    token::Shower,
};

/// The header that carries the token.
pub const TOKEN_HEADER: &str = "x-areev-egress-token";
/// Connections at once; more wait in the system's own queue.
const CONNECTIONS_MAX: usize = 1024;
/// Most bytes of a request's head.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Most lines of a request's head.
const HEAD_LINES_MAX: usize = 64;
/// Longest wait for a request's head, and for its body.
const HEAD_READ: Duration = Duration::from_secs(10);
const BODY_READ: Duration = Duration::from_secs(30);
/// Longest life of a connection.
const CONNECTION_LIFE: Duration = Duration::from_secs(15 * 60);
/// What JSON adds around a request body: escapes or base64 double it at most for all but odd bodies, and the other fields.
const DOCUMENT_FACTOR: u64 = 2;
const DOCUMENT_EXTRA_BYTES: u64 = 64 * 1024;
/// Whoever comes through this door: it has its token and nothing else to show.
const CHILD: Shower = Shower { door: Door::Http, plays: (false, false), certificate: None, claimed: None };
/// Pause after the system refuses a connection, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `drain`, then lets calls in flight end.
pub async fn serve(listener: TcpListener, broker: Arc<Broker>, drain: CancellationToken) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            let permit = Arc::clone(&room).acquire_owned().await.expect("the semaphore is never closed");
            (listener.accept().await, permit)
        };
        tokio::select! {
            (accepted, permit) = accepted => match accepted {
                Ok((stream, _)) => {
                    let (broker, drain) = (Arc::clone(&broker), drain.clone());
                    connections.spawn(async move {
                        let _best_effort = stream.set_nodelay(true);
                        connection(stream, broker, drain).await;
                        drop(permit);
                    });
                }
                Err(cause) => {
                    tracing::warn!(%cause, "the egress port cannot take a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            () = drain.cancelled() => break,
        }
    }
    while connections.join_next().await.is_some() {}
}

/// Serves one connection until its other end, its life or `drain` ends it.
pub async fn connection<S>(stream: S, broker: Arc<Broker>, drain: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let broker = Arc::clone(&broker);
        async move { Ok::<_, std::convert::Infallible>(answer(&broker, request).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_READ)
        .max_headers(HEAD_LINES_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => Some(ended),
        () = drain.cancelled() => None,
        () = tokio::time::sleep(CONNECTION_LIFE) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(cause) = ended {
        tracing::debug!(%cause, "an egress connection broke");
    }
}

async fn answer(broker: &Broker, request: http::Request<Incoming>) -> Response<Body> {
    match call(broker, request).await {
        Ok(answer) => json(StatusCode::OK, answer),
        Err(denied) => {
            let error = document::error(&denied.refusal.text);
            json(status_of(denied.refusal.why), error)
        }
    }
}

/// Token, a runner that takes records, size, JSON; then the one path of all doors; and an answer once its record is durable.
async fn call(broker: &Broker, request: http::Request<Incoming>) -> Result<Vec<u8>, Denied> {
    let pass = broker.bind(admit(broker, &request)?, &CHILD)?;
    let watcher = pass.permit.watcher.clone();
    if let Err(refusal) = broker.watchers.require(&watcher) {
        return Err(broker.reject(pass, refusal));
    }
    let outcome = match asked(&pass, request).await {
        Ok(request) => broker.call(pass, request).await,
        Err(refusal) => Err(broker.reject(pass, refusal)),
    };
    let record = match &outcome {
        Ok(done) => &done.record,
        Err(denied) => &denied.record,
    };
    broker.watchers.tell(&watcher, record).await.map_err(|refusal| broker.unrecorded(record, refusal))?;
    outcome.map(|done| document::answer(&done))
}

async fn asked(pass: &Pass, request: http::Request<Incoming>) -> Result<Request, Refusal> {
    document::read(&body(pass, request).await?)
}

fn admit(broker: &Broker, request: &http::Request<Incoming>) -> Result<Pass, Denied> {
    let uri = request.uri();
    let plain = uri.scheme().is_none() && uri.authority().is_none() && uri.path() == "/" && uri.query().is_none();
    if request.method() != Method::POST || !plain {
        let refusal =
            Refusal::new(Why::MalformedRequest, "the egress port takes POST / with a JSON body, nothing else");
        return Err(broker.turn_away(refusal, Door::Http));
    }
    let mut tokens = request.headers().get_all(TOKEN_HEADER).iter();
    match (tokens.next(), tokens.next()) {
        (Some(_), Some(_)) => {
            let refusal =
                Refusal::new(Why::TokenRepeated, "the header X-Areev-Egress-Token is given twice: give it once");
            Err(broker.turn_away(refusal, Door::Http))
        }
        (token, _) => broker.admit(token.and_then(|token| token.to_str().ok()).unwrap_or_default(), Door::Http),
    }
}

async fn body(pass: &Pass, request: http::Request<Incoming>) -> Result<Bytes, Refusal> {
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
            if bytes.len() as u64 + piece.len() as u64 > max {
                return Err(too_large());
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.freeze())
    };
    let late = |_| Err(Refusal::new(Why::DeadlineExceeded, "the request's body did not come in time"));
    tokio::time::timeout(BODY_READ, reading).await.unwrap_or_else(late)
}

/// One status for each kind of trouble.
fn status_of(why: Why) -> StatusCode {
    match why.class() {
        Class::Malformed => StatusCode::BAD_REQUEST,
        Class::Token => StatusCode::UNAUTHORIZED,
        Class::Policy | Class::Calls => StatusCode::FORBIDDEN,
        Class::RequestSize => StatusCode::PAYLOAD_TOO_LARGE,
        Class::Busy => StatusCode::TOO_MANY_REQUESTS,
        Class::Upstream | Class::AnswerSize => StatusCode::BAD_GATEWAY,
        Class::Deadline => StatusCode::GATEWAY_TIMEOUT,
    }
}

fn json(status: StatusCode, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
