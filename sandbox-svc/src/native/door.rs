//! The broker's door as a native blob is told it: by its address, for a blob has no way to look a name up.

use std::{net::IpAddr, time::Instant};

use reqwest::Url;

/// Where the door is.
#[derive(Debug, PartialEq, Eq)]
pub struct Door {
    /// Its URL, for the blob.
    pub url: String,
    /// Its port, for the jail; 0, where nobody listens, for what is no URL.
    pub port: u16,
}

impl Door {
    /// The door of a URL. A name is looked up here, and its first address stands in its place; a door with TLS keeps its name,
    /// which its certificate has, and is found only where the name is in the system's list of hosts.
    pub async fn of(url: &str, ends_at: Instant) -> Self {
        let Ok(mut parsed) = url.parse::<Url>() else { return Self { url: url.to_owned(), port: 0 } };
        let port = parsed.port_or_known_default().unwrap_or(0);
        let name = parsed.domain().filter(|_| parsed.scheme() == "http").map(str::to_owned);
        if let Some(name) = name {
            match first_address(&name, port, ends_at).await {
                Some(address) if parsed.set_ip_host(address).is_ok() => return Self { url: parsed.into(), port },
                _ => tracing::warn!(name, "the broker's door has no address: a native blob will not reach it"),
            }
        }
        Self { url: url.to_owned(), port }
    }
}

async fn first_address(name: &str, port: u16, ends_at: Instant) -> Option<IpAddr> {
    let looking = tokio::time::timeout_at(ends_at.into(), tokio::net::lookup_host((name, port)));
    looking.await.ok()?.ok()?.next().map(|address| address.ip())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_blob_is_told_an_address_and_never_a_name_that_it_would_have_to_look_up() {
        let ends_at = Instant::now() + Duration::from_secs(30);
        let door = Door::of("http://localhost:7431/", ends_at).await;
        assert!(["http://127.0.0.1:7431/", "http://[::1]:7431/"].contains(&door.url.as_str()), "{door:?}");
        assert_eq!(door.port, 7431);
        for (url, port) in [("http://127.0.0.1:7431", 7431), ("https://broker/", 443), ("no url", 0)] {
            assert_eq!(Door::of(url, ends_at).await, Door { url: url.to_owned(), port });
        }
    }
}
