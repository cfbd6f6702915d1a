//! Which addresses a service's name has: several, where it has several replicas, and others after a while.

use std::{io, net::SocketAddr};

use futures::{FutureExt as _, future::BoxFuture};

/// Looks names up. The system's resolver, or a test's.
pub trait Names: Send + Sync {
    /// The addresses of a name, in no order.
    fn addresses(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;
}

/// The system's resolver.
pub struct SystemNames;

impl Names for SystemNames {
    fn addresses(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) }.boxed()
    }
}
