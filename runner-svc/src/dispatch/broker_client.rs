//! Tokens: minted for one effect before it is sent, ended when it is settled.

pub(super) mod artifacts;
mod records;

use std::sync::Arc;

use content_digest::Digest;
use futures::Stream;
use proto::{
    broker::v1::{
        CallingEffect, Ceilings, DescribeRequest, FetchArtifactRequest, FetchArtifactResponse, FetchRequest,
        FetchResponse, MintTokenRequest, RevokeEffectRequest, RevokeRunRequest, Spender as WireSpender,
        broker_service_client::BrokerServiceClient,
    },
    tls::TlsMaterial,
};
use runner_core::pinned::Executor;
use tokio::{sync::Semaphore, time::timeout};
use tonic::Streaming;

use super::{
    code::CodeRef,
    config::DispatchConfigError,
    effect::{Effect, Ending},
    ready::Unready,
    service_client::{REPLY_BYTES_MAX, SHORT_CALL, Trouble, Wire, wire},
    shown_time,
    token::Egress,
    until::Until,
};

use records::{Records, Taken};

/// Revocations on their way at once. One more is not sent: its token ends with the effect's deadline.
const REVOCATIONS_MAX: usize = 256;

/// Longest request to a model and longest answer, in bytes.
const MODEL_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// One replica of the broker.
#[derive(Clone)]
pub(super) struct Broker {
    url: Arc<str>,
    client: BrokerServiceClient<Wire>,
    revocations: Arc<Semaphore>,
    records: Arc<Records>,
}

/// Who spends a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spender {
    /// A sandbox, which tells its calls with its exchanges.
    Sandbox,
    /// This runner, for a model.
    Runner,
    /// A child process, by the HTTP door; the broker tells its calls.
    Child,
}

/// The right of one effect. However the effect ends, the token is ended.
pub(super) struct Granted {
    egress: Egress,
    effect: RevokeEffectRequest,
    broker: Broker,
    records: Option<Taken>,
}

impl Broker {
    /// Reaches the broker at an address, with the first call.
    pub(super) fn new(url: &str, tls: Option<&TlsMaterial>) -> Result<Self, DispatchConfigError> {
        let client = BrokerServiceClient::new(wire("--broker-url", (url, None), tls)?);
        Ok(Self {
            url: url.into(),
            client,
            revocations: Arc::new(Semaphore::new(REVOCATIONS_MAX)),
            records: Records::new(),
        })
    }

    /// The address.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Asks for a token once. It is spent here and nowhere else: `named` says so to a sandbox that knows several brokers.
    ///
    /// # Errors
    /// The effect has to stop; or, inside, why there is no token.
    pub(super) async fn mint(
        &self,
        (effect, spender): (&Effect, Spender),
        until: &Until<'_>,
        named: bool,
    ) -> Result<Result<Granted, Trouble>, Ending> {
        let mut request = request(effect, spender, until);
        let by_http = spender == Spender::Child;
        let records = by_http.then(|| self.records.take(effect));
        if by_http {
            self.records.name().clone_into(&mut request.watcher);
        }
        let mut client = self.client.clone();
        let answer = timeout(SHORT_CALL, client.mint_token(request));
        let answer = until.first(answer).await.map_err(|cut| until.ending(cut, "a token was being minted"))?;
        let reply = match answer {
            Ok(Ok(reply)) => reply.into_inner(),
            Ok(Err(status)) => return Ok(Err(Trouble::of(&status))),
            Err(_elapsed) => {
                return Ok(Err(Trouble::Lost(format!("no answer within {}", shown_time(SHORT_CALL)))));
            }
        };
        metrics::counter!("areev_tokens_minted_total").increment(1);
        let broker_url = if named { self.url.to_string() } else { String::new() };
        let egress = Egress::new(reply.egress_url, reply.token, broker_url);
        let granted = Granted { egress, effect: effect_name(effect), broker: self.clone(), records };
        if by_http {
            // Should it not open now, the door refuses calls until it does.
            let opened = until.first(self.records.opened(&self.client)).await;
            opened.map_err(|cut| until.ending(cut, "the broker's records were being asked for"))?;
        }
        Ok(Ok(granted))
    }

    /// Ends what an unanswered call may have minted.
    pub(super) fn forget(&self, effect: &Effect) {
        self.revoke_soon(effect_name(effect));
    }

    /// Ends every token of a run, and every one minted for it later. Answers how many were alive.
    pub(super) async fn revoke_run(&self, run_id: &str) -> Result<u32, Unready> {
        let request = RevokeRunRequest { run_id: run_id.to_owned() };
        let answer = timeout(SHORT_CALL, self.client.clone().revoke_run(request)).await;
        Ok(self.answered(answer)?.revoked)
    }

    /// Digest of the policy in force.
    pub(super) async fn policy_digest(&self) -> Result<Digest, Unready> {
        let answer = timeout(SHORT_CALL, self.client.clone().describe(DescribeRequest {})).await;
        let text = self.answered(answer)?.policy_digest;
        text.parse().map_err(|cause: content_digest::BadDigest| self.unready(&cause.to_string()))
    }

