//! `CatalogService`: blobs, grains, and what is wrong with a plan.

mod bundles;
pub(super) mod failure;
mod get_blob;
mod get_grain;
mod list_definitions;
mod list_plans;
mod list_step_actions;
mod put_blob;
mod put_definition;
mod put_grain;
mod put_plan;
mod stat_blob;
mod stored;
mod validate_plan;

use std::{collections::BTreeSet, pin::Pin, sync::Arc};

use content_digest::Digest;
use futures::Stream;
use proto::{
    fault::{Domain, Fault},
    runner::v1::{
        ExportBundleRequest, ExportBundleResponse, GetBlobRequest, GetBlobResponse, GetGrainRequest, GetGrainResponse,
        ImportBundleRequest, ImportBundleResponse, ListDefinitionsRequest, ListDefinitionsResponse, ListPlansRequest,
        ListPlansResponse, ListStepActionsRequest, ListStepActionsResponse, PutBlobRequest, PutBlobResponse,
        PutDefinitionRequest, PutDefinitionResponse, PutGrainRequest, PutGrainResponse, PutPlanRequest,
        PutPlanResponse, StatBlobRequest, StatBlobResponse, ValidatePlanRequest, ValidatePlanResponse,
        catalog_service_server::{CatalogService, CatalogServiceServer},
    },
    serve::MESSAGE_BYTES_MAX,
};
use runner_core::{model::ModelPin, resolve::HostProfile};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status, Streaming};

use crate::{
    access::{Access, Principal},
    catalogue::{Catalogue, CatalogueError},
};

pub use list_step_actions::StepActions;

/// Uploads that are taken at once; further ones are told to come back.
const UPLOADS_MAX: usize = 32;
/// Calls that work on the disk at once; further ones wait for their turn, within their deadline.
const DISK_CALLS_MAX: usize = 16;

/// What this host allows and offers, as it stands at the time of a call.
#[derive(Debug, Clone, Default)]
pub struct HostOffer {
    /// Digests that may execute.
    pub pins: Arc<BTreeSet<Digest>>,
    /// Whether a sandbox service is configured.
    pub sandbox_url: bool,
    /// Whether a sandbox command is configured.
    pub sandbox_cmd: bool,
    /// Whether a tool command or a host-tool service is configured.
    pub host_tool: bool,
    /// The model of abstract nodes.
    pub model: Option<ModelPin>,
}

impl HostOffer {
    /// As resolution asks for it.
    pub fn profile(&self) -> HostProfile<'_> {
        HostProfile {
            pins: &self.pins,
            sandbox_url: self.sandbox_url,
            sandbox_cmd: self.sandbox_cmd,
            host_tool: self.host_tool,
            model: self.model.as_ref(),
        }
    }
}

/// What the service needs from the rest of the runner.
pub struct CatalogParts {
    /// Grains and blobs.
    pub catalogue: Arc<Catalogue>,
    /// Callers and their permissions.
    pub access: Arc<dyn Access>,
    /// What the host allows now.
    pub host: Box<dyn Fn() -> HostOffer + Send + Sync>,
    /// The clock, in milliseconds since 1970.
    pub now_ms: fn() -> i64,
    /// The effects of a plan's runs.
    pub step_actions: Arc<dyn StepActions>,
}

