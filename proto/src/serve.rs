//! Serving gRPC: one listener with health, reflection, request ids, limits and a graceful end.

mod args;
mod deadline;
mod listen;
mod patience;
mod request;
mod restate;

use std::{convert::Infallible, future::Future, time::Duration};

use futures::{Stream, StreamExt as _};
use tokio::net::UnixStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{
    service::Routes,
    transport::{Server, ServerTlsConfig, server::Connected},
};
use tonic_health::pb::health_server::HealthServer;

use crate::{
    door::{Door, Listen, Place},
    open_files,
};
pub use args::{Drain, ServeArgs, ServeError, ServeSettings};
pub use listen::{BoundListener, ListenAddr};
use patience::Patience;
pub use request::{request_id, scope, traceparent};

/// Largest gRPC message that a service reads or writes: a grain of 16 MiB with room for what is around it.
pub const MESSAGE_BYTES_MAX: usize = 18 * 1024 * 1024;
/// Most connections at once, and the part of the files that may be open that they may be: one in so many.
const CONNECTIONS_MAX: usize = 4096;
const CONNECTIONS_PART: u64 = 2;
/// Most RPCs at once on one connection.
const STREAMS_PER_CONNECTION_MAX: u32 = 4096;
/// Most bytes of request headers.
const HEADER_BYTES_MAX: u32 = 32 * 1024;
/// HTTP/2 flow-control windows: one stream, one connection.
const STREAM_WINDOW_BYTES: u32 = 2 * 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 8 * 1024 * 1024;
/// A connection that does not answer a ping is closed.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest wait for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Served beside every service's own.
const SHARED_SERVICES: [&str; 3] =
    ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"];

/// Tells health checks whether a service may get traffic.
#[derive(Clone)]
pub struct Health {
    reporter: tonic_health::server::HealthReporter,
    services: Vec<&'static str>,
}

impl Health {
    /// All that a process answers for: begins as NOT_SERVING.
    pub async fn not_serving(services: &[&'static str]) -> Self {
        let health = Self { reporter: tonic_health::server::HealthReporter::new(), services: services.to_vec() };
        health.set(services, false).await;
        health
    }

    /// Sets the process as a whole (the empty name) and each named service.
    pub async fn set(&self, services: &[&'static str], serving: bool) {
        let status =
            if serving { tonic_health::ServingStatus::Serving } else { tonic_health::ServingStatus::NotServing };
        self.reporter.set_service_status("", status).await;
        for service in services {
            self.reporter.set_service_status(*service, status).await;
        }
    }
}

/// Takes the settings' address and says so in the log: what is listening, where, with what protection.
pub async fn bind(service: &str, settings: &ServeSettings) -> Result<BoundListener, ServeError> {
    let refused = |cause| ServeError::Bind { address: settings.listen.to_string(), cause };
    let listener = settings.listen.bind().await.map_err(refused)?;
    let tls = if settings.tls.is_some() { "on" } else { "off" };
    tracing::info!(service, address = %listener.address(), tls, version = env!("CARGO_PKG_VERSION"), "listening");
    Ok(listener)
}

/// Serves until `drain` begins, then finishes what is in flight, for at most the settings' drain time. Until that is done and
/// `settled` has come, new callers are still answered: that the service is draining.
pub async fn serve(
    listener: BoundListener,
    settings: &ServeSettings,
    routes: Routes,
    health: &Health,
    (drain, settled): (CancellationToken, impl Future<Output = ()> + Send + 'static),
) -> Result<(), ServeError> {
    let routes = with_shared_services(routes, health)?;
    let in_flight = TaskTracker::new();
    let routes = request::around(routes, drain.clone(), in_flight.clone());
    let mut server = Server::builder()
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keepalive_interval(Some(KEEP_ALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
        .http2_max_header_list_size(HEADER_BYTES_MAX);
    if let Some(tls) = &settings.tls {
        let config = ServerTlsConfig::new().identity(tls.identity()).timeout(HANDSHAKE_TIMEOUT);
        let config = match tls.client_ca() {
            Some(ca) => config.client_ca_root(ca).client_auth_optional(settings.client_certificate_optional),
            None => config,
        };
        server = server.tls_config(config).map_err(|cause| ServeError::Tls(cause.to_string()))?;
    }
    let router = server.add_routes(routes);
    let draining = drain.clone();
    let signal = async move {
        draining.cancelled().await;
        in_flight.close();
        tokio::join!(in_flight.wait(), settled);
    };
    match listener {
        BoundListener::Tcp(tcp) => {
            let incoming = accepted(tcp).map(|(stream, place)| Ok::<_, Infallible>(Patience::new(stream, place)));
            bounded(router.serve_with_incoming_shutdown(incoming, signal), drain, settings.drain).await
        }
        BoundListener::Unix(unix) => {
            let own = rustix::process::geteuid().as_raw();
            let incoming = accepted(unix).filter_map(move |(stream, place)| async move {
                is_of(&stream, own).then(|| Ok::<_, Infallible>(Patience::new(stream, place)))
            });
            bounded(router.serve_with_incoming_shutdown(incoming, signal), drain, settings.drain).await
        }
    }
}

/// Cancels the token at SIGTERM or SIGINT.
pub fn drain_on_signal(drain: CancellationToken) -> std::io::Result<tokio::task::JoinHandle<()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = drain.cancelled() => return,
        }
        tracing::info!("draining: what is in flight goes on, nothing new is taken");
        drain.cancel();
    }))
}

fn with_shared_services(routes: Routes, health: &Health) -> Result<Routes, ServeError> {
    let reflect = || {
        let described = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(crate::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET)
            .include_reflection_service(false);
        // Only what is served here is listed; messages of the other packages can be described all the same.
        let listed = health.services.iter().chain(&SHARED_SERVICES);
        listed.fold(described, |described, service| described.with_service_name(*service))
    };
    let broken = |cause: tonic_reflection::server::Error| ServeError::Reflection(cause.to_string());
    let checks = HealthServer::new(tonic_health::server::HealthService::from_health_reporter(health.reporter.clone()));
    Ok(routes
        .add_service(checks)
        .add_service(reflect().build_v1().map_err(broken)?)
        .add_service(reflect().build_v1alpha().map_err(broken)?))
}

/// Connections as they come, each with its place.
fn accepted<L: Listen>(listener: L) -> impl Stream<Item = (L::Io, Place)> {
    let door = Door::new("grpc", listener, open_files::connections(CONNECTIONS_MAX, CONNECTIONS_PART));
    futures::stream::unfold(door, |mut door| async move { Some((door.next().await, door)) })
}

/// Unix sockets are for the same user alone.
fn is_of(stream: &UnixStream, own: u32) -> bool {
    let uid = stream.connect_info().peer_cred.map(|cred| cred.uid());
    let same = uid == Some(own);
    if !same {
        tracing::warn!(?uid, "refused a Unix socket connection of another user");
    }
    same
}

async fn bounded<F>(serving: F, drain: CancellationToken, limit: Duration) -> Result<(), ServeError>
where
    F: Future<Output = Result<(), tonic::transport::Error>>,
{
    let overdue = async {
        drain.cancelled().await;
        tokio::time::sleep(limit).await;
    };
    tokio::select! {
        ended = serving => ended.map_err(|cause| ServeError::Transport(cause.to_string())),
        () = overdue => {
            tracing::warn!(limit_s = limit.as_secs(), "drain time is over: closing what is still in flight");
            Ok(())
        }
    }
}
