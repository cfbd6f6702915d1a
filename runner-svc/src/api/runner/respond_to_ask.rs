//! `RespondToAsk`: acknowledged means durable; the first answer stands.

use std::time::Duration;

use content_digest::Digest;
use proto::{
    fault::{Fault, Reason},
    runner::v1::{RespondToAskRequest, RespondToAskResponse, respond_to_ask_request::AnswerDocument},
};
use runner_core::{input::Declined, payload::Payload};
use serde_json::Value;
use tokio::sync::oneshot;
use tonic::Request;

use super::{RunnerApi, get_run};
use crate::{
    access::Permission,
    api::document,
    journal::RunInfo,
    runs::{Command, CommandError},
};

/// Takes the answer.
pub async fn handle(api: &RunnerApi, request: Request<RespondToAskRequest>) -> Result<RespondToAskResponse, Fault> {
    let by = api.allowed(&request, &request.get_ref().namespace, Permission::RunRespond)?;
    let asked = request.into_inner();
    let info = api.header(&asked.namespace, &asked.run_id)?;
    let tool_call_id: Digest = asked.tool_call_id.parse().map_err(|_| {
        let problem = "must be the ask's 64 hex digits";
        Fault::new(Reason::InvalidArgument, format!("tool_call_id {problem}")).field("tool_call_id", problem)
    })?;
    let answer = document(asked.answer_document, asked.is_error)?;
    let Some(handle) = api.parts.runs.reach(&asked.run_id).await else {
        return Err(closed(api, &info, tool_call_id));
    };
    let asking = asking(api, &info, tool_call_id);
    let handle = if asking == asked.run_id { handle } else { api.parts.runs.live(&asking).unwrap_or(handle) };
    let (reply, taken) = oneshot::channel();
    let by = by.as_str().to_owned();
    let command = Command::Answer { tool_call_id, by, answer, is_error: asked.is_error, reply };
    handle.send(command).await.map_err(|_| closed(api, &info, tool_call_id))?;
    match taken.await.unwrap_or(Err(CommandError::Stopped)) {
        Ok(view) if asking == asked.run_id => {
            Ok(RespondToAskResponse { run: Some(get_run::driven(api, &info, &view)) })
        }
        Ok(_) => Ok(RespondToAskResponse { run: Some(get_run::view(api, &info).await?) }),
        Err(CommandError::Declined(declined)) => Err(fault(&declined, tool_call_id)),
        Err(CommandError::Stopped) => Err(closed(api, &info, tool_call_id)),
    }
}

/// The run that asks: the one that is named, or a child run below it.
fn asking(api: &RunnerApi, info: &RunInfo, ask: Digest) -> String {
    let mut asks = api.parts.runs.asks(&info.header.run_id).into_iter();
    let open = asks.find(|open| open.tool_call_id == ask);
    open.map_or_else(|| info.header.run_id.clone(), |open| open.run_id)
}

fn document(document: Option<AnswerDocument>, is_error: bool) -> Result<Payload, Fault> {
    match document {
        Some(AnswerDocument::Answer(structure)) => {
            Ok(Payload::of(&Value::Object(document::of_struct("answer", structure)?)))
        }
        Some(AnswerDocument::AnswerJson(text)) => Ok(Payload::new(text)),
        None if is_error => Ok(Payload::new("null")),
        None => {
            let problem = "or answer is required, unless is_error refuses";
            Err(Fault::new(Reason::InvalidArgument, format!("answer_json {problem}")).field("answer_json", problem))
        }
    }
}

fn closed(api: &RunnerApi, info: &RunInfo, ask: Digest) -> Fault {
    match api.parts.runs.shared().journal.run(&info.header.run_id) {
        Ok(now) if now.finished => Fault::new(Reason::AskNotOpen, format!("ask {ask} is not open: its run has ended"))
            .with("ask", ask.to_hex()),
        _ => not_driven(api, &info.header.run_id),
    }
}

/// The run has not ended and nobody drives it here.
pub fn not_driven(api: &RunnerApi, run_id: &str) -> Fault {
    if let Some(why) = api.parts.runs.quarantine_of(run_id) {
        return Fault::new(Reason::RecoveryFailed, format!("the run is not driven: {why}")).with("run_id", run_id);
    }
    let recovering = api.parts.runs.recovering(run_id).map(|recovering| recovering.what);
    let why = recovering.unwrap_or_else(|| "the service is starting or draining".to_owned());
    Fault::new(Reason::DependencyUnavailable, format!("the run is not driven now: {why}"))
        .retry_after(Duration::from_secs(1))
}

fn fault(declined: &Declined, ask: Digest) -> Fault {
    let reason = match declined {
        Declined::SelfApproval { .. } => Reason::SelfApproval,
        Declined::Finished | Declined::Canceling => Reason::AskNotOpen,
        Declined::AskUnknown { .. } | Declined::AskSettled { .. } | Declined::AskExpired { .. } => Reason::AskNotOpen,
        Declined::WrongAnswer { .. } | Declined::BadDocument { .. } => Reason::InvalidArgument,
        Declined::NotInFlight { .. } | Declined::ExchangeOutOfOrder { .. } | Declined::StaleFence { .. } => {
            return Fault::internal(declined);
        }
    };
    Fault::new(reason, declined.to_string()).with("ask", ask.to_hex())
}
