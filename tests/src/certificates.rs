//! Certificates for a stack: one authority, a certificate for each role, and one of a stranger.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use proto::{
    identity::{Role, role_uri},
    tls::{TlsFiles, TlsMaterial},
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};

/// The tests' trust domain: the services' default.
pub const TRUST_DOMAIN: &str = "areev.local";

/// PEM files of one end of a connection.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The chain.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authority that signs the other ends.
    pub authority: PathBuf,
}

/// An authority that signs the certificates of a stack.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
    folder: PathBuf,
}

impl Authority {
    /// Makes an authority whose files go to a folder.
    pub fn new(folder: &Path, name: &str) -> Result<Self> {
        let mut params = CertificateParams::new(Vec::<String>::new()).context("an authority")?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().context("an authority's key")?;
        let file = folder.join(format!("{name}-ca.pem"));
        std::fs::write(&file, params.self_signed(&key)?.pem()).context("an authority's file")?;
        Ok(Self { issuer: Issuer::new(params, key), file, folder: folder.to_owned() })
    }

    /// Signs the certificate of a role, good for `localhost`.
    pub fn role(&self, role: Role) -> Result<Certificate> {
        self.named(role.as_str(), &role_uri(TRUST_DOMAIN, role))
    }

    /// Signs a certificate with a URI name, good for `localhost`.
    pub fn named(&self, file: &str, uri: &str) -> Result<Certificate> {
        self.with_names(file, &[uri])
    }

    /// The same with several names.
    pub fn with_names(&self, file: &str, uris: &[&str]) -> Result<Certificate> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
        for uri in uris {
            params.subject_alt_names.push(SanType::URI((*uri).try_into().context("a URI name")?));
        }
        let key = KeyPair::generate()?;
        let (cert, key_file) = (self.folder.join(format!("{file}.pem")), self.folder.join(format!("{file}-key.pem")));
        std::fs::write(&cert, params.signed_by(&key, &self.issuer)?.pem())?;
        std::fs::write(&key_file, key.serialize_pem())?;
        Ok(Certificate { cert, key: key_file, authority: self.file.clone() })
    }
}

impl Certificate {
    /// As a client or a server takes it.
    pub fn material(&self) -> Result<TlsMaterial> {
        let files = TlsFiles::of(Some(&self.cert), Some(&self.key), Some(&self.authority))?;
        TlsMaterial::read(&files.context("three files")?).context("certificates")
    }
}
