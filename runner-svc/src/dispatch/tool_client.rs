//! Host tools by service: one `ExecuteTool` call an effect.

use std::time::Duration;

use proto::{
    tls::TlsMaterial,
    tool::v1::{
        ExecuteToolRequest, ToolFailure, execute_tool_response, host_tool_service_client::HostToolServiceClient,
    },
};
use runner_core::outcome::{EffectOutcome, Failure, FailureCause};
use tokio::time::Instant;

use super::{
    backoff::Backoff,
    config::DispatchConfigError,
    effect::{Effect, Ending},
    output::output,
    service_client::{REPLY_BYTES_MAX, Trouble, Wire, answers, text_of, wire},
    shown_time,
    token::Egress,
    until::Until,
    waits::{Awaited, HOST_TOOL, Waiter},
};

/// The call's own deadline is this much behind the effect's, so that the effect's is what ends it.
const HEADERS_GRACE: Duration = Duration::from_secs(1);

/// The service of this runner.
pub(super) struct ToolService {
    url: String,
    client: HostToolServiceClient<Wire>,
    wire: Wire,
    patience: Duration,
}

impl ToolService {
    /// Reaches the service at an address, with the first call.
    pub(super) fn new(url: &str, tls: Option<&TlsMaterial>, patience: Duration) -> Result<Self, DispatchConfigError> {
        let wire = wire("--tool-url", (url, None), tls)?;
        let client = HostToolServiceClient::new(wire.clone())
            .max_decoding_message_size(REPLY_BYTES_MAX)
            .max_encoding_message_size(REPLY_BYTES_MAX);
        Ok(Self { url: url.to_owned(), client, wire, patience })
    }

    /// Executes one effect. It is sent again only when it surely never reached the service.
    pub(super) async fn execute(
        &self,
        (effect, waiter): (&Effect, &Waiter),
        egress: Option<&Egress>,
        until: Until<'_>,
    ) -> Ending {
        let mut backoff = Backoff::of(effect.idempotency_key);
        let began = Instant::now();
        loop {
            let mut request = tonic::Request::new(request(effect, egress, &until));
            request.set_timeout(until.left() + HEADERS_GRACE);
            let status = match until.first(self.client.clone().execute_tool(request)).await {
                Ok(Ok(reply)) => return self.ending(reply.into_inner().outcome),
                Ok(Err(status)) => status,
                Err(cut) => return until.ending(cut, "the host tool was executing"),
            };
            if status.code() == tonic::Code::DeadlineExceeded {
                return Ending::timeout(format_args!("the host tool at {}: {}", self.url, text_of(&status)));
            }
            let pause = match Trouble::of(&status) {
                Trouble::Unavailable(_) | Trouble::Busy(None) => backoff.next(),
                Trouble::Busy(Some(asked)) => backoff.next_after(asked),
                Trouble::Lost(text) | Trouble::Refused { text, .. } => {
                    let code = status.code();
                    return Ending::executor_error(format_args!("the host tool at {}: {code:?}: {text}", self.url));
                }
            };
            if began.elapsed().saturating_add(pause) > self.patience {
                return Ending::executor_error(format_args!(
                    "the host tool at {} could not be reached within {}: {}",
                    self.url,
                    shown_time(self.patience),
                    text_of(&status)
                ));
            }
            waiter.waits(match Trouble::of(&status) {
                Trouble::Busy(_) => Awaited::Busy { service: HOST_TOOL, url: self.url.clone() },
                silent => {
                    Awaited::Silent { service: HOST_TOOL, url: self.url.clone(), cause: silent.text().to_owned() }
                }
            });
            let silent = !matches!(Trouble::of(&status), Trouble::Busy(_));
            let mut pause = pause;
            loop {
                let answering = async { !silent || answers(&self.wire).await };
                match waiter.rests(&until, pause, answering).await {
                    Ok(answers) if answers || began.elapsed() > self.patience => break,
                    Ok(_) => pause = backoff.next(),
                    Err(cut) => {
                        let doing = format!("the host tool at {} could not be reached: {}", self.url, text_of(&status));
                        return until.ending(cut, &doing);
                    }
                }
            }
        }
    }

    fn ending(&self, outcome: Option<execute_tool_response::Outcome>) -> Ending {
        match outcome {
            Some(execute_tool_response::Outcome::OutputJson(text)) => match output(&text) {
                Ok(output) => Ending::completed(output),
                Err(bad) => Ending::bad_output(format_args!("the host tool at {}", self.url), &bad),
            },
            Some(execute_tool_response::Outcome::Failure(failure)) => Ending::Outcome(failed(&failure)),
            None => Ending::executor_error(format_args!("the host tool at {} answered without an outcome", self.url)),
        }
    }
}

fn failed(failure: &ToolFailure) -> EffectOutcome {
    let detail = if failure.detail.is_empty() { "the host tool failed without saying why" } else { &failure.detail };
    let new = if failure.retryable { Failure::new } else { Failure::permanent };
    EffectOutcome::Failed { failure: new(FailureCause::ExecutorError, detail) }
}

fn request(effect: &Effect, egress: Option<&Egress>, until: &Until<'_>) -> ExecuteToolRequest {
    ExecuteToolRequest {
        tool_name: effect.tool.tool_name.clone(),
        definition_hash: effect.tool.definition.to_hex(),
        input_json: effect.input.text().to_owned(),
        idempotency_key: effect.idempotency_key.to_hex(),
        deadline: Some(until.wall_clock().into()),
        egress_url: egress.map(|egress| egress.url().to_owned()).unwrap_or_default(),
        egress_token: egress.map(|egress| egress.expose_token().to_owned()).unwrap_or_default(),
    }
}
