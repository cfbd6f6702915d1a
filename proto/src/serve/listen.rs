//! Where a service listens: `IP:PORT` or `unix:PATH`.

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr};

use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, UnixListener};

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ListenAddr {
    /// `127.0.0.1:7410`, `[::1]:7410`, `0.0.0.0:7410`.
    Tcp(SocketAddr),
    /// `unix:/run/areev/runner.sock`: for services on one host; only the same user may connect.
    Unix(PathBuf),
}

/// A listener that holds its address.
#[derive(Debug)]
pub enum BoundListener {
    /// TCP.
    Tcp(TcpListener),
    /// Unix socket.
    Unix(UnixListener),
}

impl ListenAddr {
    /// Whether only this host can reach it.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// Takes the address. A socket file that nobody listens on any more is replaced.
    pub async fn bind(&self) -> std::io::Result<BoundListener> {
        match self {
            Self::Tcp(address) => TcpListener::bind(address).await.map(BoundListener::Tcp),
            Self::Unix(path) => {
                if path.exists() && tokio::net::UnixStream::connect(path).await.is_err() {
                    std::fs::remove_file(path)?;
                }
                UnixListener::bind(path).map(BoundListener::Unix)
            }
        }
    }
}

impl BoundListener {
    /// The address in force; a port of 0 has become a real one.
    pub fn address(&self) -> String {
        match self {
            Self::Tcp(tcp) => tcp.local_addr().map_or_else(|_| "tcp".to_owned(), |address| address.to_string()),
            Self::Unix(unix) => {
                let path = unix.local_addr().ok().and_then(|address| address.as_pathname().map(PathBuf::from));
                format!("unix:{}", path.unwrap_or_default().display())
            }
        }
    }
}

impl FromStr for ListenAddr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err("unix: needs a path".to_owned()) } else { Ok(Self::Unix(path.into())) };
        }
        text.parse().map(Self::Tcp).map_err(|_| format!("{text:?} is no address: write IP:PORT or unix:PATH"))
    }
}

impl TryFrom<String> for ListenAddr {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<ListenAddr> for String {
    fn from(address: ListenAddr) -> Self {
        address.to_string()
    }
}

impl fmt::Display for ListenAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
