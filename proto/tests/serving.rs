//! The shared half of serving, over real connections.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use proto::{
    dial::dial,
    identity::{Peer, Role, role_uri},
    serve::{self, Health, ServeArgs, ServeSettings},
};
use tokio_util::sync::CancellationToken;
use tonic::{Code, service::Routes};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

struct Running {
    url: String,
    drain: CancellationToken,
    health: Health,
    done: tokio::task::JoinHandle<Result<(), serve::ServeError>>,
}

async fn start(args: ServeArgs) -> Running {
    let settings = ServeSettings { drain: Duration::from_secs(2), ..args.resolve((0, 0)).unwrap() };
    let listener = serve::bind("test", &settings).await.unwrap();
    let address = listener.address();
    let url = match (address.starts_with("unix:"), settings.tls.is_some()) {
        (true, _) => address,
        (false, true) => format!("https://localhost:{}", address.rsplit(':').next().unwrap()),
        (false, false) => format!("http://{address}"),
    };
    let (drain, health) = (CancellationToken::new(), Health::not_serving(&[]).await);
    let (stop, reporter) = (drain.clone(), health.clone());
    let done = tokio::spawn(async move { serve::serve(listener, &settings, Routes::default(), &reporter, stop).await });
    Running { url, drain, health, done }
}

async fn check(url: &str, tls: Option<&proto::tls::TlsMaterial>) -> Result<i32, tonic::Status> {
    let mut client = HealthClient::new(dial(url, tls).unwrap());
    let reply = client.check(HealthCheckRequest { service: String::new() }).await?;
    assert!(reply.metadata().get("x-request-id").is_some(), "every reply carries its request id");
    Ok(reply.into_inner().status)
}

#[tokio::test]
async fn health_follows_what_the_service_says_and_drain_ends_it() {
    let running = start(ServeArgs::default()).await;
    assert_eq!(check(&running.url, None).await.unwrap(), 2, "not serving at first");
    running.health.set(&[], true).await;
    assert_eq!(check(&running.url, None).await.unwrap(), 1);
    running.drain.cancel();
    running.done.await.unwrap().unwrap();
    assert_eq!(check(&running.url, None).await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn a_unix_socket_serves_the_same_user() {
    let dir = tempfile::tempdir().unwrap();
    let listen = format!("unix:{}/s.sock", dir.path().display()).parse().unwrap();
    let running = start(ServeArgs { listen: Some(listen), ..ServeArgs::default() }).await;
    assert_eq!(check(&running.url, None).await.unwrap(), 2);
    running.drain.cancel();
}

#[tokio::test]
async fn mutual_tls_lets_in_who_the_authority_signed_and_nobody_else() {
    proto::tls::install_crypto_provider();
    let dir = tempfile::tempdir().unwrap();
    let good = certificates(dir.path(), "good");
    let other = certificates(dir.path(), "other");
    let running = start(good.clone()).await;
    let material = |args: &ServeArgs| args.resolve((0, 0)).unwrap().tls.unwrap();
    assert_eq!(check(&running.url, Some(&material(&good))).await.unwrap(), 2);

    // Trusts the server's authority, but comes with a certificate of another.
    let stranger = ServeArgs { tls_client_ca: good.tls_client_ca.clone(), ..other };
    assert!(check(&running.url, Some(&material(&stranger))).await.is_err());
    let plain = running.url.replace("https", "http");
    assert!(check(&plain, None).await.is_err());
    running.drain.cancel();
}

#[test]
fn a_role_is_the_last_segment_of_the_uri() {
    assert_eq!(role_uri("areev.local", Role::Runner), "spiffe://areev.local/runner");
    assert!(Peer::Local.plays("areev.local", &[Role::Runner]));
}

fn certificates(dir: &std::path::Path, name: &str) -> ServeArgs {
    let mut ca = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    ca.distinguished_name.push(rcgen::DnType::CommonName, name);
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let ca_cert = ca.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(ca, ca_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    let write = |kind: &str, text: String| {
        let path = dir.join(format!("{name}-{kind}.pem"));
        std::fs::write(&path, text).unwrap();
        Some(path)
    };
    ServeArgs {
        listen: Some("127.0.0.1:0".parse().unwrap()),
        tls_cert: write("cert", leaf.pem()),
        tls_key: write("key", key.serialize_pem()),
        tls_client_ca: write("ca", ca_cert.pem()),
        ..ServeArgs::default()
    }
}
