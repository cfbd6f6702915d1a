//! A catalogue behind gRPC, for tests to call.

use std::{collections::BTreeSet, sync::Arc};

use content_digest::Digest;
use proto::{
    dial::dial,
    fault::{Fault, Reason, reason_of},
    runner::v1::{
        ListStepActionsRequest, ListStepActionsResponse, PutBlobRequest, PutDefinitionRequest, PutPlanRequest,
        catalog_service_client::CatalogServiceClient, put_blob_request::Message,
        put_definition_request::Document as DefinitionDocument, put_plan_request::Document as PlanDocument,
    },
    serve::{self, Health, MESSAGE_BYTES_MAX, ServeArgs},
};
use runner_svc::{
    access::Access,
    api::catalog::{CatalogApi, CatalogParts, HostOffer, StepActions},
    catalogue::Catalogue,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, service::Routes, transport::Channel};

/// A served catalogue; dropped, it stops.
pub struct Host {
    pub client: CatalogServiceClient<Channel>,
    pub directory: tempfile::TempDir,
    stop: CancellationToken,
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

struct NoActions;

#[tonic::async_trait]
impl StepActions for NoActions {
    async fn list(&self, request: ListStepActionsRequest) -> Result<ListStepActionsResponse, Fault> {
        Ok(ListStepActionsResponse { next_page_token: request.plan_hash, ..Default::default() })
    }

    fn grain(&self, _hash: &Digest) -> Result<Option<runner_svc::catalogue::grain::Grain>, Fault> {
        Ok(None)
    }
}

/// Serves a catalogue of its own on a free port.
pub async fn served(access: impl Access + 'static) -> Host {
    let directory = tempfile::tempdir().unwrap();
    let db = sled::Config::new().temporary(true).open().unwrap();
    let catalogue = Catalogue::open(directory.path(), db.open_tree("catalogue").unwrap()).unwrap();
    let api = CatalogApi::new(CatalogParts {
        catalogue: Arc::new(catalogue),
        access: Arc::new(access),
        host: Box::new(|| HostOffer { pins: Arc::new(BTreeSet::from([Digest::of("pinned")])), ..HostOffer::default() }),
        now_ms: || 1_700_000_000_000,
        step_actions: Arc::new(NoActions),
    });
    let settings = ServeArgs::default().resolve((0, 0)).unwrap();
    let listener = serve::bind("test", &settings).await.unwrap();
    let url = format!("http://{}", listener.address());
    let (stop, health) = (CancellationToken::new(), Health::not_serving(&[]).await);
    let drain = stop.clone();
    let routes = Routes::new(api.into_server());
    tokio::spawn(
        async move { serve::serve(listener, &settings, routes, &health, (drain, std::future::ready(()))).await },
    );
    let client = CatalogServiceClient::new(dial(&url, None).unwrap());
    let client = client.max_decoding_message_size(MESSAGE_BYTES_MAX).max_encoding_message_size(64 << 20);
    Host { client, directory, stop }
}

/// A definition of namespace `ops`, as text.
pub fn definition(document: &Value) -> PutDefinitionRequest {
    let document = DefinitionDocument::DefinitionJson(document.to_string());
    PutDefinitionRequest { namespace: "ops".to_owned(), document: Some(document) }
}

/// A plan of namespace `ops`, as text.
pub fn plan(document: &Value) -> PutPlanRequest {
    PutPlanRequest { namespace: "ops".to_owned(), document: Some(PlanDocument::PlanJson(document.to_string())) }
}

/// The messages of an upload.
pub fn upload(expected: Option<&str>, pieces: &[&[u8]]) -> impl tokio_stream::Stream<Item = PutBlobRequest> + use<> {
    let expected = expected.map(|text| Message::ExpectedDigest(text.to_owned()));
    let pieces = pieces.iter().map(|piece| Message::Chunk(piece.to_vec())).collect::<Vec<_>>();
    tokio_stream::iter(expected.into_iter().chain(pieces).map(|message| PutBlobRequest { message: Some(message) }))
}

/// The reason, the status code, and the text of a refusal.
#[track_caller]
pub fn refused(status: &Status, reason: Reason, code: Code) -> String {
    assert_eq!((reason_of(status), status.code()), (Some(reason), code), "{status:?}");
    assert!(status.message().len() < 4096);
    status.message().to_owned()
}
