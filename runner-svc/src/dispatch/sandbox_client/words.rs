//! The sandbox's messages, in the runner's words and back.

use std::time::Duration;

use proto::{broker::v1 as broker, sandbox::v1 as wire};
use runner_core::{
    event::Exchange,
    outcome::{FailureCause, Usage},
    payload::Payload,
    pinned::{Runtime, RuntimeLimits},
};

use super::Delivery;
use crate::dispatch::{
    call_record::CallRecord,
    effect::{Ending, Settled},
    output::output,
};

/// The first message of a call.
pub(super) fn start(delivery: &Delivery<'_>) -> wire::Start {
    let (effect, code) = (delivery.effect, delivery.code);
    wire::Start {
        module_digest: code.digest.to_uri(),
        runtime: runtime(code.runtime).into(),
        input_json: effect.input.text().to_owned(),
        limits: Some(limits(&code.limits)),
        tool_name: effect.tool.tool_name.clone(),
        definition_hash: effect.tool.definition.to_hex(),
        idempotency_key: effect.idempotency_key.to_hex(),
        effect: Some(wire::EffectKey {
            run_id: effect.run_id.clone(),
            task_path: effect.key.task_path.clone(),
            node: effect.key.node.clone(),
            attempt: effect.key.attempt,
            effect_seq: effect.key.effect_seq,
        }),
        deadline: Some(delivery.until.wall_clock().into()),
        timeout: prost_types::Duration::try_from(delivery.until.left()).ok(),
        egress: delivery.egress.map(|egress| wire::Egress {
            token: egress.expose_token().to_owned(),
            url: egress.url().to_owned(),
            broker_url: egress.broker_url().to_owned(),
        }),
        recorded: delivery.recorded.iter().map(recorded).collect(),
        blob_read: code.reads_blobs(),
        tenant: effect.tenant(),
    }
}

/// An exchange as the sandbox tells it. The error says what is wrong with it.
pub(super) fn exchange(told: wire::Exchange) -> Result<Exchange, String> {
    let reply = std::str::from_utf8(&told.reply_json)
        .map_err(|_| format!("exchange {} has a reply that is not UTF-8", told.ordinal))?;
    let request = told.request_digest.parse().map_err(|cause: content_digest::BadDigest| {
        format!("exchange {} has a bad request digest: {cause}", told.ordinal)
    })?;
    let record = told.record.map(record);
    Ok(Exchange {
        ordinal: told.ordinal,
        request,
        response: Payload::new(reply),
        refused: record.as_ref().is_none_or(CallRecord::is_refusal),
        record: record.as_ref().map(CallRecord::to_payload),
        blobs: Vec::new(),
    })
}

/// How an effect ended, as the sandbox at `url` tells it.
pub(super) fn settled(outcome: wire::Outcome, url: &str) -> Settled {
    let usage = Usage {
        fuel: outcome.fuel_used,
        peak_memory_bytes: outcome.peak_memory_bytes,
        duration_ms: outcome.duration.map_or(0, millis),
        ..Usage::default()
    };
    ending(outcome, url).using(usage)
}

fn ending(outcome: wire::Outcome, url: &str) -> Ending {
    use wire::OutcomeKind as Kind;
    let cause = match outcome.kind() {
        Kind::Completed => match output(&outcome.output_json) {
            Ok(output) => return Ending::completed(output),
            Err(bad) => return Ending::bad_output(format_args!("the sandbox at {url}"), &bad),
        },
        Kind::OutputTooLarge => {
            let text = if outcome.text.is_empty() { "the output is over its cap" } else { outcome.text.as_str() };
            return Ending::too_large(text);
        }
        Kind::Timeout => FailureCause::Timeout,
        Kind::Unspecified
        | Kind::Trap
        | Kind::OutOfFuel
        | Kind::OutOfMemory
        | Kind::Abi
        | Kind::BadOutput
        | Kind::Exit
        | Kind::ModuleRefused
        | Kind::Canceled => FailureCause::ExecutorError,
    };
    let kind = outcome.kind().as_str_name().trim_start_matches("OUTCOME_KIND_").to_ascii_lowercase();
    match outcome.text.as_str() {
        "" => Ending::failed(cause, format_args!("the sandbox at {url} ended it: {kind}")),
        text => Ending::failed(cause, text),
    }
}

fn runtime(runtime: Runtime) -> wire::Runtime {
    match runtime {
        Runtime::Native => wire::Runtime::Native,
        Runtime::Wasm => wire::Runtime::Wasm32Areev,
        Runtime::WasmIo => wire::Runtime::Wasm32AreevIo,
    }
}

fn limits(limits: &RuntimeLimits) -> wire::Limits {
    wire::Limits {
        fuel: limits.fuel,
        max_pages: limits.max_pages,
        max_calls: limits.max_calls,
        max_response_bytes: limits.max_response_bytes,
        max_request_bytes: limits.max_request_bytes,
        max_blob_bytes: limits.max_blob_bytes,
    }
}

fn recorded(exchange: &Exchange) -> wire::Exchange {
    wire::Exchange {
        ordinal: exchange.ordinal,
        request_digest: exchange.request.to_hex(),
        reply_json: bytes::Bytes::copy_from_slice(exchange.response.text().as_bytes()),
        record: None,
    }
}

pub(in crate::dispatch) fn record(told: broker::CallRecord) -> CallRecord {
    CallRecord {
        at_ms: told.at.map_or(0, |at| at.seconds.saturating_mul(1000).saturating_add(i64::from(at.nanos) / 1_000_000)),
        credential: told.credential,
        method: told.method,
        scheme: told.scheme,
        host: told.host,
        path: told.path,
        status: told.status,
        request_bytes: told.request_bytes,
        response_bytes: told.response_bytes,
        request_digest: told.request_digest,
        response_digest: told.response_digest,
        reason: told.reason,
        policy_digest: told.policy_digest,
        duration_ms: told.duration.map_or(0, millis),
        door: told.door,
        redirects: told.redirects,
        went_out: told.went_out,
    }
}

fn millis(duration: prost_types::Duration) -> u64 {
    let duration = Duration::try_from(duration).unwrap_or_default();
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
