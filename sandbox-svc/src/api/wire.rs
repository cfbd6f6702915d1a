//! Between the wire's messages and the sandbox's own types: everything that comes in is checked here, by field.

use std::{
    collections::VecDeque,
    time::{Duration, SystemTime},
};

use content_digest::Digest;
use prost::Message as _;
use proto::{
    broker::v1::{CallRecord, FetchRequest},
    sandbox::v1::{self as pb, OutcomeKind},
};

use crate::{
    blob::{BlobPart, BlobRead},
    broker_client,
    effect::{Effect, EffectKey, Egress},
    error::Refusal,
    exchange::Exchange,
    fetch::ResponseMode,
    json,
    limits::{AskedLimits, Limits},
    outbound::Token,
    outcome::{FailureKind, Outcome},
    relay::ArtifactCall,
    runtime::Runtime,
    sandbox::Bounds,
};

/// Bytes of a name or a key.
const NAME_BYTES_MAX: usize = 512;
/// Bytes of a reply that refuses a blob.
const REFUSED_BYTES_MAX: usize = 4096;
/// Bytes of a token.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Reads a `start`.
pub fn effect(start: pb::Start, bounds: &Bounds) -> Result<Effect, Refusal> {
    if start.recorded.len() as u64 > bounds.limits_max.calls {
        let text = format!("{} exchanges, over the {} of --calls-max", start.recorded.len(), bounds.limits_max.calls);
        return Err(Refusal::Field { field: "recorded", text });
    }
    let recorded = start.recorded.into_iter().enumerate().map(|(number, exchange)| recorded(number, exchange));
    Ok(Effect {
        digest: digest("module_digest", &start.module_digest)?,
        runtime: runtime(start.runtime)?,
        input: input(&start.input_json, bounds.input_bytes_max)?,
        limits: start.limits.map(|limits| asked(&limits)).unwrap_or_default(),
        tenant: name("tenant", start.tenant)?,
        tool_name: name("tool_name", start.tool_name)?,
        definition_hash: hex_or_empty("definition_hash", start.definition_hash)?,
        idempotency_key: hex_or_empty("idempotency_key", start.idempotency_key)?,
        key: start.effect.map(effect_key).transpose()?.unwrap_or_default(),
        deadline: ends_at(start.timeout, start.deadline)?,
        egress: start.egress.map(egress).transpose()?,
        blob_read: start.blob_read,
        recorded: recorded.collect::<Result<VecDeque<_>, _>>()?,
    })
}

/// Reads a digest: the one canonical spelling.
pub fn digest(field: &'static str, text: &str) -> Result<Digest, Refusal> {
    Digest::from_uri(text).map_err(|_| {
        let shown: String = text.chars().take(128).collect();
        let text = format!("{shown:?} is no digest: write cas://sha256:<64 lower-case hex digits>");
        Refusal::Field { field, text }
    })
}

/// Writes an exchange.
pub fn exchange(exchange: Exchange) -> pb::Exchange {
    pb::Exchange {
        ordinal: exchange.ordinal,
        request_digest: exchange.request_digest.to_hex(),
        reply_json: exchange.reply.into(),
        record: exchange.record.and_then(|record| CallRecord::decode(record.as_slice()).ok()),
    }
}

/// Writes a call with artifacts. The effect's token is the runner's to add.
pub fn artifact_call(call: ArtifactCall) -> pb::ArtifactCall {
    let ArtifactCall { ordinal, request_digest, mut ask, response_bytes } = call;
    pb::ArtifactCall {
        ordinal,
        request_digest: request_digest.to_hex(),
        body_ref: ask.body_ref.take().unwrap_or_default(),
        artifact_answer: ask.response_mode == ResponseMode::Artifact,
        call: Some(FetchRequest {
            max_response_bytes: (ask.response_mode == ResponseMode::Inline).then_some(response_bytes),
            ..broker_client::to_wire(ask, ordinal)
        }),
    }
}

/// Writes a read of a blob.
pub fn blob_read(read: BlobRead) -> pb::BlobRead {
    pb::BlobRead { ordinal: read.ordinal, digest: read.digest.to_uri(), max_bytes: read.bytes_max }
}

