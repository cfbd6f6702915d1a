//! The broker's door as a native blob is told it: by its address, for a blob has no way to look a name up.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Instant,
};

use reqwest::Url;

/// Where the door is.
#[derive(Debug, PartialEq, Eq)]
pub struct Door {
    /// Its URL, for the blob.
    pub url: String,
    /// The place that the URL names; absent where it names none, and a blob has nowhere to go.
    pub place: Option<Place>,
}

/// One address, as a blob and as the service get there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// What a blob in a network of its own connects to.
    pub address: SocketAddr,
    /// A name that means that address there.
    pub name: Option<String>,
    /// What the service connects to.
    pub target: (String, u16),
}

impl Door {
    /// The door of a URL. A name is looked up here, and its first address stands in its place; a door with TLS keeps its name,
    /// which its certificate has.
    pub async fn of(url: &str, ends_at: Instant) -> Self {
        let mut door = Self { url: url.to_owned(), place: None };
        let Ok(mut parsed) = url.parse::<Url>() else { return door };
        let Some(port) = parsed.port_or_known_default().filter(|port| *port > 0) else { return door };
        door.place = match parsed.domain().map(str::to_owned) {
            None => {
                parsed.host_str().and_then(|host| Some(Place::at(host.trim_matches(['[', ']']).parse().ok()?, port)))
            }
            Some(name) if parsed.scheme() == "https" => Some(Place {
                address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
                name: Some(name.clone()),
                target: (name, port),
            }),
            Some(name) => match first_address(&name, port, ends_at).await {
                Some(ip) if parsed.set_ip_host(ip).is_ok() => {
                    door.url = parsed.into();
                    Some(Place::at(ip, port))
                }
                _ => {
                    tracing::warn!(name, "the broker's door has no address: a native blob will not reach it");
                    None
                }
            },
        };
        door
    }
}

impl Place {
    fn at(ip: IpAddr, port: u16) -> Self {
        Self { address: SocketAddr::new(ip, port), name: None, target: (ip.to_string(), port) }
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
        let place = door.place.unwrap();
        assert!(place.address.ip().is_loopback() && place.address.port() == 7431, "{place:?}");
        let place = |address: &str, name: Option<&str>, host: &str, port| {
            let (address, name) = (address.parse().unwrap(), name.map(str::to_owned));
            Some(Place { address, name, target: (host.to_owned(), port) })
        };
        for (url, place) in [
            ("http://127.0.0.1:7431", place("127.0.0.1:7431", None, "127.0.0.1", 7431)),
            ("https://[2001:db8::1]:7431", place("[2001:db8::1]:7431", None, "2001:db8::1", 7431)),
            ("https://broker/", place("127.0.0.1:443", Some("broker"), "broker", 443)),
            ("http://127.0.0.1:0/", None),
            ("no url", None),
        ] {
            assert_eq!(Door::of(url, ends_at).await, Door { url: url.to_owned(), place }, "{url}");
        }
    }
}
