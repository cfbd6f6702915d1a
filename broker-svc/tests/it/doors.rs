//! Both doors of a broker on free ports, and clients that speak to them byte by byte.

use std::{sync::Arc, time::Duration};

use broker_svc::{app::App, broker::Broker, config::Flags};
use clap::Parser as _;
use proto::broker::v1::{MintTokenRequest, WatchEffectsRequest, broker_service_client::BrokerServiceClient};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};

/// A served broker; it ends with this.
pub struct Doors {
    pub grpc: BrokerServiceClient<Channel>,
    address: String,
    pub egress: String,
    drain: CancellationToken,
    served: Option<tokio::task::JoinHandle<()>>,
    taking: tokio::task::JoinHandle<()>,
}

/// The stream that takes the records of tokens that are minted here and for nobody else.
pub const WATCHER: &str = "the-test";

/// Takes every record that is told on the stream of tests.
pub fn take_records(broker: &Broker) -> tokio::task::JoinHandle<()> {
    let mut watch = broker.watchers.open(WATCHER).unwrap();
    tokio::spawn(async move {
        while let Some(record) = watch.next().await {
            watch.settle(record.sequence, true);
        }
    })
}

impl Doors {
    /// Serves a rig's broker.
    pub async fn open(broker: Arc<Broker>) -> Self {
        let flags = Flags::parse_from([
            "broker-svc",
            "--listen",
            "127.0.0.1:0",
            "--egress-listen",
            "127.0.0.1:0",
            "--admin-listen",
            "off",
            "--drain",
            "10s",
        ]);
        let config = flags.check(Default::default()).ok().unwrap();
        let taking = take_records(&broker);
        let app = App::around(broker, config).await.ok().unwrap();
        let (grpc, egress) = app.addresses();
        let drain = CancellationToken::new();
        let ending = drain.clone();
        let served = tokio::spawn(async move { app.run(ending).await.ok().unwrap() });
        let channel = Endpoint::from_shared(format!("http://{grpc}")).unwrap().connect_lazy();
        let egress = egress.strip_prefix("http://").unwrap().to_owned();
        let (address, grpc) = (grpc, BrokerServiceClient::new(channel));
        Self { grpc, address, egress, drain, served: Some(served), taking }
    }

    /// Where gRPC is served.
    pub fn grpc_address(&self) -> &str {
        &self.address
    }

    /// Drains and waits for the end.
    pub async fn close(mut self) {
        self.drain.cancel();
        if let Some(served) = self.served.take() {
            tokio::time::timeout(Duration::from_secs(30), served).await.unwrap().unwrap();
        }
    }

    /// Posts a call; answers status and JSON.
    pub async fn post(&self, token: &str, body: &str) -> (u16, serde_json::Value) {
        let head = format!("Host: broker\r\nX-Areev-Egress-Token: {token}\r\nContent-Length: {}\r\n", body.len());
        self.raw(&format!("POST / HTTP/1.1\r\n{head}\r\n{body}")).await
    }

    /// Sends raw bytes; answers status and JSON.
    pub async fn raw(&self, request: &str) -> (u16, serde_json::Value) {
        let answer = exchange(&self.egress, request).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        (status, serde_json::from_str(body).unwrap_or_default())
    }
}

impl Drop for Doors {
    fn drop(&mut self) {
        self.drain.cancel();
        self.taking.abort();
    }
}

/// Takes every record of a broker in another process, as its runner does.
pub async fn take_records_over(client: &BrokerServiceClient<Channel>) -> tokio::task::JoinHandle<()> {
    let (say, said) = tokio::sync::mpsc::channel(16);
    say.send(WatchEffectsRequest { watcher: WATCHER.into(), ..Default::default() }).await.unwrap();
    let said = tokio_stream::wrappers::ReceiverStream::new(said);
    let mut hear = client.clone().watch_effects(said).await.unwrap().into_inner();
    tokio::spawn(async move {
        while let Ok(Some(told)) = hear.message().await {
            let acknowledged = told.record.unwrap().sequence;
            let _ended = say.send(WatchEffectsRequest { acknowledged, ..Default::default() }).await;
        }
    })
}

/// One request on a connection of its own, to the end of the answer.
pub async fn exchange(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let closing = request.replacen("\r\n", "\r\nConnection: close\r\n", 1);
    // The door may refuse and close before it has read everything.
    let _refused_early = stream.write_all(closing.as_bytes()).await;
    let mut answer = Vec::new();
    let _reset = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut answer)).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// A request for a token of tool `t`.
pub fn minting(node: &str) -> MintTokenRequest {
    MintTokenRequest {
        run_id: "run-1".into(),
        namespace: "ops".into(),
        node: node.into(),
        attempt: 1,
        tool_name: "t".into(),
        definition_hash: "ab".repeat(32),
        principal: "user:runner".into(),
        deadline: Some((std::time::SystemTime::now() + Duration::from_secs(60)).into()),
        watcher: WATCHER.into(),
        ..MintTokenRequest::default()
    }
}
