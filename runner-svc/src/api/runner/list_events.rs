//! `ListEvents`: a run's events by sequence number.

use proto::{
    fault::Fault,
    runner::v1::{ListEventsRequest, ListEventsResponse},
};
use tonic::Request;

use super::{RunnerApi, load_fault, wire};
use crate::{
    access::Permission,
    api::page,
    runs::load::{self, LoadError},
};

/// One page.
pub async fn handle(api: &RunnerApi, request: Request<ListEventsRequest>) -> Result<ListEventsResponse, Fault> {
    api.allowed(&request, &request.get_ref().namespace, Permission::RunRead)?;
    let asked = request.into_inner();
    let info = api.header(&asked.namespace, &asked.run_id)?;
    let limit = page::size(asked.page_size)?;
    let query = page::Query::of("ListEvents", [&asked.namespace, &asked.run_id]);
    let from = query.number(&asked.page_token)?.unwrap_or(0);
    let journal = api.parts.runs.shared().journal.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let mut events = Vec::new();
        load::entries(&journal, &info.header.run_id, from, |entry| {
            events.push(wire::event(&entry));
            Ok::<_, LoadError>(events.len() < limit)
        })?;
        Ok((events, info.next_sequence))
    });
    let (events, end) = reading.await.map_err(|panic| Fault::internal(&panic))?.map_err(load_fault)?;
    let next = from + events.len() as u64;
    Ok(ListEventsResponse { events, next_page_token: query.token_of((next < end).then_some(next)) })
}
