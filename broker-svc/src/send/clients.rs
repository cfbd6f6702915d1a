//! HTTP clients, one for each origin, credential and set of checked addresses: connections are never shared across these.

use std::{
    net::{IpAddr, SocketAddr},
    num::NonZeroUsize,
    time::Duration,
};

use lru::LruCache;
use parking_lot::Mutex;
use reqwest::{Client, dns, redirect, retry};

use crate::{
    origin::{Host, Origin, Scheme},
    refusal::{Refusal, Why},
};

/// Clients kept; past it the one used longest ago goes, with its idle connections.
const CLIENTS_MAX: usize = 256;
/// Idle connections of one client.
const IDLE_MAX: usize = 16;
/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(30);
/// Longest wait for one connection; the call's own deadline holds too.
const CONNECT: Duration = Duration::from_secs(10);
/// Most lines of response headers.
const HEADER_LINES_MAX: usize = 128;

/// What a client may be used for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pinned {
    /// The origin.
    pub origin: Origin,
    /// The credential's name.
    pub credential: Option<String>,
    /// The addresses that were checked, in the resolver's order.
    pub addresses: Vec<IpAddr>,
}

/// The clients.
pub struct Clients {
    tls: rustls::ClientConfig,
    pool: Mutex<LruCache<Pinned, Client>>,
}

/// A name that was not pinned is not looked up.
struct NoLookup;

impl dns::Resolve for NoLookup {
    fn resolve(&self, _: dns::Name) -> dns::Resolving {
        Box::pin(std::future::ready(Err("only checked addresses are connected to".into())))
    }
}

impl Clients {
    /// No clients yet.
    pub fn new(tls: rustls::ClientConfig) -> Self {
        let bound = NonZeroUsize::new(CLIENTS_MAX).expect("the bound is not zero");
        Self { tls, pool: Mutex::new(LruCache::new(bound)) }
    }

    /// The client for this use.
    pub fn get(&self, pinned: &Pinned) -> Result<Client, Refusal> {
        if let Some(client) = self.pool.lock().get(pinned) {
            return Ok(client.clone());
        }
        let client = self.build(pinned).map_err(|cause| {
            tracing::error!(cause = %cause.without_url(), "cannot build an HTTP client");
            Refusal::new(Why::UpstreamFailed, "the broker cannot make a connection now")
        })?;
        self.pool.lock().put(pinned.clone(), client.clone());
        Ok(client)
    }

    fn build(&self, pinned: &Pinned) -> reqwest::Result<Client> {
        let mut tls = self.tls.clone();
        // Sessions are as little shared between credentials as connections are.
        tls.resumption = rustls::client::Resumption::in_memory_sessions(8);
        let builder = Client::builder()
            .tls_backend_preconfigured(tls)
            .https_only(pinned.origin.scheme == Scheme::Https)
            .no_proxy()
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .referer(false)
            .http1_only()
            .http1_max_headers(HEADER_LINES_MAX)
            .connect_timeout(CONNECT)
            .pool_max_idle_per_host(IDLE_MAX)
            .pool_idle_timeout(IDLE)
            .dns_resolver(NoLookup);
        let builder = match &pinned.origin.host {
            Host::Name(name) => {
                let sockets: Vec<_> =
                    pinned.addresses.iter().map(|address| SocketAddr::new(*address, pinned.origin.port)).collect();
                builder.resolve_to_addrs(name, &sockets)
            }
            Host::Address(_) => builder,
        };
        builder.build()
    }
}
