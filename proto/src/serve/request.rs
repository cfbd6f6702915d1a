//! Around every RPC: its request id, its peer, its log line, its metrics, and the refusal of new work while draining.

use std::time::Instant;

use axum::{
    body::Body,
    extract::{Request, State},
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt as _;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Code, Status, service::Routes};
use tracing::Instrument as _;

use crate::{
    fault::{self, Fault, Reason},
    identity::Peer,
};

use super::{
    deadline,
    restate::{domain_of, restated},
};

/// Header and reply metadata of the request id.
const REQUEST_ID: &str = "x-request-id";
/// W3C trace context.
const TRACEPARENT: &str = "traceparent";
/// Longest request id that is taken over from a caller.
const REQUEST_ID_BYTES_MAX: usize = 128;

#[derive(Clone)]
struct Context {
    request_id: String,
    traceparent: Option<HeaderValue>,
}

tokio::task_local! {
    static CONTEXT: Context;
}

/// The id of the request that this task serves.
pub fn request_id() -> Option<String> {
    CONTEXT.try_with(|context| context.request_id.clone()).ok()
}

/// The caller's `traceparent`, to be handed on.
pub fn traceparent() -> Option<HeaderValue> {
    CONTEXT.try_with(|context| context.traceparent.clone()).ok().flatten()
}

/// Runs work under a request id of its own, for work that no request began.
pub async fn scope<F: Future>(request_id: String, work: F) -> F::Output {
    CONTEXT.scope(Context { request_id, traceparent: None }, work).await
}

/// Wraps every RPC. Those of the services' own are in flight until their replies have gone out whole.
pub(super) fn around(routes: Routes, drain: CancellationToken, in_flight: TaskTracker) -> Routes {
    routes.into_axum_router().layer(from_fn_with_state((drain, in_flight), observe)).into()
}

async fn observe(
    State((drain, in_flight)): State<(CancellationToken, TaskTracker)>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let method = request.uri().path().to_owned();
    let context = Context {
        request_id: taken_over(request.headers()).unwrap_or_else(|| uuid::Uuid::now_v7().to_string()),
        traceparent: request.headers().get(TRACEPARENT).cloned(),
    };
    let peer = Peer::of(request.extensions());
    request.extensions_mut().insert(peer);

    let id = context.request_id.clone();
    let mut response = if drain.is_cancelled() && !is_health(&method) {
        refusal(&method)
    } else {
        let span = tracing::info_span!("rpc", request_id = id);
        let token = in_flight.token();
        let limit = deadline::of(request.headers());
        let answering = deadline::bounded(&method, limit, next.run(request));
        let reply = CONTEXT.scope(context, answering.instrument(span)).await;
        if is_own(&method) {
            restated(&method, reply).map(|body| {
                Body::new(body.map_frame(move |frame| {
                    let _until_here = &token;
                    frame
                }))
            })
        } else {
            reply
        }
    };
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    record(&method, &id, &response, started);
    response
}

fn taken_over(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let fits = !id.is_empty() && id.len() <= REQUEST_ID_BYTES_MAX && id.bytes().all(|byte| byte.is_ascii_graphic());
    fits.then(|| id.to_owned())
}

/// Methods of the shared services answer as their own specifications say.
fn is_own(method: &str) -> bool {
    !method.starts_with("/grpc.")
}

fn is_health(method: &str) -> bool {
    method.starts_with("/grpc.health.")
}

fn refusal(method: &str) -> Response {
    Fault::new(Reason::Draining, "this service is draining: call another replica or try again")
        .retry_after(std::time::Duration::from_secs(1))
        .into_status(domain_of(method))
        .into_http()
}

/// A reply with an error at once has its status in the headers; one that streams is counted as begun.
fn record(method: &str, id: &str, response: &Response, started: Instant) {
    let code = Status::from_header_map(response.headers()).map_or(Code::Ok, |status| status.code());
    let seconds = started.elapsed().as_secs_f64();
    let known = if response.status().is_success() && code != Code::Unimplemented { method } else { "unknown" };
    metrics::counter!("areev_rpcs_total", "method" => known.to_owned(), "code" => format!("{code:?}")).increment(1);
    let refused = Status::from_header_map(response.headers()).as_ref().and_then(fault::reason_of);
    // Of the registry, so that no words of somebody else's come into metrics and log.
    let reason = refused.map(Reason::name);
    if let Some(reason) = reason {
        metrics::counter!("areev_refusals_total", "reason" => reason).increment(1);
    }
    metrics::histogram!("areev_rpc_seconds", "method" => known.to_owned()).record(seconds);
    let ms = started.elapsed().as_millis() as u64;
    match fault::level_of(code) {
        tracing::Level::ERROR => tracing::error!(method, ?code, reason, request_id = id, ms, "rpc"),
        tracing::Level::WARN => tracing::warn!(method, ?code, reason, request_id = id, ms, "rpc"),
        _ if code == Code::Ok => tracing::debug!(method, ?code, request_id = id, ms, "rpc"),
        _ => tracing::info!(method, ?code, reason, request_id = id, ms, "rpc"),
    }
}
