//! `areev.broker.v1.BrokerService`: one RPC a file. Generated types end here.

mod describe;
mod fetch;
mod fetch_artifact;
mod held;
mod list_calls;
mod mint_token;
mod record;
mod revoke;
mod watch_effects;

use std::{pin::Pin, sync::Arc};

use futures::Stream;
use proto::{
    broker::v1::{
        DescribeRequest, DescribeResponse, FetchArtifactRequest, FetchArtifactResponse, FetchRequest, FetchResponse,
        ListCallsRequest, ListCallsResponse, MintTokenRequest, MintTokenResponse, RevokeEffectRequest,
        RevokeEffectResponse, RevokeRunRequest, RevokeRunResponse, WatchEffectsRequest, WatchEffectsResponse,
        broker_service_server::{BrokerService, BrokerServiceServer},
    },
    fault::{Domain, Fault, Reason},
    identity::{self, Role},
};
use tokio_util::sync::CancellationToken;
use tonic::{
    Extensions, Request, Response, Status, Streaming,
    service::{LayerExt as _, Routes},
};
use tower::util::MapResponseLayer;

use crate::{broker::Broker, token::Ceilings};
use held::Held;

/// Type of the record in a refused status's details.
pub const RECORD: &str = "areev.broker.v1.CallRecord";
/// Room in a message for everything but a body.
const MESSAGE_EXTRA_BYTES: usize = 1024 * 1024;

/// The service.
pub struct Api {
    broker: Arc<Broker>,
    trust_domain: String,
    egress_url: String,
    drain: CancellationToken,
}

impl Api {
    /// The service around a broker. `egress_url` is what minted tokens come with; streams end with `drain`.
    pub fn routes(broker: Arc<Broker>, trust_domain: String, egress_url: String, drain: CancellationToken) -> Routes {
        let message_bytes_max = Ceilings::MAX.max_response_bytes as usize + MESSAGE_EXTRA_BYTES;
        let server = BrokerServiceServer::new(Self { broker, trust_domain, egress_url, drain })
            .max_decoding_message_size(message_bytes_max)
            .max_encoding_message_size(message_bytes_max);
        Routes::new(MapResponseLayer::new(held::until_written).named_layer(server))
    }

    fn require(&self, extensions: &Extensions, roles: &[Role]) -> Result<(), Status> {
        identity::require(extensions, &self.trust_domain, roles).map_err(status)
    }
}

fn status(fault: Fault) -> Status {
    fault.into_status(Domain::Broker)
}

/// A reply that keeps its room until it is written.
fn holding<T>(reply: T, held: Held) -> Response<T> {
    let mut response = Response::new(reply);
    response.extensions_mut().insert(held);
    response
}

/// The fault for a request field.
fn bad_field(field: &str, rule: impl Into<String>) -> Fault {
    let rule = rule.into();
    Fault::new(Reason::InvalidArgument, format!("{field}: {rule}")).field(field, rule)
}

#[tonic::async_trait]
impl BrokerService for Api {
    async fn mint_token(&self, request: Request<MintTokenRequest>) -> Result<Response<MintTokenResponse>, Status> {
        self.require(request.extensions(), &[Role::Runner])?;
        mint_token::mint_token(self, request.into_inner()).map(Response::new).map_err(status)
    }

    async fn fetch(&self, request: Request<FetchRequest>) -> Result<Response<FetchResponse>, Status> {
        // The runner asks models itself; whatever runs code asks through its sandbox.
        self.require(request.extensions(), &[Role::Sandbox, Role::Runner])?;
        let (_, extensions, request) = request.into_parts();
        let (reply, room) = fetch::fetch(self, &extensions, request).await?;
        Ok(holding(reply, Held::new(room)))
    }

    type FetchArtifactStream = Pin<Box<dyn Stream<Item = Result<FetchArtifactResponse, Status>> + Send>>;

    async fn fetch_artifact(
        &self,
        request: Request<Streaming<FetchArtifactRequest>>,
    ) -> Result<Response<Self::FetchArtifactStream>, Status> {
        self.require(request.extensions(), &[Role::Runner])?;
        let (stream, held) = fetch_artifact::fetch_artifact(self, request.into_inner()).await?;
        Ok(holding(Box::pin(stream), held))
    }

    async fn revoke_effect(
        &self,
        request: Request<RevokeEffectRequest>,
    ) -> Result<Response<RevokeEffectResponse>, Status> {
        self.require(request.extensions(), &[Role::Runner])?;
        Ok(Response::new(revoke::revoke_effect(self, request.into_inner())))
    }

    async fn revoke_run(&self, request: Request<RevokeRunRequest>) -> Result<Response<RevokeRunResponse>, Status> {
        self.require(request.extensions(), &[Role::Runner])?;
        revoke::revoke_run(self, request.into_inner()).map(Response::new).map_err(status)
    }

    type WatchEffectsStream = Pin<Box<dyn Stream<Item = Result<WatchEffectsResponse, Status>> + Send>>;

    async fn watch_effects(
        &self,
        request: Request<Streaming<WatchEffectsRequest>>,
    ) -> Result<Response<Self::WatchEffectsStream>, Status> {
        self.require(request.extensions(), &[Role::Runner])?;
        let stream = watch_effects::watch_effects(self, request.into_inner()).await?;
        Ok(Response::new(Box::pin(stream)))
    }

    async fn list_calls(&self, request: Request<ListCallsRequest>) -> Result<Response<ListCallsResponse>, Status> {
        self.require(request.extensions(), &[Role::Runner])?;
        list_calls::list_calls(self, request.into_inner()).map(Response::new).map_err(status)
    }

    async fn describe(&self, _: Request<DescribeRequest>) -> Result<Response<DescribeResponse>, Status> {
        Ok(Response::new(describe::describe(self)))
    }
}
