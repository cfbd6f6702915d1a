//! Where the sandboxes are: the addresses that were named, and those that a name has now. A name with several addresses stands for
//! as many replicas (on Kubernetes a headless service); it is looked up again, so that they may come and go.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use proto::tls::TlsMaterial;
use tokio::time::{Instant, timeout};

use super::replica::Replica;
use crate::dispatch::{code::SharedCode, config::DispatchConfigError, names::Names, service_client::SHORT_CALL};

/// How long addresses are used before a name is looked up again.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Addresses of one name that are used; more are left out, the largest first.
const ADDRESSES_MAX: usize = 64;

/// All sandboxes.
pub(super) struct Sites {
    named: Vec<Site>,
    names: Arc<dyn Names>,
    source: SharedCode,
    tls: Option<TlsMaterial>,
    /// Held while names are looked up: one task does it, the others go on with what is known.
    looking: tokio::sync::Mutex<Option<Instant>>,
}

/// One `--sandbox-url`.
struct Site {
    url: String,
    /// Host and port, where it is a name.
    name: Option<(String, u16)>,
    /// The url as it is: what is used while the name has one address, or none that is known.
    whole: Arc<Replica>,
    /// By address, where the name has several.
    replicas: Mutex<BTreeMap<SocketAddr, Arc<Replica>>>,
}

impl Sites {
    /// Nothing is looked up before the first effect.
    pub(super) fn new(
        urls: &[String],
        names: Arc<dyn Names>,
        source: &SharedCode,
        tls: Option<&TlsMaterial>,
    ) -> Result<Self, DispatchConfigError> {
        let site = |url: &String| {
            let whole = Arc::new(Replica::new(url, None, source.clone(), tls)?);
            Ok(Site { url: url.clone(), name: name_in(url), whole, replicas: Mutex::default() })
        };
        let named = urls.iter().map(site).collect::<Result<Vec<_>, DispatchConfigError>>()?;
        if named.is_empty() {
            return Err(DispatchConfigError::Blank("--sandbox-url"));
        }
        let looking = tokio::sync::Mutex::default();
        Ok(Self { named, names, source: source.clone(), tls: tls.cloned(), looking })
    }

    /// The replicas of now.
    pub(super) async fn replicas(&self) -> Vec<Arc<Replica>> {
        self.look().await;
        self.named.iter().flat_map(Site::replicas).collect()
    }

    /// The addresses as they were named, for texts.
    pub(super) fn urls(&self) -> String {
        self.named.iter().map(|site| site.url.as_str()).collect::<Vec<_>>().join(", ")
    }

    async fn look(&self) {
        if self.named.iter().all(|site| site.name.is_none()) {
            return;
        }
        let Ok(mut looked) = self.looking.try_lock() else { return };
        if looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return;
        }
        for site in &self.named {
            let Some((host, port)) = &site.name else { continue };
            match timeout(SHORT_CALL, self.names.addresses(host.clone(), *port)).await {
                Ok(Ok(addresses)) => self.take(site, addresses.into_iter().collect()),
                // What was known is tried on.
                Ok(Err(error)) => tracing::warn!(url = site.url, %error, "the name of a sandbox is not found"),
                Err(_elapsed) => tracing::warn!(url = site.url, "the name of a sandbox is not found in time"),
            }
        }
        *looked = Some(Instant::now());
    }

    /// A replica that stays keeps its connection; one that is gone ends with the last effect that uses it.
    fn take(&self, site: &Site, addresses: BTreeSet<SocketAddr>) {
        let mut replicas = site.replicas.lock();
        if addresses.len() < 2 {
            return replicas.clear();
        }
        let kept: BTreeSet<SocketAddr> = addresses.into_iter().take(ADDRESSES_MAX).collect();
        replicas.retain(|address, _| kept.contains(address));
        for address in kept {
            if replicas.contains_key(&address) {
                continue;
            }
            match Replica::new(&site.url, Some(address), self.source.clone(), self.tls.as_ref()) {
                Ok(replica) => {
                    tracing::info!(url = site.url, %address, "a sandbox is used");
                    replicas.insert(address, Arc::new(replica));
                }
                Err(error) => tracing::warn!(url = site.url, %address, %error, "a sandbox cannot be used"),
            }
        }
    }
}

impl Site {
    fn replicas(&self) -> Vec<Arc<Replica>> {
        let replicas = self.replicas.lock();
        if replicas.is_empty() { vec![Arc::clone(&self.whole)] } else { replicas.values().cloned().collect() }
    }
}

/// Host and port of a url that names a host; none of an address, of this host, and of a socket's path.
fn name_in(url: &str) -> Option<(String, u16)> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))?;
    let authority = rest.split('/').next()?;
    let (host, port) = authority.rsplit_once(':')?;
    let is_name = host != "localhost" && host.trim_matches(['[', ']']).parse::<IpAddr>().is_err();
    is_name.then(|| Some((host.to_owned(), port.parse().ok()?)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_is_looked_up() {
        assert_eq!(name_in("http://sandbox.areev.svc:7420"), Some(("sandbox.areev.svc".to_owned(), 7420)));
        assert_eq!(name_in("https://sandbox:7420/"), Some(("sandbox".to_owned(), 7420)));
        for url in [
            "http://127.0.0.1:7420",
            "http://[::1]:7420",
            "http://localhost:7420",
            "unix:/run/a.sock",
            "http://sandbox",
        ] {
            assert_eq!(name_in(url), None, "{url}");
        }
    }
}
