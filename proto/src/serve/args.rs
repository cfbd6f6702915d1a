//! What a service is told about serving, and what is made of it.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::ListenAddr;
use crate::tls::{TlsError, TlsFiles, TlsMaterial};

/// Default of `--drain`.
const DRAIN: Duration = Duration::from_secs(25);
/// Default of `--trust-domain`.
const TRUST_DOMAIN: &str = "areev.local";
/// Longest `--trust-domain`, as SPIFFE has it.
const TRUST_DOMAIN_BYTES_MAX: usize = 255;
/// Longest `--drain`.
const DRAIN_MAX: Duration = Duration::from_secs(3600);

/// A length of time as `25s`, `2m`, `500ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Drain(pub Duration);

/// Flags and settings of serving.
#[derive(Debug, Clone, Default, clap::Args, Serialize, Deserialize)]
#[command(next_help_heading = "Serving")]
#[serde(default, deny_unknown_fields)]
pub struct ServeArgs {
    /// gRPC address, IP:PORT or unix:PATH
    #[arg(long, value_name = "ADDR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<ListenAddr>,
    /// HTTP address of /livez, /readyz and /metrics; `off` for none
    #[arg(long, value_name = "ADDR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_listen: Option<String>,
    /// Serve without TLS on an address that other hosts can reach
    #[arg(long, num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure_listen: Option<bool>,
    /// Certificate chain of this service, PEM: served to clients and shown to other services
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
    /// Authorities that sign the certificates of clients and of the other services, PEM
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_client_ca: Option<PathBuf>,
    /// Trust domain of the services' certificates: spiffe://NAME/runner [default: areev.local]
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust_domain: Option<String>,
    /// How long work in flight may go on after SIGTERM [default: 25s]
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drain>,
}

/// How a service serves.
#[derive(Debug, Clone)]
pub struct ServeSettings {
    /// gRPC address.
    pub listen: ListenAddr,
    /// Admin address, if any.
    pub admin_listen: Option<std::net::SocketAddr>,
    /// Certificates; absent for plain text.
    pub tls: Option<TlsMaterial>,
    /// Whether a client may come without a certificate (it then needs a bearer token).
    pub client_certificate_optional: bool,
    /// The services' trust domain.
    pub trust_domain: String,
    /// How long work in flight may go on.
    pub drain: Duration,
}

/// Serving cannot begin, or ended badly.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Plain text on an address that others can reach.
    #[error(
        "{0} can be reached from other hosts and TLS is off: set --tls-cert, --tls-key and --tls-client-ca, listen on loopback, or accept it with --insecure-listen"
    )]
    Exposed(ListenAddr),
    /// The admin address does not parse.
    #[error("--admin-listen {0:?} is no address: write IP:PORT or off")]
    BadAdmin(String),
    /// The trust domain is none.
    #[error(
        "--trust-domain {0:?} is no SPIFFE trust domain: write 1 to {TRUST_DOMAIN_BYTES_MAX} lower-case letters, digits, '.', '-' or '_'"
    )]
    BadTrustDomain(String),
    /// The address is taken or not ours.
    #[error("cannot listen on {address}: {cause}")]
    Bind {
        /// The address.
        address: String,
        /// What the system says.
        cause: std::io::Error,
    },
    /// The certificates cannot be used.
    #[error(transparent)]
    Files(#[from] TlsError),
    /// The certificates are refused by the TLS library.
    #[error("cannot serve TLS: {0}")]
    Tls(String),
    /// The descriptors cannot be served.
    #[error("cannot serve reflection: {0}")]
    Reflection(String),
    /// The transport failed.
    #[error("serving ended: {0}")]
    Transport(String),
}

impl ServeArgs {
    /// The flags with every default filled in, as they were resolved.
    #[must_use]
    pub fn filled(&self, settings: &ServeSettings) -> Self {
        let admin_listen = settings.admin_listen.map_or_else(|| "off".to_owned(), |address| address.to_string());
        Self {
            listen: Some(settings.listen.clone()),
            admin_listen: Some(admin_listen),
            insecure_listen: Some(self.insecure_listen.unwrap_or(false)),
            trust_domain: Some(settings.trust_domain.clone()),
            drain: Some(Drain(settings.drain)),
            ..self.clone()
        }
    }

