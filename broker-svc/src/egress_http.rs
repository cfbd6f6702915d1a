//! The HTTP door: `POST /` with the token in its one header and the call as JSON, for child processes.

mod body;
mod bounds;
mod document;
mod patient;
mod peers;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
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
    broker::{Broker, Denied, Pass, Request, Room},
    refusal::{Class, Refusal, Why},
    token::Shower,
};
pub use bounds::DoorBounds;
use patient::Patient;
use peers::Peers;

/// The header that carries the token.
pub const TOKEN_HEADER: &str = "x-areev-egress-token";
/// Most bytes of a request's head.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Most lines of a request's head.
const HEAD_LINES_MAX: usize = 64;
/// What an address is told that holds its most connections. It is sent if it can be sent at once.
const TOO_MANY: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\ncontent-length: 95\r\n\
    connection: close\r\n\r\n\
    {\"error\":\"this address holds its most connections to the broker: close some\",\"code\":\"RUN-E022\"}";
/// Whoever comes through this door: it has its token and nothing else to show.
const CHILD: Shower = Shower { door: Door::Http, plays: (false, false), certificate: None, claimed: None };
/// Pause after the system refuses a connection, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `drain`, then lets calls in flight end.
pub async fn serve(listener: TcpListener, broker: Arc<Broker>, bounds: DoorBounds, drain: CancellationToken) {
    let (room, peers) = (Arc::new(Semaphore::new(bounds.connections)), Arc::new(Peers::default()));
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            let permit = Arc::clone(&room).acquire_owned().await.expect("the semaphore is never closed");
            (listener.accept().await, permit)
        };
        tokio::select! {
            (accepted, permit) = accepted => match accepted {
                Ok((stream, peer)) => {
                    let Some(counted) = peers.count(peer.ip(), bounds.connections_of_one) else {
                        metrics::counter!("areev_broker_door_refused_total").increment(1);
                        let _best_effort = stream.try_write(TOO_MANY);
                        continue;
                    };
                    let (broker, drain) = (Arc::clone(&broker), drain.clone());
                    connections.spawn(async move {
                        let _best_effort = stream.set_nodelay(true);
                        connection(stream, broker, bounds, drain).await;
                        drop((counted, permit));
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
pub async fn connection<S>(stream: S, broker: Arc<Broker>, bounds: DoorBounds, drain: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let known = Arc::new(AtomicBool::new(false));
    // A call that is in flight at the end of a connection's life ends by its own bounds.
    let call_max = bounds.body + broker.call_max();
    let service = {
        let known = Arc::clone(&known);
        service_fn(move |request| {
            let (broker, known) = (Arc::clone(&broker), Arc::clone(&known));
            async move { Ok::<_, std::convert::Infallible>(answer(&broker, bounds.body, &known, request).await) }
        })
    };
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head)
        .max_headers(HEAD_LINES_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(Patient::new(stream, bounds.unread)), service);
    tokio::pin!(serving);
    let unknown = async {
        tokio::time::sleep(bounds.unknown).await;
        if known.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        ended = serving.as_mut() => Some(ended),
        () = drain.cancelled() => None,
        () = tokio::time::sleep(bounds.life) => None,
        () = unknown => {
            tracing::debug!("an egress connection showed no good token in its time: closed");
            return;
        }
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            serving.as_mut().graceful_shutdown();
            let left = if known.load(Ordering::Relaxed) { call_max + bounds.ending } else { bounds.ending };
            match tokio::time::timeout(left, serving).await {
                Ok(ended) => ended,
                Err(_) => return tracing::debug!("an egress connection did not end in its time: closed"),
            }
        }
    };
    if let Err(cause) = ended {
        tracing::debug!(%cause, "an egress connection broke");
    }
}

async fn answer(
    broker: &Broker,
    patience: Duration,
    known: &AtomicBool,
    request: http::Request<Incoming>,
) -> Response<Body> {
    match call(broker, patience, known, request).await {
        Ok((answer, room)) => json(StatusCode::OK, Body::from(room.around(answer))),
        Err(denied) => {
            let error = document::error(&denied.refusal.text);
            json(status_of(denied.refusal.why), Body::from(error))
        }
    }
}

/// Token, a runner that takes records, size, JSON; then the one path of all doors; and an answer once its record is durable.
async fn call(
    broker: &Broker,
    patience: Duration,
    known: &AtomicBool,
    request: http::Request<Incoming>,
) -> Result<(Vec<u8>, Room), Denied> {
    let pass = broker.bind(admit(broker, &request)?, &CHILD)?;
    known.store(true, Ordering::Relaxed);
    let watcher = pass.permit.watcher.clone();
    if let Err(refusal) = broker.watchers.require(&watcher) {
        return Err(broker.reject(pass, refusal));
    }
    let outcome = match asked(broker, &pass, patience, request).await {
        Ok(request) => broker.call(pass, request).await,
        Err(refusal) => Err(broker.reject(pass, refusal)),
    };
    let record = match &outcome {
        Ok(done) => &done.record,
        Err(denied) => &denied.record,
    };
    broker.watchers.tell(&watcher, record).await.map_err(|refusal| broker.unrecorded(record, refusal))?;
    outcome.map(|done| (document::answer(&done), done.into_room()))
}

async fn asked(
    broker: &Broker,
    pass: &Pass,
    patience: Duration,
    request: http::Request<Incoming>,
) -> Result<Request, Refusal> {
    let mut room = Room::default();
    let document = body::read(broker, pass, &mut room, patience, request).await?;
    Ok(Request { room, ..document::read(&document)? })
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

fn json(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
