//! `RevokeEffect` and `RevokeRun`: the ends of tokens.

use proto::{
    broker::v1::{RevokeEffectRequest, RevokeEffectResponse, RevokeRunRequest, RevokeRunResponse},
    fault::Fault,
};

use super::{Api, bad_field};
use crate::token::EffectKey;

/// Longest run id, in bytes: it is remembered.
const RUN_ID_BYTES_MAX: usize = 128;

pub fn revoke_effect(api: &Api, request: RevokeEffectRequest) -> RevokeEffectResponse {
    let RevokeEffectRequest { run_id, task_path, node, attempt, effect_seq } = request;
    let effect = EffectKey { run_id, task_path, node, attempt, effect_seq };
    RevokeEffectResponse { revoked: api.broker.tokens.revoke_effect(&effect) }
}

pub fn revoke_run(api: &Api, request: RevokeRunRequest) -> Result<RevokeRunResponse, Fault> {
    if request.run_id.is_empty() || request.run_id.len() > RUN_ID_BYTES_MAX {
        return Err(bad_field("run_id", format!("is empty or over {RUN_ID_BYTES_MAX} bytes")));
    }
    Ok(RevokeRunResponse { revoked: api.broker.tokens.revoke_run(&request.run_id) })
}