/// The service.
pub struct CatalogApi {
    parts: CatalogParts,
    uploads: Arc<Semaphore>,
    disk: Arc<Semaphore>,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl CatalogApi {
    /// Builds the service.
    pub fn new(parts: CatalogParts) -> Self {
        let (uploads, disk) = (Arc::new(Semaphore::new(UPLOADS_MAX)), Arc::new(Semaphore::new(DISK_CALLS_MAX)));
        Self { parts, uploads, disk }
    }

    /// The service as a server, with its message bound.
    pub fn into_server(self) -> CatalogServiceServer<Self> {
        CatalogServiceServer::new(self)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    fn caller<T>(&self, request: &Request<T>) -> Result<Principal, Fault> {
        self.parts.access.principal(request.extensions(), request.metadata())
    }

    /// Runs what blocks on the disk where it may block.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Catalogue) -> Result<T, CatalogueError> + Send + 'static,
    ) -> Result<T, Fault> {
        let catalogue = Arc::clone(&self.parts.catalogue);
        blocking(&self.disk, move || work(&catalogue)).await
    }
}

/// Runs blocking work, when its turn has come. Its error becomes a fault here, where the request's id is known.
async fn blocking<T: Send + 'static, E: Into<Fault> + Send + 'static>(
    turns: &Arc<Semaphore>,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, Fault> {
    let turn = Arc::clone(turns).acquire_owned().await.map_err(|closed| Fault::internal(&closed))?;
    let done = tokio::task::spawn_blocking(move || {
        // The turn ends with the work, even when nobody waits for it any more.
        let _turn = turn;
        work()
    });
    done.await.map_err(|panic| Fault::internal(&panic))?.map_err(Into::into)
}

fn answer<T>(result: Result<T, Fault>) -> Result<Response<T>, Status> {
    result.map(Response::new).map_err(|fault| fault.into_status(Domain::Runner))
}

#[tonic::async_trait]
impl CatalogService for CatalogApi {
    type GetBlobStream = Answers<GetBlobResponse>;
    type ExportBundleStream = Answers<ExportBundleResponse>;

    async fn put_blob(&self, request: Request<Streaming<PutBlobRequest>>) -> Result<Response<PutBlobResponse>, Status> {
        answer(put_blob::handle(self, request).await)
    }

    async fn get_blob(&self, request: Request<GetBlobRequest>) -> Result<Response<Self::GetBlobStream>, Status> {
        answer(get_blob::handle(self, request).await)
    }

    async fn stat_blob(&self, request: Request<StatBlobRequest>) -> Result<Response<StatBlobResponse>, Status> {
        answer(stat_blob::handle(self, request).await)
    }

    async fn put_definition(
        &self,
        request: Request<PutDefinitionRequest>,
    ) -> Result<Response<PutDefinitionResponse>, Status> {
        answer(put_definition::handle(self, request).await)
    }

    async fn put_plan(&self, request: Request<PutPlanRequest>) -> Result<Response<PutPlanResponse>, Status> {
        answer(put_plan::handle(self, request).await)
    }

    async fn put_grain(&self, request: Request<PutGrainRequest>) -> Result<Response<PutGrainResponse>, Status> {
        answer(put_grain::handle(self, request).await)
    }

    async fn get_grain(&self, request: Request<GetGrainRequest>) -> Result<Response<GetGrainResponse>, Status> {
        answer(get_grain::handle(self, request).await)
    }

    async fn list_definitions(
        &self,
        request: Request<ListDefinitionsRequest>,
    ) -> Result<Response<ListDefinitionsResponse>, Status> {
        answer(list_definitions::handle(self, request).await)
    }

    async fn list_plans(&self, request: Request<ListPlansRequest>) -> Result<Response<ListPlansResponse>, Status> {
        answer(list_plans::handle(self, request).await)
    }

    async fn validate_plan(
        &self,
        request: Request<ValidatePlanRequest>,
    ) -> Result<Response<ValidatePlanResponse>, Status> {
        answer(validate_plan::handle(self, request).await)
    }

    async fn import_bundle(
        &self,
        request: Request<Streaming<ImportBundleRequest>>,
    ) -> Result<Response<ImportBundleResponse>, Status> {
        answer(bundles::import(self, &request))
    }

    async fn export_bundle(
        &self,
        request: Request<ExportBundleRequest>,
    ) -> Result<Response<Self::ExportBundleStream>, Status> {
        answer(bundles::export(self, &request))
    }

    async fn list_step_actions(
        &self,
        request: Request<ListStepActionsRequest>,
    ) -> Result<Response<ListStepActionsResponse>, Status> {
        answer(list_step_actions::handle(self, request).await)
    }
}
