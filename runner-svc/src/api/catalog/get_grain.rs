//! `GetGrain`: a grain's bytes and fields.

use std::sync::Arc;

use proto::{
    fault::{Fault, Reason},
    runner::v1::{GetGrainRequest, GetGrainResponse},
    serve::MESSAGE_BYTES_MAX,
};
use tonic::Request;

use super::{CatalogApi, blocking, put_blob::digest};
use crate::{access::Permission, catalogue::grain::Grain};

/// Room for the message's other fields, in bytes.
const AROUND_BYTES: usize = 1024;

/// Reads the grain, if the caller may read its namespace.
pub async fn handle(api: &CatalogApi, request: Request<GetGrainRequest>) -> Result<GetGrainResponse, Fault> {
    let principal = api.caller(&request)?;
    let hash = digest("grain_hash", &request.into_inner().grain_hash)?;
    let stored = api.on_disk(move |catalogue| catalogue.grain(&hash)).await?;
    let grain = match stored {
        Some(grain) => Some(grain),
        // Effects of runs are grains too; those that were listed lately can be read.
        None => {
            let step_actions = Arc::clone(&api.parts.step_actions);
            blocking(&api.disk, move || step_actions.grain(&hash)).await?
        }
    };
    let grain = grain.ok_or_else(|| {
        let text = format!("there is no grain {hash}: store it with PutDefinition, PutPlan or PutGrain");
        Fault::new(Reason::GrainNotFound, text).with("grain_hash", hash.to_hex())
    })?;
    api.parts.access.allow(&principal, grain.namespace(), Permission::RunRead)?;
    let answer = move || {
        Ok::<_, Fault>(GetGrainResponse {
            grain_hash: hash.to_hex(),
            grain_type: grain.kind().name().to_owned(),
            fields_json: fields_json(&grain),
            grain: grain.bytes().to_vec(),
        })
    };
    blocking(&api.disk, answer).await
}

/// The fields' text; empty when it and the bytes would not fit in one message.
fn fields_json(grain: &Grain) -> String {
    let bytes_max = MESSAGE_BYTES_MAX.saturating_sub(grain.bytes().len() + AROUND_BYTES);
    grain.fields_json(bytes_max).unwrap_or_default()
}
