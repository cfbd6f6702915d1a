//! One sandbox: calls to it, and the upload of what it does not have.

use std::net::SocketAddr;

use proto::{
    fault::Reason,
    sandbox::v1::{
        DescribeRequest, PutModuleRequest, StatModulesRequest, put_module_request,
        sandbox_service_client::SandboxServiceClient,
    },
    tls::TlsMaterial,
};
use tokio::{sync::Mutex, time::timeout};

use super::{
    Delivery,
    call::{self, NoOutcome},
};
use crate::dispatch::{
    code::{CodeUnreadable, SharedCode, read_verified},
    config::DispatchConfigError,
    effect::{Ending, Settled},
    ready::Unready,
    service_client::{REPLY_BYTES_MAX, SHORT_CALL, Trouble, Wire, wire},
    shown_time,
};

/// Uploads for one call: a sandbox that loses the module again at once is not fed for ever.
const UPLOADS_MAX: u32 = 2;
/// Bytes in one message of an upload.
const CHUNK_BYTES: usize = 1024 * 1024;

/// One address.
pub(super) struct Replica {
    url: String,
    client: SandboxServiceClient<Wire>,
    source: SharedCode,
    /// One upload at a time: many effects of a new module begin together.
    uploading: Mutex<()>,
}

impl Replica {
    /// Reaches a sandbox, with the first call.
    /// Without an address the url's own is used, looked up anew with each connection.
    pub(super) fn new(
        url: &str,
        address: Option<SocketAddr>,
        source: SharedCode,
        tls: Option<&TlsMaterial>,
    ) -> Result<Self, DispatchConfigError> {
        let client = SandboxServiceClient::new(wire("--sandbox-url", (url, address), tls)?)
            .max_decoding_message_size(REPLY_BYTES_MAX)
            .max_encoding_message_size(REPLY_BYTES_MAX);
        let url = address.map_or_else(|| url.to_owned(), |address| format!("{url} ({address})"));
        Ok(Self { url, client, source, uploading: Mutex::new(()) })
    }

    /// Its address.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Executes one effect, uploading its code when it is not there.
    pub(super) async fn deliver(&self, delivery: &mut Delivery<'_>) -> Result<Settled, NoOutcome> {
        let mut uploads = 0;
        loop {
            let missing = match call::execute(self.client.clone(), (&self.url, &self.source), delivery).await {
                Err(NoOutcome::Trouble(Trouble::Refused { reason: Some(Reason::ModuleNotFound), text })) => text,
                ended => return ended,
            };
            if uploads == UPLOADS_MAX {
                let text = format!("{missing}, although it was uploaded {uploads} times");
                return Err(NoOutcome::Trouble(Trouble::Refused { reason: Some(Reason::ModuleNotFound), text }));
            }
            uploads += 1;
            match delivery.until.first(Box::pin(self.upload(delivery))).await {
                Ok(Ok(())) => {}
                Ok(Err(ended)) => return ended,
                Err(cut) => return Ok(delivery.until.ending(cut, "the module was being uploaded").into()),
            }
        }
    }

    /// Asks for its description.
    pub(super) async fn ready(&self) -> Result<(), Unready> {
        let cause = match timeout(SHORT_CALL, self.client.clone().describe(DescribeRequest {})).await {
            Ok(Ok(_description)) => return Ok(()),
            Ok(Err(status)) => Trouble::of(&status).text().to_owned(),
            Err(_elapsed) => format!("no answer within {}", shown_time(SHORT_CALL)),
        };
        Err(Unready { service: "sandbox", url: self.url.clone(), cause })
    }

    /// What isolates its native blobs; none when it does not answer.
    pub(super) async fn native_isolation(&self) -> Option<Vec<String>> {
        let described = timeout(SHORT_CALL, self.client.clone().describe(DescribeRequest {})).await;
        Some(described.ok()?.ok()?.into_inner().native_isolation)
    }

    /// Uploads the code, unless somebody else just did.
    async fn upload(&self, delivery: &Delivery<'_>) -> Result<(), Result<Settled, NoOutcome>> {
        let _turn = self.uploading.lock().await;
        let trouble = |status: tonic::Status| Err(NoOutcome::Trouble(Trouble::of(&status)));
        let digest = *delivery.code.digest;
        let stat = StatModulesRequest { digests: vec![digest.to_uri()] };
        let stat = self.client.clone().stat_modules(stat).await.map_err(trouble)?.into_inner();
        if stat.modules.first().is_some_and(|module| module.present) {
            return Ok(());
        }
        let source = self.source.clone();
        let read = tokio::task::spawn_blocking(move || read_verified(&source, &digest)).await;
        let bytes = read.unwrap_or_else(|cause| Err(CodeUnreadable(format!("reading {digest} failed: {cause}"))));
        let bytes = bytes.map_err(|cause| Ok(Ending::executor_error(cause).into()))?;
        tracing::info!(sandbox = self.url, %digest, bytes = bytes.len(), "uploading a module");
        let messages = std::iter::once(put_module_request::Message::Digest(digest.to_uri()))
            .chain(chunks(bytes).map(put_module_request::Message::Chunk))
            .map(|message| PutModuleRequest { message: Some(message) });
        self.client.clone().put_module(tokio_stream::iter(messages)).await.map_err(trouble)?;
        Ok(())
    }
}

fn chunks(bytes: Vec<u8>) -> impl Iterator<Item = Vec<u8>> + Send + 'static {
    let mut rest = bytes::Bytes::from(bytes);
    std::iter::from_fn(move || {
        let next = rest.split_to(rest.len().min(CHUNK_BYTES));
        (!next.is_empty()).then(|| next.to_vec())
    })
}
