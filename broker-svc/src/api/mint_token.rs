//! `MintToken`: freezes one effect's right to call out.

use std::time::SystemTime;

use proto::{
    broker::v1::{self as wire, Ceilings as WireCeilings, MintTokenRequest, MintTokenResponse},
    fault::{Fault, Reason},
};

use super::{Api, bad_field, watch_effects::NAME_BYTES_MAX};
use crate::{
    capability::Declaration,
    refusal::quote,
    token::{Binding, Ceilings, Permit, Spender},
};

/// Longest run id, and longest of the other texts, in bytes.
const RUN_ID_BYTES_MAX: usize = 128;
const TEXT_BYTES_MAX: usize = 1024;
/// Longest name of a tenant, in bytes.
const TENANT_BYTES_MAX: usize = 512;

pub fn mint_token(api: &Api, request: MintTokenRequest) -> Result<MintTokenResponse, Fault> {
    let deadline = deadline(&request)?;
    let declaration = match &request.capabilities_json {
        Some(json) => {
            Some(Declaration::parse(json).map_err(|cause| bad_field("capabilities_json", cause.to_string()))?)
        }
        None => None,
    };
    let ceilings = ceilings(request.ceilings.as_ref());
    let (key, watcher) = (request.idempotency_key.clone(), request.watcher.clone());
    let spender = spender(request.spender)?;
    let binding = binding(request)?;
    let in_force = api.broker.in_force();
    let granted = in_force.policy.grants.get(&binding.tool_name);
    if !granted.is_some_and(|grant| grant.is_for(&binding.definition_hash)) {
        let tool = quote(&binding.tool_name);
        let text = format!(
            "the host grants tool {tool} nothing in this definition: an operator can add [grants.NAME] or --tool-egress"
        );
        return Err(Fault::new(Reason::NoGrant, text));
    }
    let permit = Permit::new(binding, declaration, ceilings, deadline).with_key(key).watched_by(watcher);
    let minted = api.broker.tokens.mint(permit.spent_by(spender))?;
    Ok(MintTokenResponse {
        token: minted.token,
        egress_url: api.egress_url.clone(),
        policy_digest: in_force.digest.to_hex(),
        expires_at: Some(minted.expires_at.into()),
    })
}

fn deadline(request: &MintTokenRequest) -> Result<SystemTime, Fault> {
    let given = request.deadline.ok_or_else(|| bad_field("deadline", "is missing: the effect's deadline"))?;
    SystemTime::try_from(given).map_err(|_| bad_field("deadline", "is out of range"))
}

fn spender(given: i32) -> Result<Spender, Fault> {
    match wire::Spender::try_from(given) {
        Ok(wire::Spender::Unspecified) => Ok(Spender::Anyone),
        Ok(wire::Spender::Sandbox) => Ok(Spender::Sandbox),
        Ok(wire::Spender::Runner) => Ok(Spender::Runner),
        Ok(wire::Spender::Child) => Ok(Spender::Child),
        Err(_) => Err(bad_field("spender", format!("{given} is none that this broker knows"))),
    }
}

fn ceilings(given: Option<&WireCeilings>) -> Ceilings {
    let (default, given) = (Ceilings::default(), given.copied().unwrap_or_default());
    Ceilings {
        max_calls: given.max_calls.unwrap_or(default.max_calls).min(Ceilings::MAX.max_calls),
        max_request_bytes: given
            .max_request_bytes
            .unwrap_or(default.max_request_bytes)
            .min(Ceilings::MAX.max_request_bytes),
        max_response_bytes: given
            .max_response_bytes
            .unwrap_or(default.max_response_bytes)
            .min(Ceilings::MAX.max_response_bytes),
    }
}

fn binding(request: MintTokenRequest) -> Result<Binding, Fault> {
    let text = |field: &str, value: &str, max: usize, needed: bool| {
        if needed && value.is_empty() {
            return Err(bad_field(field, "is empty"));
        }
        if value.len() > max || value.chars().any(char::is_control) {
            return Err(bad_field(field, format!("is over {max} bytes or has control characters")));
        }
        Ok(())
    };
    text("run_id", &request.run_id, RUN_ID_BYTES_MAX, true)?;
    text("namespace", &request.namespace, TEXT_BYTES_MAX, false)?;
    text("task_path", &request.task_path, TEXT_BYTES_MAX, false)?;
    text("node", &request.node, TEXT_BYTES_MAX, true)?;
    text("tool_name", &request.tool_name, TEXT_BYTES_MAX, true)?;
    text("principal", &request.principal, TEXT_BYTES_MAX, false)?;
    text("tenant", &request.tenant, TENANT_BYTES_MAX, false)?;
    text("watcher", &request.watcher, NAME_BYTES_MAX, false)?;
    hex("definition_hash", &request.definition_hash)?;
    if !request.idempotency_key.is_empty() {
        hex("idempotency_key", &request.idempotency_key)?;
    }
    Ok(Binding {
        run_id: request.run_id,
        namespace: request.namespace,
        task_path: request.task_path,
        node: request.node,
        attempt: request.attempt,
        effect_seq: request.effect_seq,
        tool_name: request.tool_name,
        definition_hash: request.definition_hash,
        principal: request.principal,
        tenant: request.tenant,
    })
}

fn hex(field: &str, value: &str) -> Result<(), Fault> {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if value.len() == 64 && value.bytes().all(digit) {
        return Ok(());
    }
    Err(bad_field(field, "is not 64 lower-case hex digits"))
}
