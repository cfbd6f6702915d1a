//! Connections whose other end says nothing: over real sockets, with a clock that runs on by itself when all wait.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{net::SocketAddr, sync::Arc, time::Duration};

use proto::{
    admin,
    serve::{self, Health, ServeArgs},
};
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::Instant,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

/// A connection that does not speak is closed by then, and not before a second: it has a way to go.
const CLOSED_WITHIN: Duration = Duration::from_secs(15);

async fn grpc(args: ServeArgs, drain: CancellationToken) -> SocketAddr {
    let settings = ServeArgs { listen: Some("127.0.0.1:0".parse().unwrap()), ..args }.resolve((0, 0)).unwrap();
    let listener = serve::bind("test", &settings).await.unwrap();
    let address = listener.address().parse().unwrap();
    let health = Health::not_serving(&[]).await;
    let settled = std::future::ready(());
    tokio::spawn(async move { serve::serve(listener, &settings, Routes::default(), &health, (drain, settled)).await });
    address
}

/// Reads until the other end closes, within the bound.
async fn closed(stream: &mut (impl AsyncRead + Unpin)) {
    let (began, mut read) = (Instant::now(), Vec::new());
    // A connection that is cut is closed as well.
    let _cut = tokio::time::timeout(Duration::from_secs(600), stream.read_to_end(&mut read)).await.expect("closed");
    let took = began.elapsed();
    assert!(took > Duration::from_secs(1) && took < CLOSED_WITHIN, "closed after {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_to_the_grpc_port_is_closed() {
    let drain = CancellationToken::new();
    let address = grpc(ServeArgs::default(), drain.clone()).await;
    for said in [&b""[..], b"PRI * HTTP/2.0\r\n"] {
        let mut silent = TcpStream::connect(address).await.unwrap();
        silent.write_all(said).await.unwrap();
        closed(&mut silent).await;
    }
    drain.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_silent_during_or_after_its_tls_handshake_is_closed() {
    proto::tls::install_crypto_provider();
    let dir = tempfile::tempdir().unwrap();
    let (args, trusted) = certified(dir.path());
    let drain = CancellationToken::new();
    let address = grpc(args, drain.clone()).await;
    closed(&mut TcpStream::connect(address).await.unwrap()).await;

    let mut shaken = shaken(address, trusted).await;
    closed(&mut shaken).await;
    drain.cancel();
}

#[tokio::test(start_paused = true)]
async fn who_begins_http2_with_the_last_bytes_of_its_handshake_has_begun_and_is_pinged_then() {
    proto::tls::install_crypto_provider();
    let dir = tempfile::tempdir().unwrap();
    let (args, trusted) = certified(dir.path());
    let drain = CancellationToken::new();
    let address = grpc(args, drain.clone()).await;
    let mut client = shaken(address, trusted).await;
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    // Frames of settings: none of its own, and the acknowledgement of the other end's.
    client.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    client.read_exact(&mut [0; 9]).await.unwrap();
    client.write_all(&[0, 0, 0, 4, 1, 0, 0, 0, 0]).await.unwrap();
    let began = Instant::now();
    let _cut = client.read_to_end(&mut Vec::new()).await;
    assert!(began.elapsed() > CLOSED_WITHIN * 2, "closed after {:?}", began.elapsed());
    drain.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_to_the_admin_port_is_closed_and_one_that_asks_is_answered() {
    let stop = CancellationToken::new();
    let address = free().await;
    let ready: admin::Readiness = Arc::new(|| Box::pin(async { Ok(()) }));
    let done = admin::serve(address, ready, stop.clone()).await.unwrap();
    for said in [&b""[..], b"GET /readyz HTTP/1.1\r\nhost: x\r\n"] {
        let mut silent = TcpStream::connect(address).await.unwrap();
        silent.write_all(said).await.unwrap();
        closed(&mut silent).await;
    }
    let mut asks = TcpStream::connect(address).await.unwrap();
    asks.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut head = [0; 15];
    asks.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    stop.cancel();
    done.await.unwrap();
}

/// A client whose handshake is done, as far as it is concerned.
async fn shaken(address: SocketAddr, trusted: rustls::RootCertStore) -> TlsStream<TcpStream> {
    let mut config = rustls::ClientConfig::builder().with_root_certificates(trusted).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

/// An address that nobody has.
async fn free() -> SocketAddr {
    tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// A server with a certificate, and who trusts it.
fn certified(dir: &std::path::Path) -> (ServeArgs, rustls::RootCertStore) {
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
    std::fs::write(&cert, signed.cert.pem()).unwrap();
    std::fs::write(&key, signed.signing_key.serialize_pem()).unwrap();
    let mut trusted = rustls::RootCertStore::empty();
    trusted.add(signed.cert.der().clone()).unwrap();
    (ServeArgs { tls_cert: Some(cert), tls_key: Some(key), ..ServeArgs::default() }, trusted)
}
