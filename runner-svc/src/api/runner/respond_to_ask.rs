//! `RespondToAsk`: acknowledged means durable; the first answer stands.

use std::time::{Duration, UNIX_EPOCH};

use content_digest::Digest;
use proto::{
    fault::{Fault, Reason},
    runner::v1::{RespondToAskRequest, RespondToAskResponse, Run, respond_to_ask_request::AnswerDocument},
};
use runner_core::{
    input::{Declined, Input},
    payload::Payload,
    run::feed,
    state::{AskEnd, SettledAsk, State},
};
use serde_json::Value;
use tokio::sync::oneshot;
use tonic::Request;

use super::{RunnerApi, coded, get_run, load_fault};
use crate::{
    access::Permission,
    api::document,
    journal::RunInfo,
    runs::{Command, CommandError, Handle, RECOVERY_FAILED, load},
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
    let said = Said { tool_call_id, by: by.as_str().to_owned(), answer, is_error: asked.is_error };
    let run = match api.parts.runs.reach(&asked.run_id).await {
        Some(handle) => taken(api, &info, handle, said).await?,
        None => after_the_end(api, &info, said).await?,
    };
    Ok(RespondToAskResponse { run: Some(run) })
}

#[derive(Clone)]
struct Said {
    tool_call_id: Digest,
    by: String,
    answer: Payload,
    is_error: bool,
}

async fn taken(api: &RunnerApi, info: &RunInfo, handle: Handle, said: Said) -> Result<Run, Fault> {
    let asking = asking(api, info, said.tool_call_id);
    let is_own = asking == info.header.run_id;
    let handle = if is_own { handle } else { api.parts.runs.live(&asking).unwrap_or(handle) };
    let (reply, taken) = oneshot::channel();
    let Said { tool_call_id, by, answer, is_error } = said.clone();
    let command = Command::Answer { tool_call_id, by, answer, is_error, reply };
    let answered = match handle.send(command).await {
        Ok(()) => taken.await.unwrap_or(Err(CommandError::Stopped)),
        Err(stopped) => Err(stopped),
    };
    match answered {
        Ok(view) if is_own => Ok(get_run::driven(api, info, &view)),
        Ok(_) => get_run::view(api, info).await,
        // The driver was about to go: the journal has the last word.
        Err(CommandError::Stopped | CommandError::Declined(Declined::Finished)) => after_the_end(api, info, said).await,
        Err(CommandError::Declined(Declined::AskUnknown { .. })) => settled_below(api, info, said).await,
        Err(CommandError::Declined(declined)) => Err(fault(&declined, tool_call_id)),
    }
}

/// The run has no driver. If it has ended, its journal says what became of the ask; an answer changes nothing any more.
async fn after_the_end(api: &RunnerApi, info: &RunInfo, said: Said) -> Result<Run, Fault> {
    let run_id = &info.header.run_id;
    match api.parts.runs.shared().journal.run(run_id) {
        Ok(now) if now.finished => {}
        _ => return Err(not_driven(api, run_id).await),
    }
    let state = api.folded(run_id).await?;
    match state.settled_ask(&said.tool_call_id) {
        Some(_) => said_to(api, info, state, said).await,
        None => settled_below(api, info, said).await,
    }
}

/// The run never raised the ask itself. If a child run below it did, and it was settled there, that is the answer.
async fn settled_below(api: &RunnerApi, info: &RunInfo, said: Said) -> Result<Run, Fault> {
    let (journal, run_id, ask) =
        (api.parts.runs.shared().journal.clone(), info.header.run_id.clone(), said.tool_call_id);
    let looking = tokio::task::spawn_blocking(move || load::settled_below(&journal, &run_id, &ask));
    match looking.await.map_err(|panic| Fault::internal(&panic))?.map_err(load_fault)? {
        Some(state) => said_to(api, info, state, said).await,
        None => Err(fault(&Declined::AskUnknown { tool_call_id: ask }, ask)),
    }
}

