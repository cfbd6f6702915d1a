//! A broker in this process and in another one, against the same request sent directly by the broker's own client.
//!
//! The target is what the broker adds to a call: both sides use the same client in the same runtime, so it is measured in this
//! process. A broker in another process is reached by a hop of HTTP/2, which wakes two more threads than the direct call does: an
//! echo of the same messages, served by nothing but the transport, takes longer than the direct call to an upstream that answers at
//! once. No broker behind that hop can be faster than echo and direct call together; its figures are held against that floor.

use std::{
    convert::Infallible,
    future::Future,
    io::{BufRead as _, BufReader},
    pin::Pin,
    process::{Child, ChildStdout, Command, Stdio},
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

use futures::StreamExt as _;
use proto::{
    broker::v1::{Ceilings, FetchRequest, FetchResponse, MintTokenRequest, broker_service_client::BrokerServiceClient},
    dial::dial,
};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::{
    body::Body,
    codegen::Service,
    server::NamedService,
    transport::{Channel, Server},
};

use crate::{
    ANSWER_BYTES,
    here::{broker, brokered, client, direct, policy, token},
    turns::{Targets, Way, in_turns, times},
    upstream,
};

/// A brokered call takes at most so many times a direct one.
const CALL_RATIO_MAX: f64 = 2.0;
/// Tells this program to be the echo.
const ECHO: &str = "AREEV_BENCH_ECHO";
/// HTTP/2 flow-control windows, as the services have them.
const STREAM_WINDOW_BYTES: u32 = 2 * 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 8 * 1024 * 1024;

type Client = BrokerServiceClient<Channel>;

/// A process; it ends with this.
struct Served {
    child: Child,
    _said: Option<ChildStdout>,
    url: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _already_ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// All ways of one call, and what they cost.
pub async fn against(name: &str, url: &str, calls: usize, targets: &mut Targets) {
    let folder = tempfile::tempdir().unwrap();
    let socket = |name: &str| format!("unix:{}", folder.path().join(name).display());
    let (http, own) = (client(url), broker(url, 10));
    let own_token = token(&own, 0);
    let mut ways: Vec<Way<'_>> =
        vec![Box::new(|| Box::pin(direct(&http, url))), Box::new(|| Box::pin(brokered(&own, &own_token, url)))];
    let mut served = Vec::new();
    let tcp = || "127.0.0.1:0".to_owned();
    for (bare, program) in [(tcp(), tcp()), (socket("bare"), socket("program"))] {
        let (bare, program) = (echoing(&bare), serving(&program, url, folder.path()));
        let echo = BrokerServiceClient::new(dial(&bare.url, None).unwrap());
        let mut client = BrokerServiceClient::new(dial(&program.url, None).unwrap());
        let token = client.mint_token(minting()).await.unwrap().into_inner().token;
        ways.push(remote(echo, FetchRequest { token: token.clone(), ..fetch(url) }));
        ways.push(remote(client, FetchRequest { token, ..fetch(url) }));
        served.extend([bare, program]);
    }
    let measured = in_turns(&mut ways, calls).await;
    for percent in [50, 99] {
        let time = |way: usize| measured[way].part(percent);
        let (straight, brokered) = (time(0), time(1));
        println!(
            "{name:<6} brokered              p{percent} {brokered:>9.1?} against {straight:>9.1?}, {}",
            targets.ratio(brokered, straight, CALL_RATIO_MAX)
        );
        for (way, bare, whole) in [("TCP", time(2), time(3)), ("Unix socket", time(4), time(5))] {
            println!(
                "{name:<6} by gRPC, {way:<11}  p{percent} {whole:>9.1?} against {straight:>9.1?}, ratio {:.2}; a bare echo \
                 takes {bare:.1?}: nothing is under {:.2}, and this is {:.2} of that",
                times(whole, straight),
                times(bare + straight, straight),
                times(whole, bare + straight)
            );
        }
    }
}

fn remote<'a>(client: Client, request: FetchRequest) -> Way<'a> {
    Box::new(move || {
        let (mut client, request) = (client.clone(), request.clone());
        Box::pin(async move {
            assert_eq!(client.fetch(request).await.unwrap().into_inner().body.len(), ANSWER_BYTES);
        })
    })
}

fn fetch(url: &str) -> FetchRequest {
    FetchRequest { url: url.to_owned(), credential: Some("a".into()), ..FetchRequest::default() }
}

fn minting() -> MintTokenRequest {
    MintTokenRequest {
        run_id: "r".into(),
        node: "n".into(),
        attempt: 1,
        tool_name: "t".into(),
        definition_hash: "ab".repeat(32),
        ceilings: Some(Ceilings { max_calls: Some(1_000_000), ..Ceilings::default() }),
        deadline: Some((SystemTime::now() + Duration::from_secs(3000)).into()),
        ..MintTokenRequest::default()
    }
}

/// The program itself, with its usual settings.
fn serving(listen: &str, url: &str, folder: &std::path::Path) -> Served {
    let file = folder.join("broker.toml");
    std::fs::write(&file, policy(url, 10)).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_broker-svc"))
        .args(["--listen", listen, "--egress-listen", "127.0.0.1:0", "--admin-listen", "off", "--log-format", "json"])
        .arg("--config")
        .arg(&file)
        .arg("--upstream-ca")
        .arg(upstream::authority())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let url = loop {
        let mut line = String::new();
        assert!(said.read_line(&mut line).unwrap() > 0, "the broker ended");
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        if event["message"] == "listening" {
            break dialled(event["address"].as_str().unwrap());
        }
    };
    std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    Served { child, _said: None, url }
}

fn dialled(address: &str) -> String {
    if address.starts_with("unix:") { address.to_owned() } else { format!("http://{address}") }
}

/// This program once more, as the echo.
fn echoing(listen: &str) -> Served {
    let mut child =
        Command::new(std::env::current_exe().unwrap()).env(ECHO, listen).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    Served { child, _said: Some(said.into_inner()), url: dialled(line.trim()) }
}

/// Where to echo, if this process is to.
pub fn asked_to_echo() -> Option<String> {
    std::env::var(ECHO).ok()
}

/// Answers every call at once with what a fetch is answered with. Ends with its process.
pub async fn echo(listen: &str) {
    let reply = FetchResponse { status: 200, body: vec![b'x'; ANSWER_BYTES], ..FetchResponse::default() };
    let server = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .add_service(Echo(reply));
    match listen.strip_prefix("unix:") {
        Some(path) => {
            let listener = tokio::net::UnixListener::bind(path).unwrap();
            println!("{listen}");
            server.serve_with_incoming(UnixListenerStream::new(listener)).await.unwrap();
        }
        None => {
            let listener = tokio::net::TcpListener::bind(listen).await.unwrap();
            println!("{}", listener.local_addr().unwrap());
            let incoming =
                TcpListenerStream::new(listener).inspect(|stream| stream.as_ref().unwrap().set_nodelay(true).unwrap());
            server.serve_with_incoming(incoming).await.unwrap();
        }
    }
}

#[derive(Clone)]
struct Echo(FetchResponse);

impl NamedService for Echo {
    const NAME: &'static str = "areev.broker.v1.BrokerService";
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let reply = self.0.clone();
        let answer = tower::service_fn(move |_: tonic::Request<FetchRequest>| {
            std::future::ready(Ok(tonic::Response::new(reply.clone())))
        });
        Box::pin(async move {
            let codec = tonic_prost::ProstCodec::<FetchResponse, FetchRequest>::default();
            Ok(tonic::server::Grpc::new(codec).unary(answer, request).await)
        })
    }
}
