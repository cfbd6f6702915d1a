//! `ListAsks`: pending questions of a namespace, or of one run.

use content_digest::Digest;
use proto::{
    fault::Fault,
    runner::v1::{Ask, ListAsksRequest, ListAsksResponse},
};
use tonic::Request;

use super::{RunnerApi, read_fault, wire};
use crate::{access::Permission, api::page};

/// One page.
pub async fn handle(api: &RunnerApi, request: Request<ListAsksRequest>) -> Result<ListAsksResponse, Fault> {
    api.allowed(&request, &request.get_ref().namespace, Permission::RunRead)?;
    let asked = request.into_inner();
    let limit = page::size(asked.page_size)?;
    if !asked.run_id.is_empty() {
        return of_run(api, &asked).await;
    }
    let query = page::Query::of("ListAsks", [&asked.namespace]);
    let after = query.place(&asked.page_token)?.map(|place| cursor(&place)).transpose()?;
    let open = api.parts.runs.shared().journal.open_asks(&asked.namespace, after, limit).map_err(read_fault)?;
    let next = (open.len() == limit).then(|| open.last()).flatten();
    let next_page_token = query.token(next.map(|ask| {
        let mut place = ask.run_number.to_be_bytes().to_vec();
        place.extend_from_slice(ask.ask_id.as_bytes());
        place
    }));
    let mut asks = Vec::with_capacity(open.len());
    for ask in open {
        let of_run = of_drivers(api, &ask.run_id).await.into_iter();
        let mut own = of_run.filter(|of| of.run_id == ask.run_id);
        asks.extend(own.find(|of| of.tool_call_id == ask.ask_id.to_hex()));
    }
    Ok(ListAsksResponse { asks, next_page_token })
}

/// A run has as many asks as it and its child runs have nodes at most: one page.
async fn of_run(api: &RunnerApi, asked: &ListAsksRequest) -> Result<ListAsksResponse, Fault> {
    api.header(&asked.namespace, &asked.run_id)?;
    Ok(ListAsksResponse { asks: of_drivers(api, &asked.run_id).await, next_page_token: String::new() })
}

async fn of_drivers(api: &RunnerApi, run_id: &str) -> Vec<Ask> {
    api.parts.runs.reach(run_id).await;
    api.parts.runs.asks(run_id).iter().map(wire::ask).collect()
}

fn cursor(place: &[u8]) -> Result<(u64, Digest), Fault> {
    let (number, ask) = place.split_first_chunk::<8>().ok_or_else(page::bad_token)?;
    let ask = <[u8; 32]>::try_from(ask).map_err(|_| page::bad_token())?;
    Ok((u64::from_be_bytes(*number), Digest::from_bytes(ask)))
}
