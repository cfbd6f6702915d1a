//! The shared half of serving, over real connections.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::{Buf as _, BufMut as _};
use proto::{
    dial::dial,
    fault::{Reason, reason_of},
    identity::{Peer, Role, role_uri},
    serve::{self, Health, ServeArgs, ServeSettings},
    tool::v1::{
        ExecuteToolRequest, ExecuteToolResponse,
        host_tool_service_client::HostToolServiceClient,
        host_tool_service_server::{HostToolService, HostToolServiceServer},
    },
};
use tokio_util::sync::CancellationToken;
use tonic::{
    Code,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    service::Routes,
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

/// The method of [`AnyTool`].
const EXECUTE: &str = "/areev.tool.v1.HostToolService/ExecuteTool";

struct Running {
    url: String,
    drain: CancellationToken,
    health: Health,
    settled: CancellationToken,
    done: tokio::task::JoinHandle<Result<(), serve::ServeError>>,
}

async fn start(args: ServeArgs) -> Running {
    start_with(args, Routes::default()).await
}

async fn start_with(args: ServeArgs, routes: Routes) -> Running {
    let running = start_unsettled(args, routes).await;
    running.settled.cancel();
    running
}

/// A service with something that has to end before its port closes.
async fn start_unsettled(args: ServeArgs, routes: Routes) -> Running {
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
    let settled = CancellationToken::new();
    let until = settled.clone().cancelled_owned();
    let done = tokio::spawn(async move { serve::serve(listener, &settings, routes, &reporter, (stop, until)).await });
    Running { url, drain, health, settled, done }
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
async fn while_something_settles_new_callers_are_told_of_the_drain() {
    let running = start_unsettled(ServeArgs::default(), Routes::new(HostToolServiceServer::new(AnyTool))).await;
    sent_raw(&running.url, EXECUTE, Vec::new()).await.unwrap();
    running.drain.cancel();
    let status = sent_raw(&running.url, EXECUTE, Vec::new()).await.unwrap_err();
    assert_eq!((status.code(), reason_of(&status)), (Code::Unavailable, Some(Reason::Draining)));
    assert_eq!(check(&running.url, None).await.unwrap(), 2, "health is answered to the end");
    running.settled.cancel();
    running.done.await.unwrap().unwrap();
    assert!(reason_of(&sent_raw(&running.url, EXECUTE, Vec::new()).await.unwrap_err()).is_none(), "nobody is there");
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

/// Sends bytes as they are, whatever the message should be.
#[derive(Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = tonic::Status;

    fn encode(&mut self, item: Vec<u8>, into: &mut EncodeBuf<'_>) -> Result<(), tonic::Status> {
        into.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = ();
    type Error = tonic::Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<()>, tonic::Status> {
        from.advance(from.remaining());
        Ok(Some(()))
    }
}

/// A tool that answers everything.
struct AnyTool;

#[tonic::async_trait]
impl HostToolService for AnyTool {
    async fn execute_tool(
        &self,
        _request: tonic::Request<ExecuteToolRequest>,
    ) -> Result<tonic::Response<ExecuteToolResponse>, tonic::Status> {
        Ok(tonic::Response::new(ExecuteToolResponse::default()))
    }
}

/// What a raw request is answered.
async fn sent_raw(url: &str, method: &'static str, bytes: Vec<u8>) -> Result<(), tonic::Status> {
    let mut client = Grpc::new(dial(url, None).unwrap()).max_encoding_message_size(usize::MAX);
    client.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static(method);
    client.unary(tonic::Request::new(bytes), path, Raw).await.map(|_| ())
}

#[tokio::test]
async fn a_request_that_cannot_be_read_or_is_too_large_or_unknown_is_refused_like_any_other() {
    let routes = Routes::new(HostToolServiceServer::new(AnyTool).max_decoding_message_size(serve::MESSAGE_BYTES_MAX));
    let running = start_with(ServeArgs::default(), routes).await;
    sent_raw(&running.url, EXECUTE, Vec::new()).await.unwrap();
    let too_large = vec![0; serve::MESSAGE_BYTES_MAX + 1];
    for (method, bytes, code, reason, says) in [
        // Field 1 (a text of 2 bytes) is no UTF-8.
        (EXECUTE, vec![0x0a, 2, 0xff, 0xfe], Code::InvalidArgument, Reason::InvalidArgument, "tool_name"),
        (EXECUTE, vec![0xff; 12], Code::InvalidArgument, Reason::InvalidArgument, "cannot be read"),
        (EXECUTE, too_large, Code::ResourceExhausted, Reason::TooLarge, "18874368 bytes"),
        ("/areev.tool.v1.HostToolService/Run", Vec::new(), Code::Unimplemented, Reason::NotImplemented, "Service/Run"),
        ("/areev.none.v1.None/Call", Vec::new(), Code::Unimplemented, Reason::NotImplemented, "by reflection"),
    ] {
        let status = sent_raw(&running.url, method, bytes).await.unwrap_err();
        assert_eq!((status.code(), reason_of(&status)), (code, Some(reason)), "{method}: {status:?}");
        assert!(status.message().contains(says), "{method}: {}", status.message());
        assert!(status.metadata().get("x-request-id").is_some(), "{method}: every reply carries its request id");
    }
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

/// A tool that answers nothing.
struct SilentTool;

#[tonic::async_trait]
impl HostToolService for SilentTool {
    async fn execute_tool(
        &self,
        _request: tonic::Request<ExecuteToolRequest>,
    ) -> Result<tonic::Response<ExecuteToolResponse>, tonic::Status> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_call_that_its_callers_deadline_ends_is_told_so_with_its_code_and_reason() {
    let running = start_with(ServeArgs::default(), Routes::new(HostToolServiceServer::new(SilentTool))).await;
    let mut client = HostToolServiceClient::new(dial(&running.url, None).unwrap());
    let mut request = tonic::Request::new(ExecuteToolRequest::default());
    request.set_timeout(Duration::from_secs(2));
    let refused = client.execute_tool(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::DeadlineExceeded, "{refused}");
    assert_eq!(reason_of(&refused), Some(Reason::DeadlineExceeded));
    assert!(refused.message().contains("ExecuteTool") && refused.message().contains("2s"), "{refused}");
    running.drain.cancel();
}

/// A log that can be read.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_log_line_of_a_refused_call_says_its_reason_and_not_its_text() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _until_the_end = tracing::subscriber::set_default(subscriber);
    let running = start_with(ServeArgs::default(), Routes::new(HostToolServiceServer::new(AnyTool))).await;
    let refused = sent_raw(&running.url, EXECUTE, vec![0xff; 12]).await.unwrap_err();
    assert!(refused.message().contains("cannot be read"), "{refused}");
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let line = text.lines().find(|line| line.contains(EXECUTE)).unwrap();
    assert!(line.contains("code=InvalidArgument reason=\"INVALID_ARGUMENT\""), "{line}");
    assert!(!text.contains("cannot be read"), "{text}");
    running.drain.cancel();
}
