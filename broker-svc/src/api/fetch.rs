//! `Fetch`: one outbound call for the sandbox. A refusal's status carries its audit record.

use proto::{
    broker::v1::{FetchRequest, FetchResponse, Header},
    fault::{self, Fault},
};
use tonic::Status;

use super::{Api, RECORD, record, status};
use crate::{
    audit::Door,
    broker::{Denied, Request},
};

pub async fn fetch(api: &Api, request: FetchRequest) -> Result<FetchResponse, Status> {
    let pass = api.broker.admit(&request.token, Door::Grpc).map_err(refused)?;
    let request = Request {
        url: request.url,
        method: request.method,
        credential: request.credential,
        headers: request.headers.into_iter().map(|header| (header.name, header.value)).collect(),
        body: request.body.into(),
        content_type: request.content_type,
        response_headers: request.response_headers,
        ordinal: Some(request.ordinal),
        max_response_bytes: request.max_response_bytes,
    };
    let mut done = api.broker.call(pass, request).await.map_err(refused)?;
    Ok(FetchResponse {
        status: done.status.into(),
        body: std::mem::take(&mut done.body),
        headers: std::mem::take(&mut done.headers).into_iter().map(|(name, value)| Header { name, value }).collect(),
        record: Some(record::wire(&done.record)),
    })
}

fn refused(denied: Denied) -> Status {
    fault::attach(status(Fault::from(&denied.refusal)), RECORD, &record::wire(&denied.record))
}
