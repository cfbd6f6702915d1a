//! `ListJournalEntries`: a run's effects, intent and result together.

use proto::{
    fault::Fault,
    runner::v1::{JournalEntry, ListJournalEntriesRequest, ListJournalEntriesResponse},
};
use runner_core::effects::EffectRow;
use tonic::Request;

use super::{RunnerApi, load_fault};
use crate::{access::Permission, api::page, runs::load};

/// One page.
pub async fn handle(
    api: &RunnerApi,
    request: Request<ListJournalEntriesRequest>,
) -> Result<ListJournalEntriesResponse, Fault> {
    api.allowed(&request, &request.get_ref().namespace, Permission::RunRead)?;
    let asked = request.into_inner();
    let info = api.header(&asked.namespace, &asked.run_id)?;
    let limit = page::size(asked.page_size)?;
    let query = page::Query::of("ListJournalEntries", [&asked.namespace, &asked.run_id]);
    let from = usize::try_from(query.number(&asked.page_token)?.unwrap_or(0)).map_err(|_| page::bad_token())?;
    let (journal, run_id) = (api.parts.runs.shared().journal.clone(), info.header.run_id.clone());
    let reading = tokio::task::spawn_blocking(move || load::effects(&journal, &run_id));
    let (_, effects) = reading.await.map_err(|panic| Fault::internal(&panic))?.map_err(load_fault)?;
    let entries: Vec<_> = effects.iter().skip(from).take(limit).map(entry).collect();
    let next = from + entries.len();
    let next_page_token = query.token_of((next < effects.len()).then_some(next as u64));
    Ok(ListJournalEntriesResponse { entries, next_page_token })
}

fn entry(effect: &EffectRow) -> JournalEntry {
    let (cause, detail) = effect.failure().unwrap_or_default();
    JournalEntry {
        tool_call_id: effect.tool_call_id.to_hex(),
        task_path: effect.key.task_path.clone(),
        node: effect.key.node.clone(),
        attempt: effect.key.attempt,
        effect_seq: effect.key.effect_seq,
        kind: effect.key.kind.as_str().to_owned(),
        status: effect.status().to_owned(),
        intent_sequence: effect.intent_sequence,
        result_sequence: effect.settled.as_ref().map(|settled| settled.sequence).unwrap_or_default(),
        output_json: effect.output().unwrap_or_default().to_owned(),
        failure_cause: cause.to_owned(),
        failure_detail: detail.to_owned(),
        idempotency_key: effect.idempotency_key.to_hex(),
        dispatches: effect.dispatches,
        exchanges: effect.exchanges,
        child_run_id: effect.child_run.as_ref().map(|child| child.as_str().to_owned()).unwrap_or_default(),
    }
}
