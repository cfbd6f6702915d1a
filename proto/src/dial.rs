//! Reaching another service: one lazily connected channel, with its limits.

mod service_url;

use std::{error::Error, net::SocketAddr, time::Duration};

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::{
    metadata::MetadataValue,
    service::Interceptor,
    transport::{Channel, ClientTlsConfig, Endpoint, Uri},
};

pub use service_url::Named;

use crate::{serve, tls::TlsMaterial};

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
const STREAM_WINDOW_BYTES: u32 = 2 * 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 8 * 1024 * 1024;

/// The URL of a service cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The scheme is none that is spoken here.
    #[error("{0} is no service URL: write http://HOST:PORT, https://HOST:PORT or unix:PATH")]
    Scheme(Named),
    /// It has something that no service URL has.
    #[error("{url} has {what}: write http://HOST:PORT or https://HOST:PORT, and nothing else")]
    Extra {
        /// The URL.
        url: Named,
        /// What it has.
        what: &'static str,
    },
    /// A Unix socket without a path.
    #[error("{0} lacks a path: write unix:PATH")]
    NoPath(Named),
    /// An `https://` URL without certificates.
    #[error("{0} needs --tls-cert, --tls-key and --tls-client-ca: the services know each other by certificate")]
    NoIdentity(Named),
    /// The URL or the certificates are refused by the transport.
    #[error("cannot use {url}: {cause}")]
    Refused {
        /// The URL.
        url: Named,
        /// What the transport says.
        cause: String,
    },
}

/// Makes a channel. It connects with the first call, and again whenever the connection is lost.
pub fn dial(url: &str, tls: Option<&TlsMaterial>) -> Result<Channel, DialError> {
    Ok(endpoint(url, tls)?.connect_lazy())
}

/// The same to one address of the url's host: names, certificates and limits are the url's.
pub fn dial_at(url: &str, address: SocketAddr, tls: Option<&TlsMaterial>) -> Result<Channel, DialError> {
    let connector = tower::service_fn(move |_: Uri| async move {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok::<_, std::io::Error>(TokioIo::new(stream))
    });
    Ok(endpoint(url, tls)?.connect_with_connector_lazy(connector))
}

fn endpoint(url: &str, tls: Option<&TlsMaterial>) -> Result<Endpoint, DialError> {
    let refused = |cause: &dyn Error| DialError::Refused { url: Named::of(url), cause: with_sources(cause) };
    let secure = service_url::check(url)?;
    let mut endpoint = Endpoint::from_shared(url.to_owned())
        .map_err(|cause| refused(&cause))?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
    if secure {
        let tls = tls.ok_or_else(|| DialError::NoIdentity(Named::of(url)))?;
        let ca = tls.client_ca().ok_or_else(|| DialError::NoIdentity(Named::of(url)))?;
        let config = ClientTlsConfig::new().identity(tls.identity()).ca_certificate(ca);
        endpoint = endpoint.tls_config(config).map_err(|cause| refused(&cause))?;
    }
    Ok(endpoint)
}

/// The transport's own words name a layer only; what is wrong stands further down.
fn with_sources(cause: &dyn Error) -> String {
    let text = cause.to_string();
    cause.source().map_or_else(|| text.clone(), |source| format!("{text}: {}", with_sources(source)))
}

/// Hands request id and trace context on to the service that is called. Use with `XClient::with_interceptor`.
#[derive(Debug, Clone, Copy, Default)]
pub struct HandOn;

impl Interceptor for HandOn {
    fn call(&mut self, mut request: tonic::Request<()>) -> Result<tonic::Request<()>, tonic::Status> {
        if let Some(id) = serve::request_id().and_then(|id| MetadataValue::try_from(id).ok()) {
            request.metadata_mut().insert("x-request-id", id);
        }
        let trace = serve::traceparent().and_then(|value| value.to_str().ok()?.parse().ok());
        if let Some(trace) = trace {
            request.metadata_mut().insert("traceparent", trace);
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::{self, TlsFiles};

    #[test]
    fn certificates_that_are_none_are_refused_with_what_is_wrong_with_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tls.crt");
        std::fs::write(&path, "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n").unwrap();
        let files = TlsFiles::of(Some(&path), Some(&path), Some(&path)).unwrap().unwrap();
        tls::install_crypto_provider();
        let refused = dial("https://x:1", Some(&TlsMaterial::read(&files).unwrap())).unwrap_err().to_string();
        assert!(refused.starts_with("cannot use \"https://x:1\": transport error: "), "{refused}");
    }

    #[tokio::test]
    async fn a_url_of_another_scheme_is_refused_by_name() {
        assert!(matches!(dial("ftp://x", None), Err(DialError::Scheme(url)) if url == Named::of("ftp://x")));
        assert!(matches!(dial("https://x:1", None), Err(DialError::NoIdentity(_))));
        assert!(dial("http://127.0.0.1:1", None).is_ok());
        assert!(dial("unix:/tmp/nobody.sock", None).is_ok());
    }
}
