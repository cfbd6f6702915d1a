//! Whom the broker trusts to be an upstream.

use std::{path::Path, sync::Arc};

use proto::files;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, pem::PemObject as _},
    version::{TLS12, TLS13},
};

/// A file of further authorities that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("--upstream-ca {path}: {cause}")]
pub struct BadAuthority {
    path: String,
    cause: String,
}

/// TLS 1.2 and 1.3, the public web's authorities, and those of a PEM file if one is given.
pub fn client_tls(further: Option<&Path>) -> Result<ClientConfig, BadAuthority> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(path) = further {
        let bad = |cause: String| BadAuthority { path: path.display().to_string(), cause };
        let mut count = 0;
        for certificate in CertificateDer::pem_reader_iter(files::open(path).map_err(|cause| bad(cause.to_string()))?) {
            let certificate = certificate.map_err(|cause| bad(cause.to_string()))?;
            roots.add(certificate).map_err(|cause| bad(cause.to_string()))?;
            count += 1;
        }
        if count == 0 {
            return Err(bad("there is no certificate in it".to_owned()));
        }
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .expect("the provider speaks TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