    fn answered<T>(
        &self,
        answer: Result<Result<tonic::Response<T>, tonic::Status>, tokio::time::error::Elapsed>,
    ) -> Result<T, Unready> {
        match answer {
            Ok(Ok(reply)) => Ok(reply.into_inner()),
            Ok(Err(status)) => Err(self.unready(Trouble::of(&status).text())),
            Err(_elapsed) => Err(self.unready(&format!("no answer within {}", shown_time(SHORT_CALL)))),
        }
    }

    fn unready(&self, cause: &str) -> Unready {
        Unready { service: "credential broker", url: self.url.to_string(), cause: cause.to_owned() }
    }

    /// Sends a revocation on its way; nobody waits for it.
    fn revoke_soon(&self, effect: RevokeEffectRequest) {
        let (Ok(slot), Ok(runtime)) =
            (Arc::clone(&self.revocations).try_acquire_owned(), tokio::runtime::Handle::try_current())
        else {
            tracing::warn!(
                run = effect.run_id,
                node = effect.node,
                "too many revocations: a token ends by its deadline"
            );
            return;
        };
        let mut client = self.client.clone();
        runtime.spawn(async move {
            let (run, node) = (effect.run_id.clone(), effect.node.clone());
            match timeout(SHORT_CALL, client.revoke_effect(effect)).await {
                Ok(Ok(_revoked)) => {}
                Ok(Err(status)) => tracing::warn!(run, node, cause = Trouble::of(&status).text(), "token not revoked"),
                Err(_elapsed) => tracing::warn!(run, node, "token not revoked: the broker does not answer"),
            }
            drop(slot);
        });
    }
}

impl Granted {
    /// Makes one outbound call whose body or answer goes in chunks.
    ///
    /// # Errors
    /// The broker's status, whose text says why.
    pub(super) async fn fetch_artifact(
        &self,
        messages: impl Stream<Item = FetchArtifactRequest> + Send + 'static,
    ) -> Result<Streaming<FetchArtifactResponse>, tonic::Status> {
        Ok(self.broker.client.clone().fetch_artifact(messages).await?.into_inner())
    }

    /// Makes one outbound call with the token.
    ///
    /// # Errors
    /// The broker's status, whose text says why.
    pub(super) async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, tonic::Status> {
        let mut client = self.broker.client.clone().max_decoding_message_size(REPLY_BYTES_MAX);
        Ok(client.fetch(request).await?.into_inner())
    }

    /// The records of the calls that it makes by itself.
    pub(super) fn records(&mut self) -> Option<Taken> {
        self.records.take()
    }

    /// What the executor is told.
    pub(super) fn egress(&self) -> &Egress {
        &self.egress
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        self.broker.revoke_soon(std::mem::take(&mut self.effect));
    }
}

fn request(effect: &Effect, spender: Spender, until: &Until<'_>) -> MintTokenRequest {
    let code = CodeRef::of(effect);
    MintTokenRequest {
        run_id: effect.run_id.clone(),
        namespace: effect.namespace.clone(),
        task_path: effect.key.task_path.clone(),
        node: effect.key.node.clone(),
        attempt: effect.key.attempt,
        effect_seq: effect.key.effect_seq,
        tool_name: effect.tool.tool_name.clone(),
        definition_hash: effect.tool.definition.to_hex(),
        principal: effect.principal.clone(),
        capabilities_json: code.and_then(|code| code.capabilities).map(ToString::to_string),
        idempotency_key: effect.idempotency_key.to_hex(),
        ceilings: model_ceilings(effect).or_else(|| {
            code.map(|CodeRef { limits, .. }| Ceilings {
                max_calls: limits.max_calls,
                max_request_bytes: limits.max_request_bytes,
                max_response_bytes: limits.max_response_bytes,
            })
        }),
        deadline: Some(until.wall_clock().into()),
        watcher: String::new(),
        tenant: effect.tenant(),
        spender: match spender {
            Spender::Sandbox => WireSpender::Sandbox,
            Spender::Runner => WireSpender::Runner,
            Spender::Child => WireSpender::Child,
        }
        .into(),
    }
}

/// The effect that a call of our own is made for.
pub(super) fn calling(effect: &Effect) -> CallingEffect {
    CallingEffect {
        run_id: effect.run_id.clone(),
        task_path: effect.key.task_path.clone(),
        node: effect.key.node.clone(),
        attempt: effect.key.attempt,
        effect_seq: effect.key.effect_seq,
        tool_name: effect.tool.tool_name.clone(),
        definition_hash: effect.tool.definition.to_hex(),
        tenant: effect.tenant(),
    }
}

/// A conversation is longer than what a tool sends.
fn model_ceilings(effect: &Effect) -> Option<Ceilings> {
    let Executor::Model { .. } = effect.tool.executor else { return None };
    let bytes = Some(MODEL_BYTES_MAX);
    Some(Ceilings { max_calls: Some(1), max_request_bytes: bytes, max_response_bytes: bytes })
}

fn effect_name(effect: &Effect) -> RevokeEffectRequest {
    RevokeEffectRequest {
        run_id: effect.run_id.clone(),
        task_path: effect.key.task_path.clone(),
        node: effect.key.node.clone(),
        attempt: effect.key.attempt,
        effect_seq: effect.key.effect_seq,
    }
}