    /// Checks the flags. `ports` are the service's own gRPC and admin port.
    pub fn resolve(&self, ports: (u16, u16)) -> Result<ServeSettings, ServeError> {
        let loopback = |port| std::net::SocketAddr::from(([127, 0, 0, 1], port));
        let listen = self.listen.clone().unwrap_or(ListenAddr::Tcp(loopback(ports.0)));
        let admin_listen = match self.admin_listen.as_deref() {
            None => Some(loopback(ports.1)),
            Some("off") => None,
            Some(text) => Some(text.parse().map_err(|_| ServeError::BadAdmin(text.to_owned()))?),
        };
        let trust_domain = self.trust_domain.clone().unwrap_or_else(|| TRUST_DOMAIN.to_owned());
        if !is_trust_domain(&trust_domain) {
            // One character more than fits shows that it is too long.
            return Err(ServeError::BadTrustDomain(trust_domain.chars().take(TRUST_DOMAIN_BYTES_MAX + 1).collect()));
        }
        let tls = TlsFiles::of(self.tls_cert.as_deref(), self.tls_key.as_deref(), self.tls_client_ca.as_deref())?
            .map(|files| TlsMaterial::read(&files))
            .transpose()?;
        if tls.is_none() && !listen.is_local() {
            if !self.insecure_listen.unwrap_or(false) {
                return Err(ServeError::Exposed(listen));
            }
            tracing::warn!(%listen, "serving without TLS on an address that other hosts can reach (--insecure-listen)");
        } else if tls.is_none() {
            tracing::info!(%listen, "serving without TLS, for this host only");
        }
        Ok(ServeSettings {
            listen,
            admin_listen,
            tls,
            client_certificate_optional: false,
            trust_domain,
            drain: self.drain.map_or(DRAIN, |drain| drain.0),
        })
    }
}

fn is_trust_domain(name: &str) -> bool {
    let fits = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_');
    (1..=TRUST_DOMAIN_BYTES_MAX).contains(&name.len()) && name.bytes().all(fits)
}

impl std::str::FromStr for Drain {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let length =
            humantime::parse_duration(text).map_err(|cause| format!("{text:?} is no length of time: {cause}"))?;
        if length > DRAIN_MAX {
            return Err(format!("{text:?} is over {}", humantime::format_duration(DRAIN_MAX)));
        }
        Ok(Self(length))
    }
}

impl TryFrom<String> for Drain {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Drain> for String {
    fn from(drain: Drain) -> Self {
        humantime::format_duration(drain.0).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_stays_on_this_host_unless_said_otherwise() {
        let open = ServeArgs { listen: Some("0.0.0.0:7410".parse().unwrap()), ..ServeArgs::default() };
        assert!(matches!(open.resolve((7410, 7411)), Err(ServeError::Exposed(_))));
        let said = ServeArgs { insecure_listen: Some(true), ..open };
        assert!(said.resolve((7410, 7411)).is_ok());
        assert!(ServeArgs::default().resolve((7410, 7411)).unwrap().listen.is_local());
    }

    #[test]
    fn a_key_without_its_certificate_is_refused_by_name() {
        let half = ServeArgs { tls_key: Some("/k.pem".into()), ..ServeArgs::default() };
        assert!(half.resolve((1, 2)).unwrap_err().to_string().contains("--tls-cert"));
    }

    #[test]
    fn what_is_no_trust_domain_is_refused_by_name_and_escaped() {
        let of = |name: &str| ServeArgs { trust_domain: Some(name.to_owned()), ..ServeArgs::default() }.resolve((1, 2));
        for name in ["areev.local", "a", "prod_eu-1.example", &"a".repeat(TRUST_DOMAIN_BYTES_MAX)] {
            assert_eq!(of(name).unwrap().trust_domain, name);
        }
        let long = "a".repeat(TRUST_DOMAIN_BYTES_MAX + 1);
        for name in ["", "x/y", "Areev.local", "areev.local\u{202e}", "a b", "é", "spiffe://areev.local", &long] {
            let text = of(name).unwrap_err().to_string();
            assert!(text.starts_with(&format!("--trust-domain {name:?}")) && !text.contains('\u{202e}'), "{text}");
        }
    }
}
