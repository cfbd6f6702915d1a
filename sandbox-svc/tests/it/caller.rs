//! A client of a sandbox that speaks as the runner does.

use std::time::Duration;

use content_digest::Digest;
use proto::sandbox::v1::{
    Exchange, ExchangeAck, ExecuteRequest, ExecuteResponse, ModuleStat, Outcome, PutModuleRequest, Runtime, Start,
    StatModulesRequest, execute_request::Message, execute_response, put_module_request,
    sandbox_service_client::SandboxServiceClient,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming, transport::Channel};

/// Longest wait for what a loaded machine must manage.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Clone)]
pub struct Caller {
    pub client: SandboxServiceClient<Channel>,
}

/// One call, driven message by message.
pub struct Call {
    pub requests: mpsc::Sender<ExecuteRequest>,
    pub replies: Streaming<ExecuteResponse>,
}

impl Caller {
    /// Uploads bytes under their digest.
    pub async fn put(&self, bytes: &[u8]) -> String {
        let uri = Digest::of(bytes).to_uri();
        self.put_as(&uri, bytes).await.unwrap();
        uri
    }

    /// Uploads bytes under a digest of the caller's.
    pub async fn put_as(&self, uri: &str, bytes: &[u8]) -> Result<(), Status> {
        let mut messages =
            vec![PutModuleRequest { message: Some(put_module_request::Message::Digest(uri.to_owned())) }];
        for chunk in bytes.chunks(1 << 20) {
            let chunk = put_module_request::Message::Chunk(chunk.to_vec());
            messages.push(PutModuleRequest { message: Some(chunk) });
        }
        self.client.clone().put_module(tokio_stream::iter(messages)).await.map(|_| ())
    }

    /// Begins a call.
    pub async fn begin(&self, start: Start) -> Result<Call, Status> {
        let (requests, messages) = mpsc::channel(8);
        requests.send(ExecuteRequest { message: Some(Message::Start(start)) }).await.unwrap();
        let replies = self.client.clone().execute(ReceiverStream::new(messages)).await?.into_inner();
        Ok(Call { requests, replies })
    }

    /// Executes a call, acknowledging every exchange.
    pub async fn execute(&self, start: Start) -> Result<(Outcome, Vec<Exchange>), Status> {
        let mut call = self.begin(start).await?;
        let mut exchanges = Vec::new();
        loop {
            match call.next().await? {
                execute_response::Message::Exchange(exchange) => {
                    call.ack(exchange.ordinal).await;
                    exchanges.push(exchange);
                }
                execute_response::Message::Outcome(outcome) => {
                    call.end().await;
                    return Ok((outcome, exchanges));
                }
                execute_response::Message::Blob(read) => panic!("nobody here has blobs: {read:?}"),
                execute_response::Message::Artifact(call) => panic!("nobody here makes calls: {call:?}"),
            }
        }
    }

    /// Executes a guest given as text.
    pub async fn run(&self, wat: &str, runtime: Runtime, input: &str) -> Outcome {
        self.run_with(wat, runtime, input, |_| {}).await
    }

    /// Executes a guest given as text, with a changed start message.
    pub async fn run_with(&self, wat: &str, runtime: Runtime, input: &str, change: impl FnOnce(&mut Start)) -> Outcome {
        let uri = self.put(&wat::parse_str(wat).unwrap()).await;
        let mut message = start(&uri, runtime, input);
        change(&mut message);
        self.execute(message).await.unwrap().0
    }

    pub async fn stat(&self, uri: &str) -> ModuleStat {
        let request = StatModulesRequest { digests: vec![uri.to_owned()] };
        self.client.clone().stat_modules(request).await.unwrap().into_inner().modules.remove(0)
    }
}

impl Call {
    pub async fn next(&mut self) -> Result<execute_response::Message, Status> {
        let reply = tokio::time::timeout(PATIENCE, self.replies.message()).await.expect("a reply in time")?;
        Ok(reply.expect("an outcome before the stream's end").message.unwrap())
    }

    /// Ends both halves as they are meant to end.
    async fn end(mut self) {
        drop(self.requests);
        while let Ok(Some(_)) = self.replies.message().await {}
    }

    pub async fn outcome(&mut self) -> Outcome {
        match self.next().await.unwrap() {
            execute_response::Message::Outcome(outcome) => outcome,
            other => panic!("no outcome: {other:?}"),
        }
    }

    pub async fn exchange(&mut self) -> Exchange {
        match self.next().await.unwrap() {
            execute_response::Message::Exchange(exchange) => exchange,
            other => panic!("no exchange: {other:?}"),
        }
    }

    pub async fn ack(&self, ordinal: u32) {
        let ack = Message::Ack(ExchangeAck { ordinal });
        self.requests.send(ExecuteRequest { message: Some(ack) }).await.unwrap();
    }
}

/// A start message with nothing but the needful.
pub fn start(uri: &str, runtime: Runtime, input: &str) -> Start {
    Start { module_digest: uri.to_owned(), runtime: runtime as i32, input_json: input.to_owned(), ..Start::default() }
}
