//! Where a service listens: `IP:PORT` or `unix:PATH`.

use std::{
    fmt, io,
    net::SocketAddr,
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
    str::FromStr,
};

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
    pub async fn bind(&self) -> io::Result<BoundListener> {
        match self {
            Self::Tcp(address) => TcpListener::bind(address).await.map(BoundListener::Tcp),
            Self::Unix(path) => {
                make_way(path).await?;
                UnixListener::bind(path).map(BoundListener::Unix)
            }
        }
    }
}

/// Removes what an ended service left: a socket that nobody listens on. Whatever else is there is somebody's and stays.
async fn make_way(path: &Path) -> io::Result<()> {
    let there = match std::fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(cause) => return Err(cause),
    };
    if !there.file_type().is_socket() {
        let text = "it is there already and is no socket: name another path, or remove it yourself";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    match tokio::net::UnixStream::connect(path).await {
        Err(cause) if cause.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Ok(_) | Err(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens on it")),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_a_socket_that_nobody_listens_on_makes_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let address = ListenAddr::Unix(path.clone());
        let listening = address.bind().await.unwrap();
        assert_eq!(address.bind().await.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listening);
        drop(address.bind().await.expect("an ended service's socket is replaced"));
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "precious").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for somebodys in [&file, &link, &folder.path().to_owned()] {
            let refused = ListenAddr::Unix(somebodys.clone()).bind().await.unwrap_err();
            assert!(refused.to_string().contains("is no socket"), "{refused}");
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
        assert!(link.is_symlink());
    }
}
