//! A host-tool service that answers as the test says.

use std::sync::{Arc, Mutex};

use proto::tool::v1::{
    ExecuteToolRequest, ExecuteToolResponse,
    host_tool_service_server::{HostToolService, HostToolServiceServer},
};
use tonic::{Request, Response, Status, service::Routes};

use super::rig::{Log, serve};

type Answer = Result<ExecuteToolResponse, Status>;

/// The fake and what it saw.
pub struct FakeTool {
    pub url: String,
    pub log: Log,
    asked: Arc<Mutex<Vec<ExecuteToolRequest>>>,
}

struct Service {
    answer: Option<Answer>,
    asked: Arc<Mutex<Vec<ExecuteToolRequest>>>,
    log: Log,
}

/// Notes that the caller went away.
struct Gone(Log);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.note("gone");
    }
}

impl FakeTool {
    pub async fn answering(answer: Answer) -> Self {
        Self::start(Some(answer)).await
    }

    pub async fn hanging() -> Self {
        Self::start(None).await
    }

    pub fn asked(&self) -> Vec<ExecuteToolRequest> {
        self.asked.lock().unwrap().clone()
    }

    async fn start(answer: Option<Answer>) -> Self {
        let (log, asked) = (Log::default(), Arc::default());
        let service = Service { answer, asked: Arc::clone(&asked), log: log.clone() };
        let service = HostToolServiceServer::new(service).max_encoding_message_size(usize::MAX);
        Self { url: serve(Routes::new(service)).await, log, asked }
    }
}

#[tonic::async_trait]
impl HostToolService for Service {
    async fn execute_tool(
        &self,
        request: Request<ExecuteToolRequest>,
    ) -> Result<Response<ExecuteToolResponse>, Status> {
        self.asked.lock().unwrap().push(request.into_inner());
        self.log.note("asked");
        match &self.answer {
            Some(answer) => answer.clone().map(Response::new),
            None => {
                let _gone = Gone(self.log.clone());
                std::future::pending().await
            }
        }
    }
}
