//! A broker that grants what the test says and remembers what it was asked.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
};

use proto::{
    broker::v1::{
        CallRecord, DescribeRequest, DescribeResponse, FetchArtifactRequest, FetchArtifactResponse, FetchRequest,
        FetchResponse, ListCallsRequest, ListCallsResponse, MintTokenRequest, MintTokenResponse, RevokeEffectRequest,
        RevokeEffectResponse, RevokeRunRequest, RevokeRunResponse, WatchEffectsRequest, WatchEffectsResponse,
        broker_service_server::{BrokerService, BrokerServiceServer},
    },
    fault::{Domain, Fault, Reason},
};
use tonic::{Request, Response, Status, Streaming, service::Routes};

use super::rig::{Log, serve};

/// Digest that the fake's policy claims to have.
pub const POLICY_HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// The fake and what it saw.
pub struct FakeBroker {
    pub url: String,
    pub log: Log,
    minted: Arc<Mutex<Vec<MintTokenRequest>>>,
}

/// A record that is told on every stream of records, and whether the next stream ends before it hears of it.
struct Telling {
    record: CallRecord,
    breaks: Mutex<bool>,
}

struct Service {
    token: Option<String>,
    unavailable: Mutex<u32>,
    telling: Option<Telling>,
    log: Log,
    minted: Arc<Mutex<Vec<MintTokenRequest>>>,
}

impl FakeBroker {
    pub async fn granting(token: &str) -> Self {
        Self::start(Some(token), 0, None).await
    }

    /// Tells of a call on its stream of records, which breaks before it is acknowledged, and again on the next one.
    pub async fn telling_twice(token: &str, record: CallRecord) -> Self {
        Self::start(Some(token), 0, Some(Telling { record, breaks: Mutex::new(true) })).await
    }

    pub async fn granting_nothing() -> Self {
        Self::start(None, 0, None).await
    }

    /// Answers that a dependency is down, that many times.
    pub async fn granting_after(token: &str, unavailable: u32) -> Self {
        Self::start(Some(token), unavailable, None).await
    }

    /// What it was asked for.
    pub fn minted(&self) -> Vec<MintTokenRequest> {
        self.minted.lock().unwrap().clone()
    }

    async fn start(token: Option<&str>, unavailable: u32, telling: Option<Telling>) -> Self {
        let (log, minted) = (Log::default(), Arc::default());
        let service = Service {
            token: token.map(str::to_owned),
            unavailable: Mutex::new(unavailable),
            telling,
            log: log.clone(),
            minted: Arc::clone(&minted),
        };
        let url = serve(Routes::new(BrokerServiceServer::new(service))).await;
        Self { url, log, minted }
    }
}

#[tonic::async_trait]
impl BrokerService for Service {
    type WatchEffectsStream = Pin<Box<dyn futures::Stream<Item = Result<WatchEffectsResponse, Status>> + Send>>;

    async fn mint_token(&self, request: Request<MintTokenRequest>) -> Result<Response<MintTokenResponse>, Status> {
        self.log.note("mint");
        self.minted.lock().unwrap().push(request.into_inner());
        let mut unavailable = self.unavailable.lock().unwrap();
        if *unavailable > 0 {
            *unavailable -= 1;
            return Err(
                Fault::new(Reason::DependencyUnavailable, "the key is not there yet").into_status(Domain::Broker)
            );
        }
        match &self.token {
            Some(token) => Ok(Response::new(MintTokenResponse {
                token: token.clone(),
                egress_url: "http://egress.example:7431".to_owned(),
                policy_digest: POLICY_HEX.to_owned(),
                expires_at: None,
            })),
            None => Err(Fault::new(Reason::NoGrant, "nothing is granted").into_status(Domain::Broker)),
        }
    }

    async fn revoke_effect(
        &self,
        request: Request<RevokeEffectRequest>,
    ) -> Result<Response<RevokeEffectResponse>, Status> {
        let effect = request.into_inner();
        self.log.note(format!("revoke {} {} {}", effect.run_id, effect.node, effect.attempt));
        Ok(Response::new(RevokeEffectResponse { revoked: 1 }))
    }

    async fn revoke_run(&self, request: Request<RevokeRunRequest>) -> Result<Response<RevokeRunResponse>, Status> {
        self.log.note(format!("revoke run {}", request.into_inner().run_id));
        Ok(Response::new(RevokeRunResponse { revoked: 3 }))
    }

    async fn describe(&self, _: Request<DescribeRequest>) -> Result<Response<DescribeResponse>, Status> {
        Ok(Response::new(DescribeResponse { policy_digest: POLICY_HEX.to_owned(), ..Default::default() }))
    }

    async fn fetch(&self, _: Request<FetchRequest>) -> Result<Response<FetchResponse>, Status> {
        Err(Status::unimplemented("the runner fetches nothing"))
    }

    type FetchArtifactStream = Pin<Box<dyn futures::Stream<Item = Result<FetchArtifactResponse, Status>> + Send>>;

    async fn fetch_artifact(
        &self,
        _: Request<Streaming<FetchArtifactRequest>>,
    ) -> Result<Response<Self::FetchArtifactStream>, Status> {
        Err(Status::unimplemented("not played"))
    }

    async fn watch_effects(
        &self,
        request: Request<Streaming<WatchEffectsRequest>>,
    ) -> Result<Response<Self::WatchEffectsStream>, Status> {
        let Some(telling) = &self.telling else { return Err(Status::unimplemented("not played")) };
        let breaks = std::mem::take(&mut *telling.breaks.lock().unwrap());
        let (log, record, mut said) = (self.log.clone(), telling.record.clone(), request.into_inner());
        let (tell, told) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            // The name of the stream.
            let _first = said.message().await;
            log.note("tell");
            let _runner_gone = tell.send(Ok(WatchEffectsResponse { record: Some(record) })).await;
            while let Ok(Some(message)) = said.message().await {
                if breaks {
                    // What it says is lost on its way.
                    return;
                }
                log.note(format!("heard {} {}", message.acknowledged, message.not_recorded));
            }
        });
        Ok(Response::new(Box::pin(tokio_stream::wrappers::ReceiverStream::new(told))))
    }

    async fn list_calls(&self, _: Request<ListCallsRequest>) -> Result<Response<ListCallsResponse>, Status> {
        Err(Status::unimplemented("not played"))
    }
}
