//! areev.sandbox.v1.SandboxService: one RPC a file.

mod describe;
mod execute;
pub mod intake;
mod put_module;
mod stat_modules;
pub mod wire;

use std::{pin::Pin, sync::Arc};

use proto::{
    fault::{Domain, Fault},
    identity::{self, Role},
    sandbox::v1::{
        DescribeRequest, DescribeResponse, ExecuteRequest, ExecuteResponse, PutModuleRequest, PutModuleResponse,
        StatModulesRequest, StatModulesResponse, sandbox_service_server::SandboxService,
    },
};
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

use crate::{error::Refusal, sandbox::Sandbox};

/// The service's face.
pub struct Api {
    sandbox: Arc<Sandbox>,
    trust_domain: String,
}

impl Api {
    /// A face for a sandbox.
    pub fn new(sandbox: Arc<Sandbox>, trust_domain: String) -> Self {
        Self { sandbox, trust_domain }
    }

    fn require<T>(&self, request: &Request<T>, roles: &[Role]) -> Result<(), Status> {
        identity::require(request.extensions(), &self.trust_domain, roles)
            .map_err(|fault| fault.into_status(Domain::Sandbox))
    }
}

/// A refusal as a status.
fn status(refusal: Refusal) -> Status {
    Fault::from(refusal).into_status(Domain::Sandbox)
}

#[tonic::async_trait]
impl SandboxService for Api {
    type ExecuteStream = Pin<Box<dyn Stream<Item = Result<ExecuteResponse, Status>> + Send>>;

    async fn execute(
        &self,
        request: Request<Streaming<ExecuteRequest>>,
    ) -> Result<Response<Self::ExecuteStream>, Status> {
        self.require(&request, &[Role::Runner])?;
        let replies = execute::execute(Arc::clone(&self.sandbox), request.into_inner()).await?;
        Ok(Response::new(Box::pin(replies)))
    }

    async fn put_module(
        &self,
        request: Request<Streaming<PutModuleRequest>>,
    ) -> Result<Response<PutModuleResponse>, Status> {
        self.require(&request, &[Role::Runner])?;
        put_module::put_module(&self.sandbox, request.into_inner()).await.map(Response::new)
    }

    async fn stat_modules(
        &self,
        request: Request<StatModulesRequest>,
    ) -> Result<Response<StatModulesResponse>, Status> {
        self.require(&request, &[Role::Runner])?;
        stat_modules::stat_modules(&self.sandbox, &request.into_inner()).map(Response::new).map_err(status)
    }

    async fn describe(&self, request: Request<DescribeRequest>) -> Result<Response<DescribeResponse>, Status> {
        self.require(&request, &[Role::Runner, Role::Sandbox, Role::Broker])?;
        Ok(Response::new(describe::describe(&self.sandbox)))
    }
}
