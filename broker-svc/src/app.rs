//! Composition root: from settings to a running service.

use std::{net::SocketAddr, sync::Arc, time::SystemTime};

use proto::{
    admin,
    serve::{self, BoundListener, Health, ServeError},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    api::Api,
    broker::{Broker, Parts},
    cli::check,
    config::Config,
    credential::KeyError,
    egress_http::{self, DoorBounds},
    in_force::InForce,
    reload::Watch,
    resolve::SystemResolver,
    send::{BadAuthority, Clients, Courier, client_tls},
    token::{BadKeys, Keys, TokenBounds, Tokens},
};

/// What health checks know this process by.
const SERVICES: &[&str] = &["areev.broker.v1.BrokerService"];

/// A service whose ports are taken and whose parts are put together.
pub struct App {
    broker: Arc<Broker>,
    config: Config,
    grpc: BoundListener,
    egress: TcpListener,
    egress_url: String,
    watch: Option<Watch>,
}

/// The service cannot begin, or ended badly.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// A credential has no usable value.
    #[error(transparent)]
    Credential(#[from] KeyError),
    /// `--token-keys` cannot be used.
    #[error(transparent)]
    Keys(#[from] BadKeys),
    /// `--upstream-ca` cannot be used.
    #[error(transparent)]
    Authority(#[from] BadAuthority),
    /// A port cannot be taken, or serving failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Reads the secrets and puts a broker together.
pub fn broker(config: &Config) -> Result<Broker, AppError> {
    let tls = client_tls(config.upstream_ca.as_deref())?;
    let keys = match &config.token_keys {
        Some(folder) => Keys::read(folder)?,
        None => Keys::random(),
    };
    Ok(Broker::new(Parts {
        in_force: InForce::open(config.policy.clone(), None)?,
        tokens: Tokens::of_replica(&config.replica, keys, Arc::new(SystemTime::now), TokenBounds::default()),
        courier: Courier::new(Box::new(SystemResolver), Clients::new(tls)),
        bounds: config.bounds,
    }))
}

impl App {
    /// Reads the secrets and takes the ports.
    pub async fn bind(config: Config) -> Result<Self, AppError> {
        let broker = Arc::new(broker(&config)?);
        Self::around(broker, config).await
    }

    /// Takes the ports for a broker that is already there.
    pub async fn around(broker: Arc<Broker>, config: Config) -> Result<Self, AppError> {
        announce(&broker);
        let taken = |cause| ServeError::Bind { address: config.egress_listen.to_string(), cause };
        let egress = TcpListener::bind(config.egress_listen).await.map_err(taken)?;
        let bound = egress.local_addr().map_err(taken)?;
        let egress_url = config.egress_url.clone().unwrap_or_else(|| format!("http://{bound}"));
        tracing::info!(address = %bound, url = egress_url, "egress port: POST /");
        if !bound.ip().is_loopback() {
            tracing::warn!(address = %bound, "the egress port can be reached from other hosts, without TLS (--insecure-listen)");
        }
        let grpc = serve::bind("broker", &config.serve).await?;
        Ok(Self { broker, config, grpc, egress, egress_url, watch: None })
    }

    /// Reads the rules again when their file changes.
    pub fn watching(self, watch: Watch) -> Self {
        Self { watch: Some(watch.with_keys(self.config.token_keys.clone())), ..self }
    }

    /// The gRPC address and the URL of the HTTP door.
    pub fn addresses(&self) -> (String, String) {
        (self.grpc.address(), self.egress_url.clone())
    }

    /// Serves until `drain`, then finishes what is in flight.
    pub async fn run(self, drain: CancellationToken) -> Result<(), AppError> {
        let health = Health::not_serving(SERVICES).await;
        let admin = match self.config.serve.admin_listen {
            Some(address) => Some(admin_port(address, drain.clone()).await?),
            None => None,
        };
        let watching = self.watch.map(|watch| tokio::spawn(watch.run(Arc::clone(&self.broker), drain.clone())));
        let (broker, bounds) = (Arc::clone(&self.broker), DoorBounds::default());
        let mut door = tokio::spawn(egress_http::serve(self.egress, broker, bounds, drain.clone()));
        let routes = Api::routes(self.broker, self.config.serve.trust_domain.clone(), self.egress_url, drain.clone());
        health.set(SERVICES, true).await;
        let draining = async {
            drain.cancelled().await;
            health.set(SERVICES, false).await;
            std::future::pending::<()>().await;
        };
        let served = tokio::select! {
            served = serve::serve(self.grpc, &self.config.serve, routes, &health, (drain.clone(), std::future::ready(()))) => served,
            () = draining => Ok(()),
        };
        drain.cancel();
        if tokio::time::timeout(self.config.serve.drain, &mut door).await.is_err() {
            tracing::warn!("drain time is over: closing calls of the egress port that are still in flight");
            door.abort();
        }
        for task in watching.map(|task| task.abort_handle()).into_iter().chain(admin.map(|task| task.abort_handle())) {
            task.abort();
        }
        Ok(served?)
    }
}

async fn admin_port(address: SocketAddr, drain: CancellationToken) -> Result<tokio::task::JoinHandle<()>, ServeError> {
    let draining = drain.clone();
    let ready: admin::Readiness = Arc::new(move || {
        let draining = draining.is_cancelled();
        Box::pin(async move { if draining { Err("draining".to_owned()) } else { Ok(()) } })
    });
    // The port outlives the drain's beginning, so that /readyz can say that it has begun; the caller ends it.
    admin::serve(address, ready, CancellationToken::new()).await
}

/// Says in the log what is allowed, and loudly where nothing is.
fn announce(broker: &Broker) {
    let in_force = broker.in_force();
    let policy = &in_force.policy;
    let (credentials, grants) = (policy.credentials.len(), policy.grants.len());
    tracing::info!(credentials, grants, policy_digest = %in_force.digest, "policy in force");
    for (rule, doubt) in check::doubts(policy) {
        tracing::warn!(rule, "{doubt}");
    }
    for credential in policy.credentials.values().filter(|credential| credential.hosts.is_none()) {
        tracing::warn!(
            credential = credential.name,
            "this credential may go wherever grant and policy allow: name its hosts in the file"
        );
    }
}
