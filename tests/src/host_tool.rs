//! A HostToolService as users implement it, in the test's own process.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use proto::tool::v1::{
    ExecuteToolRequest, ExecuteToolResponse,
    host_tool_service_server::{HostToolService, HostToolServiceServer},
};
use tokio::sync::watch;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

type Answer = dyn Fn(&ExecuteToolRequest) -> Result<ExecuteToolResponse, Status> + Send + Sync;

/// The service; it ends when it is dropped.
pub struct HostTool {
    address: std::net::SocketAddr,
    calls: Arc<Mutex<Vec<ExecuteToolRequest>>>,
    answered_max: watch::Sender<usize>,
    task: tokio::task::JoinHandle<()>,
}

struct Implementation {
    calls: Arc<Mutex<Vec<ExecuteToolRequest>>>,
    answer: Arc<Answer>,
    /// Calls beyond this many wait for their answer.
    answered_max: watch::Receiver<usize>,
}

impl HostTool {
    /// Serves on a free port and answers as `answer` says.
    pub async fn start(
        answer: impl Fn(&ExecuteToolRequest) -> Result<ExecuteToolResponse, Status> + Send + Sync + 'static,
    ) -> Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.context("a free port")?;
        let address = listener.local_addr().context("a bound address")?;
        let calls = Arc::default();
        let (answered_max, hold) = watch::channel(usize::MAX);
        let service = Implementation { calls: Arc::clone(&calls), answer: Arc::new(answer), answered_max: hold };
        let serving = tonic::transport::Server::builder()
            .add_service(HostToolServiceServer::new(service).max_decoding_message_size(usize::MAX))
            .serve_with_incoming(TcpListenerStream::new(listener));
        let task = tokio::spawn(async move {
            let _ends_with_the_test = serving.await;
        });
        Ok(Self { address, calls, answered_max, task })
    }

    /// Lets calls beyond so many wait for their answers, until this is said again with a higher number.
    pub fn answer_at_most(&self, calls: usize) {
        self.answered_max.send_replace(calls);
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every call so far, in order of arrival.
    pub fn calls(&self) -> Vec<ExecuteToolRequest> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for HostTool {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tonic::async_trait]
impl HostToolService for Implementation {
    async fn execute_tool(
        &self,
        request: Request<ExecuteToolRequest>,
    ) -> Result<Response<ExecuteToolResponse>, Status> {
        let request = request.into_inner();
        let answer = (self.answer)(&request);
        let number = {
            let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            calls.push(request);
            calls.len()
        };
        let mut answered_max = self.answered_max.clone();
        let released = answered_max.wait_for(|max| number <= *max).await;
        released.map_err(|_| Status::unavailable("the test is over"))?;
        answer.map(Response::new)
    }
}