/// Reads a part of a blob. The error says what is wrong with it.
pub fn blob_part(part: pb::BlobPart) -> Result<BlobPart, String> {
    if part.refused_json.is_empty() {
        return Ok(BlobPart::Bytes(part.chunk, part.last));
    }
    match json::check(part.refused_json.as_bytes()) {
        Ok(_) if part.refused_json.len() <= REFUSED_BYTES_MAX => Ok(BlobPart::Refused(part.refused_json.into_bytes())),
        Ok(_) => Err(format!("the refusal of a blob has more than {REFUSED_BYTES_MAX} bytes")),
        Err(why) => Err(format!("the refusal of a blob is not JSON: {why}")),
    }
}

/// Writes an outcome.
pub fn outcome(outcome: Outcome) -> pb::Outcome {
    let failure = outcome.result.as_ref().err().map(|failure| failure.kind);
    let (output_json, text) = match outcome.result {
        Ok(output) => (output, String::new()),
        Err(failure) => (String::new(), failure.text),
    };
    pb::Outcome {
        kind: kind(failure) as i32,
        output_json,
        text,
        fuel_used: outcome.fuel_used,
        peak_memory_bytes: outcome.peak_memory_bytes,
        duration: duration(outcome.duration),
        calls: outcome.calls,
    }
}

/// The wire's word for an end.
pub fn kind(failure: Option<FailureKind>) -> OutcomeKind {
    match failure {
        None => OutcomeKind::Completed,
        Some(FailureKind::Trap) => OutcomeKind::Trap,
        Some(FailureKind::OutOfFuel) => OutcomeKind::OutOfFuel,
        Some(FailureKind::OutOfMemory) => OutcomeKind::OutOfMemory,
        Some(FailureKind::Timeout) => OutcomeKind::Timeout,
        Some(FailureKind::Abi) => OutcomeKind::Abi,
        Some(FailureKind::BadOutput) => OutcomeKind::BadOutput,
        Some(FailureKind::OutputTooLarge) => OutcomeKind::OutputTooLarge,
        Some(FailureKind::Exit) => OutcomeKind::Exit,
        Some(FailureKind::ModuleRefused) => OutcomeKind::ModuleRefused,
        Some(FailureKind::Canceled) => OutcomeKind::Canceled,
    }
}

/// Writes limits, all filled in.
pub fn limits(limits: &Limits) -> pb::Limits {
    pb::Limits {
        fuel: Some(limits.fuel),
        max_pages: Some(limits.memory_pages),
        max_calls: Some(limits.calls),
        max_response_bytes: Some(limits.response_bytes),
        max_request_bytes: Some(limits.request_bytes),
        max_blob_bytes: Some(limits.blob_bytes),
    }
}

/// Writes a runtime.
pub fn runtime_out(runtime: Runtime) -> pb::Runtime {
    match runtime {
        Runtime::Pure => pb::Runtime::Wasm32Areev,
        Runtime::Io => pb::Runtime::Wasm32AreevIo,
        Runtime::Native => pb::Runtime::Native,
    }
}

/// Writes an effect's name.
pub fn effect_key_out(key: EffectKey) -> pb::EffectKey {
    pb::EffectKey {
        run_id: key.run_id,
        task_path: key.task_path,
        node: key.node,
        attempt: key.attempt,
        effect_seq: key.effect_seq,
    }
}

/// Writes a length of time.
pub fn duration(length: Duration) -> Option<prost_types::Duration> {
    length.try_into().ok()
}

fn runtime(number: i32) -> Result<Runtime, Refusal> {
    match pb::Runtime::try_from(number) {
        Ok(pb::Runtime::Wasm32Areev) => Ok(Runtime::Pure),
        Ok(pb::Runtime::Wasm32AreevIo) => Ok(Runtime::Io),
        Ok(pb::Runtime::Native) => Ok(Runtime::Native),
        Ok(pb::Runtime::Unspecified) | Err(_) => {
            let text = format!(
                "{number} is no runtime: write RUNTIME_WASM32_AREEV, RUNTIME_WASM32_AREEV_IO or RUNTIME_NATIVE"
            );
            Err(Refusal::Field { field: "runtime", text })
        }
    }
}

