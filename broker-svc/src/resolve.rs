//! Looking a name up, once a call.

use std::{io, net::IpAddr};

use futures::future::BoxFuture;

/// Most addresses of one name that are looked at; a name with more is refused, for all have to be checked.
pub const ADDRESSES_MAX: usize = 64;

/// Answers a name's addresses. Tests bring scripted ones.
pub trait Resolver: Send + Sync + 'static {
    /// One lookup.
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The system's own.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).take(ADDRESSES_MAX + 1).collect())
        })
    }
}
