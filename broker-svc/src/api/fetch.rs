//! `Fetch`: one outbound call for the sandbox. A refusal's status carries its audit record.

use proto::{
    broker::v1::{CallingEffect, FetchRequest, FetchResponse, Header},
    fault::{self, Fault},
    identity::{Peer, Role},
};
use tonic::{Extensions, Status};

use super::{Api, RECORD, record, status};
use crate::{
    audit::Door,
    broker::{Denied, Done, Request, Room},
    token::{Claimed, Shower},
};

/// The reply, and the room that its bytes take.
pub async fn fetch(api: &Api, extensions: &Extensions, request: FetchRequest) -> Result<(FetchResponse, Room), Status> {
    let pass = api.broker.admit(&request.token, Door::Grpc).map_err(refused)?;
    let (call, effect) = request_of(request);
    let shower = shower(api, extensions, effect);
    let pass = api.broker.bind(pass, &shower).map_err(refused)?;
    let mut done = api.broker.call(pass, call).await.map_err(refused)?;
    let reply = FetchResponse {
        status: done.status.into(),
        body: std::mem::take(&mut done.body),
        headers: headers(&mut done),
        record: Some(record::wire(&done.record)),
    };
    // What an answer might have taken beyond what it took is free again.
    let room = done.into_room().share(reply.body.len());
    Ok((reply, room))
}

/// The call in the broker's words, and the effect that it is said to be made for.
pub fn request_of(request: FetchRequest) -> (Request, Option<Claimed>) {
    let call = Request {
        url: request.url,
        method: request.method,
        credential: request.credential,
        headers: request.headers.into_iter().map(|header| (header.name, header.value)).collect(),
        body: request.body.into(),
        content_type: request.content_type,
        response_headers: request.response_headers,
        ordinal: Some(request.ordinal),
        max_response_bytes: request.max_response_bytes,
        ..Request::default()
    };
    (call, request.effect.map(claimed))
}

/// Takes the headers out of an answer.
pub fn headers(done: &mut Done) -> Vec<Header> {
    std::mem::take(&mut done.headers).into_iter().map(|(name, value)| Header { name, value }).collect()
}

fn shower(api: &Api, extensions: &Extensions, claimed: Option<Claimed>) -> Shower {
    let peer = extensions.get::<Peer>().unwrap_or(&Peer::Anonymous);
    let plays = |role| peer.plays(&api.trust_domain, &[role]);
    let certificate = match peer {
        Peer::Certified(names) => Some(names.clone()),
        Peer::Local | Peer::Insecure | Peer::Anonymous => None,
    };
    Shower { door: Door::Grpc, plays: (plays(Role::Sandbox), plays(Role::Runner)), certificate, claimed }
}

fn claimed(effect: CallingEffect) -> Claimed {
    Claimed {
        run_id: effect.run_id,
        task_path: effect.task_path,
        node: effect.node,
        attempt: effect.attempt,
        effect_seq: effect.effect_seq,
        tool_name: effect.tool_name,
        definition_hash: effect.definition_hash,
        tenant: effect.tenant,
    }
}

/// The status of a refusal, with its record.
pub fn refused(denied: Denied) -> Status {
    fault::attach(status(Fault::from(&denied.refusal)), RECORD, &record::wire(&denied.record))
}