fn input(text: &str, bytes_max: usize) -> Result<String, Refusal> {
    let wrong = |text: String| Refusal::Field { field: "input_json", text };
    if text.len() > bytes_max {
        return Err(wrong(format!("{} bytes, over the {bytes_max} of --max-input-bytes", text.len())));
    }
    match json::check(text.as_bytes()) {
        Ok(text) => Ok(json::compact(text)),
        Err(why) => Err(wrong(format!("it is not one JSON text: {why}"))),
    }
}

fn asked(limits: &pb::Limits) -> AskedLimits {
    AskedLimits {
        fuel: limits.fuel,
        memory_pages: limits.max_pages,
        calls: limits.max_calls,
        response_bytes: limits.max_response_bytes,
        request_bytes: limits.max_request_bytes,
        blob_bytes: limits.max_blob_bytes,
    }
}

fn effect_key(key: pb::EffectKey) -> Result<EffectKey, Refusal> {
    Ok(EffectKey {
        run_id: name("effect.run_id", key.run_id)?,
        task_path: name("effect.task_path", key.task_path)?,
        node: name("effect.node", key.node)?,
        attempt: key.attempt,
        effect_seq: key.effect_seq,
    })
}

/// Names go into the log and into environments: bounded, and without control characters.
fn name(field: &'static str, text: String) -> Result<String, Refusal> {
    if text.len() > NAME_BYTES_MAX {
        return Err(Refusal::Field { field, text: format!("{} bytes, over {NAME_BYTES_MAX}", text.len()) });
    }
    if text.chars().any(char::is_control) {
        return Err(Refusal::Field { field, text: "it has control characters".to_owned() });
    }
    Ok(text)
}

fn hex_or_empty(field: &'static str, text: String) -> Result<String, Refusal> {
    let lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.is_empty() || (text.len() == 64 && text.bytes().all(lower_hex)) {
        return Ok(text);
    }
    Err(Refusal::Field { field, text: "write 64 lower-case hex digits".to_owned() })
}

/// The end by this machine's clock: `timeout` from now, else the caller's point in time.
fn ends_at(
    timeout: Option<prost_types::Duration>,
    at: Option<prost_types::Timestamp>,
) -> Result<Option<SystemTime>, Refusal> {
    let Some(timeout) = timeout else { return at.map(deadline).transpose() };
    let length = std::time::Duration::try_from(timeout)
        .map_err(|_| Refusal::Field { field: "timeout", text: "it is no length of time".to_owned() })?;
    // A length that the clock cannot count is none of this century: the service's own bound holds.
    Ok(SystemTime::now().checked_add(length))
}

fn deadline(at: prost_types::Timestamp) -> Result<SystemTime, Refusal> {
    SystemTime::try_from(at)
        .map_err(|_| Refusal::Field { field: "deadline", text: "it is no point in time".to_owned() })
}

fn egress(egress: pb::Egress) -> Result<Egress, Refusal> {
    if egress.token.is_empty() || egress.token.len() > TOKEN_BYTES_MAX || egress.token.chars().any(char::is_control) {
        let text = format!("it has 1 to {TOKEN_BYTES_MAX} bytes and no control characters");
        return Err(Refusal::Field { field: "egress.token", text });
    }
    Ok(Egress {
        token: Token::new(egress.token),
        url: name("egress.url", egress.url)?,
        broker_url: name("egress.broker_url", egress.broker_url)?,
    })
}

fn recorded(number: usize, exchange: pb::Exchange) -> Result<Exchange, Refusal> {
    let wrong = |text: &str| Refusal::Field { field: "recorded", text: format!("exchange {number}: {text}") };
    if exchange.ordinal as usize != number {
        return Err(wrong("its ordinal is out of order: they go from 0, one by one"));
    }
    let request_digest =
        exchange.request_digest.parse().map_err(|_| wrong("its request digest is not 64 hex digits"))?;
    Ok(Exchange { ordinal: exchange.ordinal, request_digest, reply: exchange.reply_json.to_vec(), record: None })
}
