//! A broker that answers as a test says, and remembers what it was asked.

use std::{pin::Pin, sync::Arc};

use parking_lot::Mutex;
use proto::broker::v1::{
    DescribeRequest, DescribeResponse, FetchArtifactRequest, FetchArtifactResponse, FetchRequest, FetchResponse,
    ListCallsRequest, ListCallsResponse, MintTokenRequest, MintTokenResponse, RevokeEffectRequest,
    RevokeEffectResponse, RevokeRunRequest, RevokeRunResponse, WatchEffectsRequest, WatchEffectsResponse,
    broker_service_server::{BrokerService, BrokerServiceServer},
};
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming};

type Answer = Box<dyn Fn(&FetchRequest) -> Option<Result<FetchResponse, Status>> + Send + Sync>;

#[derive(Clone)]
pub struct FakeBroker {
    answer: Arc<Answer>,
    pub asked: Arc<Mutex<Vec<FetchRequest>>>,
    pub abandoned: Arc<Mutex<u32>>,
}

impl FakeBroker {
    /// Serves a broker whose answers a function gives; `None` never answers.
    pub async fn serve(
        answer: impl Fn(&FetchRequest) -> Option<Result<FetchResponse, Status>> + Send + Sync + 'static,
    ) -> (Self, String) {
        let broker = Self { answer: Arc::new(Box::new(answer)), asked: Arc::default(), abandoned: Arc::default() };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
        let service = BrokerServiceServer::new(broker.clone());
        tokio::spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
        (broker, url)
    }

    /// A broker that says what it was asked for.
    pub async fn echoing() -> (Self, String) {
        Self::serve(|request| {
            let body = format!("{} {}", request.method, request.url);
            Some(Ok(FetchResponse { status: 200, body: body.into_bytes(), ..FetchResponse::default() }))
        })
        .await
    }
}

/// Counts a call that its caller abandoned.
struct Abandon(Option<Arc<Mutex<u32>>>);

impl Drop for Abandon {
    fn drop(&mut self) {
        if let Some(count) = self.0.take() {
            *count.lock() += 1;
        }
    }
}

#[tonic::async_trait]
impl BrokerService for FakeBroker {
    type WatchEffectsStream = Pin<Box<dyn Stream<Item = Result<WatchEffectsResponse, Status>> + Send>>;

    type FetchArtifactStream = Pin<Box<dyn Stream<Item = Result<FetchArtifactResponse, Status>> + Send>>;

    async fn fetch_artifact(
        &self,
        _: Request<Streaming<FetchArtifactRequest>>,
    ) -> Result<Response<Self::FetchArtifactStream>, Status> {
        Err(Status::permission_denied("that is for the runner"))
    }

    async fn fetch(&self, request: Request<FetchRequest>) -> Result<Response<FetchResponse>, Status> {
        let request = request.into_inner();
        let answer = (self.answer)(&request);
        self.asked.lock().push(request);
        match answer {
            Some(answer) => answer.map(Response::new),
            None => {
                let _abandon = Abandon(Some(Arc::clone(&self.abandoned)));
                std::future::pending().await
            }
        }
    }

    async fn mint_token(&self, _: Request<MintTokenRequest>) -> Result<Response<MintTokenResponse>, Status> {
        Err(Status::unimplemented("a fake"))
    }

    async fn revoke_effect(&self, _: Request<RevokeEffectRequest>) -> Result<Response<RevokeEffectResponse>, Status> {
        Err(Status::unimplemented("a fake"))
    }

    async fn revoke_run(&self, _: Request<RevokeRunRequest>) -> Result<Response<RevokeRunResponse>, Status> {
        Err(Status::unimplemented("a fake"))
    }

    async fn watch_effects(
        &self,
        _: Request<Streaming<WatchEffectsRequest>>,
    ) -> Result<Response<Self::WatchEffectsStream>, Status> {
        Err(Status::unimplemented("a fake"))
    }

    async fn list_calls(&self, _: Request<ListCallsRequest>) -> Result<Response<ListCallsResponse>, Status> {
        Err(Status::unimplemented("a fake"))
    }

    async fn describe(&self, _: Request<DescribeRequest>) -> Result<Response<DescribeResponse>, Status> {
        Err(Status::unimplemented("a fake"))
    }
}
