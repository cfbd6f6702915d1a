//! The admin port: `/livez`, `/readyz` (says why not), `/metrics`.

mod connection;

use std::{future::Future, net::SocketAddr, pin::Pin, sync::Arc};

use axum::{Router, extract::State, http::StatusCode, routing::get};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{door::Door, open_files, serve::ServeError};

/// Answers whether the service may get traffic; an error says why not.
pub type Readiness = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;

/// What a service that may get traffic still has to say, a line each: what is not as it should be.
pub type Notes = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// Most connections at once, and the part of the files that may be open that they may be: one in so many.
const CONNECTIONS_MAX: usize = 256;
const CONNECTIONS_PART: u64 = 16;
/// Longest list of notes; the last line counts the rest.
const NOTES_MAX: usize = 20;

/// What `/readyz` answers from.
#[derive(Clone)]
struct Answers {
    ready: Readiness,
    notes: Notes,
}

/// Serves the admin port until the token is cancelled. The listener is taken before this returns.
pub async fn serve(
    address: SocketAddr,
    ready: Readiness,
    stop: CancellationToken,
) -> Result<tokio::task::JoinHandle<()>, ServeError> {
    serve_with_notes(address, ready, Arc::new(Vec::new), stop).await
}

/// The same, with notes behind the first line of `/readyz`, at most 20.
pub async fn serve_with_notes(
    address: SocketAddr,
    ready: Readiness,
    notes: Notes,
    stop: CancellationToken,
) -> Result<tokio::task::JoinHandle<()>, ServeError> {
    let listener =
        TcpListener::bind(address).await.map_err(|cause| ServeError::Bind { address: address.to_string(), cause })?;
    if let Ok(bound) = listener.local_addr() {
        tracing::info!(address = %bound, "admin port: /livez /readyz /metrics");
    }
    let router = Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(render))
        .with_state(Answers { ready, notes });
    let door = Door::new("admin", listener, open_files::connections(CONNECTIONS_MAX, CONNECTIONS_PART));
    Ok(tokio::spawn(answer(door, router, stop)))
}

/// Takes connections until the token is cancelled, then lets those end that are served.
async fn answer(mut door: Door<TcpListener>, router: Router, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            (stream, place) = door.next() => {
                let serving = connection::serve(stream, router.clone(), stop.clone());
                connections.spawn(async move {
                    serving.await;
                    drop(place);
                });
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            () = stop.cancelled() => break,
        }
    }
    drop(door);
    while connections.join_next().await.is_some() {}
}

async fn readyz(State(answers): State<Answers>) -> (StatusCode, String) {
    let (code, mut text) = match (answers.ready)().await {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    };
    let notes = (answers.notes)();
    for note in notes.iter().take(NOTES_MAX) {
        text.push_str(&format!("note: {note}\n"));
    }
    if notes.len() > NOTES_MAX {
        text.push_str(&format!("note: and {} more\n", notes.len() - NOTES_MAX));
    }
    (code, text)
}

async fn render() -> String {
    let metrics = crate::telemetry::metrics();
    metrics.run_upkeep();
    metrics.render()
}
