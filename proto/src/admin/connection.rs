//! One connection to the admin port, with the bounds of what its other end may take of it.

use std::{pin::pin, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// Longest wait for the head of a request, the first or the next.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest life; who scrapes comes again.
const LIFE: Duration = Duration::from_secs(600);
/// How long an answer that is under way at the end may go on.
const ENDING: Duration = Duration::from_secs(10);

/// Serves it until its other end, its life or `stop` ends it.
pub(super) async fn serve(stream: TcpStream, router: Router, stop: CancellationToken) {
    let mut serving = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
    );
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = async { tokio::select! { () = stop.cancelled() => {}, () = tokio::time::sleep(LIFE) => {} } } => {
            serving.as_mut().graceful_shutdown();
            match tokio::time::timeout(ENDING, serving).await {
                Ok(ended) => ended,
                Err(_elapsed) => return tracing::debug!("an admin connection did not end in its time: closed"),
            }
        }
    };
    if let Err(cause) = ended {
        tracing::debug!(%cause, "an admin connection broke");
    }
}
