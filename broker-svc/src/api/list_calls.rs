//! `ListCalls`: the audit buffer, newest first.

use content_digest::Digest;
use proto::{
    broker::v1::{ListCallsRequest, ListCallsResponse},
    fault::{Fault, Reason},
};

use super::{Api, bad_field, record};

/// Default and largest page.
const PAGE: u32 = 100;
const PAGE_MAX: u32 = 1000;

pub fn list_calls(api: &Api, request: ListCallsRequest) -> Result<ListCallsResponse, Fault> {
    let size = match request.page_size {
        0 => PAGE,
        size if size <= PAGE_MAX => size,
        _ => return Err(bad_field("page_size", format!("is over {PAGE_MAX}"))),
    } as usize;
    let below = match request.page_token.as_str() {
        "" => u64::MAX,
        token => sequence_of(token, &request.run_id).ok_or_else(|| {
            Fault::new(Reason::BadPageToken, "the page token is not one of this query's: begin without one")
        })?,
    };
    let records = api.broker.audit.list(&request.run_id, below, size + 1);
    let next = (records.len() > size).then(|| token_of(records[size - 1].sequence, &request.run_id));
    Ok(ListCallsResponse {
        calls: records.iter().take(size).map(|found| record::wire(found)).collect(),
        next_page_token: next.unwrap_or_default(),
    })
}

/// The sequence number to go on below, with a mark of the query that it belongs to.
fn token_of(sequence: u64, run_id: &str) -> String {
    format!("{sequence}.{}", &Digest::of(run_id).to_hex()[..16])
}

fn sequence_of(token: &str, run_id: &str) -> Option<u64> {
    let sequence = token.split_once('.')?.0.parse().ok()?;
    (token_of(sequence, run_id) == token).then_some(sequence)
}
