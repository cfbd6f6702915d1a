//! Tokens: minted for one effect before it is sent, ended when it is settled.

mod records;

use std::{sync::Arc, time::Duration};

use content_digest::Digest;
use proto::{
    broker::v1::{
        Ceilings, DescribeRequest, FetchRequest, FetchResponse, MintTokenRequest, RevokeEffectRequest,
        RevokeRunRequest, broker_service_client::BrokerServiceClient,
    },
    fault::Reason,
    tls::TlsMaterial,
};
use runner_core::pinned::{Executor, Runtime};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use super::{
    backoff::Backoff,
    code::CodeRef,
    config::DispatchConfigError,
    effect::{Effect, Ending},
    ready::Unready,
    service_client::{REPLY_BYTES_MAX, SHORT_CALL, Trouble, Wire, wire},
    shown_time,
    token::Egress,
    until::Until,
    waits::{Awaited, BROKER, Waiter},
};

use records::{Records, Taken};

/// Revocations on their way at once. One more is not sent: its token ends with the effect's deadline.
const REVOCATIONS_MAX: usize = 256;

/// Longest request to a model and longest answer, in bytes.
const MODEL_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The broker of this runner.
#[derive(Clone)]
pub(super) struct Broker {
    url: Arc<str>,
    client: BrokerServiceClient<Wire>,
    patience: Duration,
    revocations: Arc<Semaphore>,
    records: Arc<Records>,
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
    pub(super) fn new(url: &str, tls: Option<&TlsMaterial>, patience: Duration) -> Result<Self, DispatchConfigError> {
        let client = BrokerServiceClient::new(wire("--broker-url", url, tls)?);
        Ok(Self {
            url: url.into(),
            client,
            patience,
            revocations: Arc::new(Semaphore::new(REVOCATIONS_MAX)),
            records: Records::new(),
        })
    }

    /// Mints a token, trying for a while when the broker does not answer. None when the host grants this tool nothing.
    ///
    /// # Errors
    /// How the effect ends: the broker cannot be reached or refuses, or the effect has to stop.
    pub(super) async fn mint(
        &self,
        (effect, waiter): (&Effect, &Waiter),
        until: &Until<'_>,
    ) -> Result<Option<Granted>, Ending> {
        let mut request = request(effect, until);
        // A module's calls are told with its exchanges and a model's by us; a child process makes its own by the HTTP door.
        let model = matches!(effect.tool.executor, Executor::Model { .. });
        let by_http = !model && CodeRef::of(effect).is_none_or(|code| code.runtime == Runtime::Native);
        let records = by_http.then(|| self.records.take(effect));
        if by_http {
            self.records.name().clone_into(&mut request.watcher);
        }
        let mut backoff = Backoff::of(effect.idempotency_key);
        let began = Instant::now();
        loop {
            let mut client = self.client.clone();
            let answer = timeout(SHORT_CALL, client.mint_token(request.clone()));
            let answer = until.first(answer).await.map_err(|cut| until.ending(cut, "a token was being minted"))?;
            let trouble = match answer {
                Ok(Ok(reply)) => {
                    let reply = reply.into_inner();
                    waiter.goes_on();
                    if by_http {
                        // Should it not open now, the door refuses calls until it does.
                        let opened = until.first(self.records.opened(&self.client)).await;
                        opened.map_err(|cut| until.ending(cut, "the broker's records were being asked for"))?;
                    }
                    let egress = Egress::new(reply.egress_url, reply.token);
                    let effect = effect_name(effect);
                    return Ok(Some(Granted { egress, effect, broker: self.clone(), records }));
                }
                Ok(Err(status)) => Trouble::of(&status),
                Err(_elapsed) => Trouble::Lost(format!("no answer within {}", shown_time(SHORT_CALL))),
            };
            let pause = match &trouble {
                Trouble::Refused { reason: Some(Reason::NoGrant), .. } => return Ok(None),
                Trouble::Refused { text, .. } => {
                    let failure = format_args!("the credential broker at {} refused a token: {text}", self.url);
                    return Err(Ending::executor_error(failure));
                }
                Trouble::Busy(Some(asked)) => backoff.next_after(*asked),
                Trouble::Busy(None) | Trouble::Unavailable(_) | Trouble::Lost(_) => backoff.next(),
            };
            if began.elapsed().saturating_add(pause) > self.patience {
                return Err(Ending::executor_error(format_args!(
                    "the credential broker at {} did not mint a token within {}: {}",
                    self.url,
                    shown_time(self.patience),
                    trouble.text()
                )));
            }
            waiter.waits(match &trouble {
                Trouble::Busy(_) => Awaited::Busy { service: BROKER, url: self.url.to_string() },
                silent => {
                    Awaited::Silent { service: BROKER, url: self.url.to_string(), cause: silent.text().to_owned() }
                }
            });
            let doing = || format!("the credential broker at {} could not be reached: {}", self.url, trouble.text());
            until.pause(pause).await.map_err(|cut| until.ending(cut, &doing()))?;
        }
    }

    /// Makes one outbound call.
    ///
    /// # Errors
    /// The broker's status, whose text says why.
    pub(super) async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, tonic::Status> {
        let mut client = self.client.clone().max_decoding_message_size(REPLY_BYTES_MAX);
        Ok(client.fetch(request).await?.into_inner())
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

fn request(effect: &Effect, until: &Until<'_>) -> MintTokenRequest {
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