/// What a run in which the ask is settled says to an answer: nothing changes any more.
async fn said_to(api: &RunnerApi, info: &RunInfo, mut state: State, said: Said) -> Result<Run, Fault> {
    let Said { tool_call_id, by, answer, is_error } = said;
    let input = Input::Answer { tool_call_id, by, answer, is_error };
    let fed = feed(&mut state, input, api.parts.runs.shared().now_ms()).map_err(|corrupt| Fault::internal(&corrupt))?;
    match fed.declined {
        None => get_run::view(api, info).await,
        Some(declined) => Err(fault(&declined, tool_call_id)),
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
        // Nobody has to give a reason.
        Some(AnswerDocument::AnswerJson(text)) if is_error && text.trim().is_empty() => Ok(Payload::new("null")),
        Some(AnswerDocument::AnswerJson(text)) => Ok(Payload::new(text)),
        None if is_error => Ok(Payload::new("null")),
        // The run says that it is empty, and keeps it as evidence.
        None => Ok(Payload::new("")),
    }
}

/// The run has not ended and nobody drives it here.
pub async fn not_driven(api: &RunnerApi, run_id: &str) -> Fault {
    // A driver that just stopped says why a moment later.
    api.parts.runs.left(run_id).await;
    if let Some(why) = api.parts.runs.quarantine_of(run_id) {
        return quarantined(&why).with("run_id", run_id);
    }
    let recovering = api.parts.runs.recovering(run_id).map(|recovering| recovering.what);
    let why = recovering.unwrap_or_else(|| "the service is starting or draining".to_owned());
    Fault::new(Reason::DependencyUnavailable, format!("the run is not driven now: {why}"))
        .retry_after(Duration::from_secs(1))
}

/// A quarantined run refuses with the code that stopped it, where that is one.
fn quarantined(why: &str) -> Fault {
    let text = why.strip_prefix(RECOVERY_FAILED).unwrap_or(why);
    coded(text).unwrap_or_else(|| Fault::new(Reason::RecoveryFailed, format!("the run is not driven: {why}")))
}

fn fault(declined: &Declined, ask: Digest) -> Fault {
    let reason = match declined {
        Declined::SelfApproval { .. } => Reason::SelfApproval,
        Declined::AskSettled { settled: Some(settled), .. } => return settled_before(settled, ask),
        Declined::Finished | Declined::Canceling => Reason::AskNotOpen,
        Declined::AskUnknown { .. } | Declined::AskSettled { .. } | Declined::AskExpired { .. } => Reason::AskNotOpen,
        Declined::WrongAnswer { reason: problem } | Declined::BadDocument { problem, .. } => {
            let fault = Fault::new(Reason::InvalidArgument, declined.to_string());
            return fault.with("ask", ask.to_hex()).field("answer_json", problem);
        }
        Declined::TooManyRejections { .. } => Reason::TooManyEvents,
        Declined::NotInFlight { .. }
        | Declined::ExchangeOutOfOrder { .. }
        | Declined::NotPausable { .. }
        | Declined::TooManyPauses { .. }
        | Declined::NotRevoking
        | Declined::StaleFence { .. } => return Fault::internal(declined),
    };
    Fault::new(reason, declined.to_string()).with("ask", ask.to_hex())
}

/// Who was first, and when.
fn settled_before(settled: &SettledAsk, ask: Digest) -> Fault {
    let at = humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(settled.at_ms)).to_string();
    let by = settled.by.as_deref().unwrap_or("nobody");
    let text = match settled.end {
        AskEnd::Answered => format!("ask {ask} was answered by {by} at {at}: the first answer stands"),
        AskEnd::Refused => format!("ask {ask} was refused by {by} at {at}: the first answer stands"),
        AskEnd::Expired => format!("ask {ask} expired at {at}: nobody had answered by then"),
        AskEnd::Canceled => format!("ask {ask} was closed at {at}: its run was canceled"),
    };
    let fault = Fault::new(Reason::AskNotOpen, text).with("ask", ask.to_hex()).with("settled_at", at);
    match &settled.by {
        Some(by) => fault.with("settled_by", by),
        None => fault,
    }
}
