//! Who is at the other end of a connection: a role from its certificate, or a caller on this host.

use std::{net::SocketAddr, sync::Arc};

use http::Extensions;
use tonic::transport::server::{TcpConnectInfo, TlsConnectInfo, UdsConnectInfo};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use crate::fault::{Fault, Reason};

/// What a service of this system is, by the last segment of its certificate's `spiffe://<trust domain>/<role>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Mints tokens and executes code.
    Runner,
    /// Fetches for guests.
    Sandbox,
    /// Makes outbound calls.
    Broker,
}

/// The other end of one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// Without TLS, over loopback or a Unix socket of the same user: may play every role.
    Local,
    /// Without TLS, from elsewhere (`--insecure-listen`): may play every role of a service, but is no principal.
    Insecure,
    /// With TLS and a verified certificate: the URIs among its names.
    Certified(Arc<[String]>),
    /// With TLS and no certificate.
    Anonymous,
}

impl Role {
    /// The role's name in a certificate.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Runner => "runner",
            Self::Sandbox => "sandbox",
            Self::Broker => "broker",
        }
    }
}

impl Peer {
    /// Reads the connection's facts, as tonic leaves them with each request.
    pub fn of(extensions: &Extensions) -> Self {
        if let Some(tls) = extensions.get::<TlsConnectInfo<TcpConnectInfo>>() {
            return match tls.peer_certs().as_deref().and_then(|chain| chain.first()) {
                Some(leaf) => Self::Certified(uris(leaf.as_ref()).into()),
                None => Self::Anonymous,
            };
        }
        if extensions.get::<UdsConnectInfo>().is_some() {
            return Self::Local;
        }
        let remote = extensions.get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr);
        if remote.is_some_and(is_loopback) { Self::Local } else { Self::Insecure }
    }

    /// Whether this peer may play one of the roles.
    pub fn plays(&self, trust_domain: &str, roles: &[Role]) -> bool {
        match self {
            Self::Local | Self::Insecure => true,
            Self::Anonymous => false,
            Self::Certified(uris) => {
                roles.iter().any(|role| uris.iter().any(|uri| *uri == role_uri(trust_domain, *role)))
            }
        }
    }
}

/// The name that a service's certificate carries.
pub fn role_uri(trust_domain: &str, role: Role) -> String {
    format!("spiffe://{trust_domain}/{}", role.as_str())
}

/// Refuses a request whose peer may play none of the roles.
pub fn require(extensions: &Extensions, trust_domain: &str, roles: &[Role]) -> Result<(), Fault> {
    let peer = extensions.get::<Peer>().unwrap_or(&Peer::Anonymous);
    if peer.plays(trust_domain, roles) {
        return Ok(());
    }
    let wanted: Vec<_> = roles.iter().map(|role| role_uri(trust_domain, *role)).collect();
    let text = format!("this RPC is for {}: present a client certificate with that URI name", wanted.join(" or "));
    Err(Fault::new(Reason::RoleNotAllowed, text))
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

fn uris(leaf: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(leaf) else { return Vec::new() };
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return Vec::new() };
    let names = &names.value.general_names;
    names
        .iter()
        .filter_map(|name| if let GeneralName::URI(uri) = name { Some((*uri).to_owned()) } else { None })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_plays_exactly_the_role_in_its_name() {
        let peer = Peer::Certified(vec!["spiffe://areev.example/runner".to_owned()].into());
        assert!(peer.plays("areev.example", &[Role::Runner]));
        assert!(!peer.plays("areev.example", &[Role::Sandbox]));
        assert!(!peer.plays("other.example", &[Role::Runner]));
        assert!(!Peer::Anonymous.plays("areev.example", &[Role::Runner]));
    }

    #[test]
    fn uris_are_read_from_a_real_certificate() {
        let mut params = rcgen::CertificateParams::new(vec!["runner.example".to_owned()]).unwrap();
        let uri = "spiffe://areev.example/runner";
        params.subject_alt_names.push(rcgen::SanType::URI(uri.try_into().unwrap()));
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        assert_eq!(uris(certificate.der()), [uri]);
        assert!(uris(b"not a certificate").is_empty());
    }
}
