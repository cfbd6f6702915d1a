//! An upstream that keeps every byte it was sent and answers as a test says, in plain text or over TLS.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use rustls::{ServerConfig, ServerConnection, StreamOwned, pki_types::PrivateKeyDer};

/// A duplex stream.
trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

/// Writes an answer to one request; false ends the connection.
pub type Script = Arc<dyn Fn(&[u8], &mut dyn Write) -> bool + Send + Sync>;

/// A listening upstream.
pub struct Upstream {
    /// Where it listens.
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<Vec<u8>>>>,
    connections: Arc<AtomicUsize>,
}

impl Upstream {
    /// In plain text on 127.0.0.1.
    pub fn plain(script: impl Fn(&[u8], &mut dyn Write) -> bool + Send + Sync + 'static) -> Self {
        Self::start([127, 0, 0, 1].into(), None, Arc::new(script))
    }

    /// Over TLS on 127.0.0.1, as `api.good.com`, `b.good.com` and `127.0.0.1`.
    pub fn tls(script: impl Fn(&[u8], &mut dyn Write) -> bool + Send + Sync + 'static) -> Self {
        Self::start([127, 0, 0, 1].into(), Some(Arc::clone(&AUTHORITY.server)), Arc::new(script))
    }

    /// Over TLS with a certificate for these names alone.
    pub fn tls_as(names: &[&str], script: impl Fn(&[u8], &mut dyn Write) -> bool + Send + Sync + 'static) -> Self {
        Self::start([127, 0, 0, 1].into(), Some(AUTHORITY.certify(names)), Arc::new(script))
    }

    /// Over TLS on another address of this host.
    pub fn tls_at(ip: IpAddr, port: u16) -> Self {
        let script: Script = Arc::new(|_, out| ok(out, "elsewhere"));
        Self::listen((ip, port).into(), Some(Arc::clone(&AUTHORITY.server)), script)
    }

    fn start(ip: IpAddr, tls: Option<Arc<ServerConfig>>, script: Script) -> Self {
        Self::listen((ip, 0).into(), tls, script)
    }

    fn listen(address: SocketAddr, tls: Option<Arc<ServerConfig>>, script: Script) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, connections) = (Arc::default(), Arc::new(AtomicUsize::new(0)));
        let (kept, counted) = (Arc::clone(&requests), Arc::clone(&connections));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                let (tls, script, kept) = (tls.clone(), Arc::clone(&script), Arc::clone(&kept));
                std::thread::spawn(move || converse(wire(stream, tls), &script, &kept));
            }
        });
        Self { address, requests, connections }
    }

    /// Every request so far, as it came.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// `http://127.0.0.1:port`.
    pub fn http(&self) -> String {
        format!("http://{}", self.address)
    }

    /// `https://host:port`.
    pub fn https(&self, host: &str) -> String {
        format!("https://{host}:{}", self.address.port())
    }
}

/// The authority that signed the upstreams' certificate, as a PEM file.
pub fn authority() -> PathBuf {
    AUTHORITY.file.path().to_owned()
}

struct Authority {
    file: tempfile::NamedTempFile,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    server: Arc<ServerConfig>,
}

static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| {
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = params.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(params, ca_key);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), ca.pem()).unwrap();
    let server = certified(&issuer, &["api.good.com", "b.good.com", "127.0.0.1"]);
    Authority { file, issuer, server }
});

impl Authority {
    fn certify(&self, names: &[&str]) -> Arc<ServerConfig> {
        certified(&self.issuer, names)
    }
}

fn certified(issuer: &rcgen::Issuer<'static, rcgen::KeyPair>, names: &[&str]) -> Arc<ServerConfig> {
    let key = rcgen::KeyPair::generate().unwrap();
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let leaf = rcgen::CertificateParams::new(names).unwrap().signed_by(&key, issuer).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .unwrap();
    Arc::new(server)
}

fn wire(stream: TcpStream, tls: Option<Arc<ServerConfig>>) -> Box<dyn Wire> {
    stream.set_nodelay(true).unwrap();
    match tls {
        Some(config) => Box::new(StreamOwned::new(ServerConnection::new(config).unwrap(), stream)),
        None => Box::new(stream),
    }
}

fn converse(mut wire: Box<dyn Wire>, script: &Script, kept: &Mutex<Vec<Vec<u8>>>) {
    while let Some(request) = read_request(&mut wire) {
        kept.lock().push(request.clone());
        let goes_on = script(&request, &mut wire);
        if wire.flush().is_err() || !goes_on {
            return;
        }
    }
}

fn read_request(wire: &mut Box<dyn Wire>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()?.parse().ok());
            if bytes.len() >= end + 4 + length.unwrap_or(0) {
                return Some(bytes);
            }
        }
        match wire.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
        }
    }
}

/// Writes 200 with a body.
pub fn ok(out: &mut dyn Write, body: &str) -> bool {
    reply(out, "200 OK", &[], body.as_bytes())
}

/// Writes an answer with headers.
pub fn reply(out: &mut dyn Write, status: &str, headers: &[(&str, &str)], body: &[u8]) -> bool {
    let mut head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    out.write_all(head.as_bytes()).and_then(|()| out.write_all(body)).is_ok()
}

/// Answers with the request's own head: an origin that echoes what it was sent.
pub fn echo(request: &[u8], out: &mut dyn Write) -> bool {
    reply(out, "200 OK", &[("Content-Type", "text/plain")], request)
}
