//! A service's certificate, its key and the authorities that it trusts, read from PEM files.

use std::{
    fmt,
    io::Read as _,
    path::{Path, PathBuf},
};

use tonic::transport::{Certificate, Identity};

/// Largest PEM file, in bytes.
const PEM_BYTES_MAX: u64 = 1024 * 1024;

/// Where the PEM files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    cert: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
}

/// What the PEM files hold. The key is never shown.
#[derive(Clone)]
pub struct TlsMaterial {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// The certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// One of the pair is missing.
    #[error("--tls-cert and --tls-key go together: {0} is missing")]
    Half(&'static str),
    /// A file cannot be read.
    #[error("cannot read {path}: {cause}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: std::io::Error,
    },
    /// A file is no PEM file.
    #[error("{path} holds no PEM block", path = path.display())]
    NotPem {
        /// The file.
        path: PathBuf,
    },
}

impl TlsFiles {
    /// Pairs the flags up; none at all is plain text.
    pub fn of(cert: Option<&Path>, key: Option<&Path>, client_ca: Option<&Path>) -> Result<Option<Self>, TlsError> {
        match (cert, key) {
            (Some(cert), Some(key)) => {
                Ok(Some(Self { cert: cert.to_owned(), key: key.to_owned(), client_ca: client_ca.map(Path::to_owned) }))
            }
            (None, None) if client_ca.is_none() => Ok(None),
            (None, _) => Err(TlsError::Half("--tls-cert")),
            (_, None) => Err(TlsError::Half("--tls-key")),
        }
    }
}

impl TlsMaterial {
    /// Reads the files.
    pub fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        Ok(Self {
            cert: pem(&files.cert)?,
            key: pem(&files.key)?,
            client_ca: files.client_ca.as_deref().map(pem).transpose()?,
        })
    }

    /// Certificate and key, for either end of a connection.
    pub fn identity(&self) -> Identity {
        Identity::from_pem(&self.cert, &self.key)
    }

    /// The authorities that sign peers.
    pub fn client_ca(&self) -> Option<Certificate> {
        self.client_ca.as_ref().map(Certificate::from_pem)
    }
}

impl fmt::Debug for TlsMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsMaterial")
    }
}

fn pem(path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |cause| TlsError::Unreadable { path: path.to_owned(), cause };
    let mut bytes = Vec::new();
    crate::files::open(path)
        .and_then(|file| file.take(PEM_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    if bytes.len() as u64 > PEM_BYTES_MAX {
        return Err(unreadable(std::io::Error::other(format!("over {PEM_BYTES_MAX} bytes"))));
    }
    if !bytes.windows(10).any(|window| window == b"-----BEGIN") {
        return Err(TlsError::NotPem { path: path.to_owned() });
    }
    Ok(bytes)
}

/// Installs the one crypto provider of the process. First thing in every `main`.
pub fn install_crypto_provider() {
    let _already_installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
}
