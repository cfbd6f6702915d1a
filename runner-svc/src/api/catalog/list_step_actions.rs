//! `ListStepActions`: the effects of a plan's runs, told by whoever keeps the journal.

use content_digest::Digest;
use proto::{
    fault::Fault,
    runner::v1::{ListStepActionsRequest, ListStepActionsResponse},
};
use tonic::Request;

use super::{CatalogApi, failure::invalid};
use crate::{access::Permission, catalogue::grain::Grain};

/// Knows the effects of a plan's runs.
#[tonic::async_trait]
pub trait StepActions: Send + Sync {
    /// One page of effects, by run and order of dispatch. The caller may read the namespace; namespace and plan are named.
    async fn list(&self, request: ListStepActionsRequest) -> Result<ListStepActionsResponse, Fault>;

    /// The grain of an effect that was listed lately, by its address. Blocks on the disk.
    fn grain(&self, hash: &Digest) -> Result<Option<Grain>, Fault>;
}

/// Checks who asks, and passes the question on.
pub async fn handle(
    api: &CatalogApi,
    request: Request<ListStepActionsRequest>,
) -> Result<ListStepActionsResponse, Fault> {
    let principal = api.caller(&request)?;
    let request = request.into_inner();
    if request.namespace.is_empty() {
        return Err(invalid("namespace", "is required"));
    }
    if request.plan_hash.is_empty() {
        return Err(invalid("plan_hash", "is required"));
    }
    api.parts.access.allow(&principal, &request.namespace, Permission::RunRead)?;
    api.parts.step_actions.list(request).await
}
