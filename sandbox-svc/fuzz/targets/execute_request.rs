//! Any message through the reading of `Execute`'s requests: an effect within its bounds or a refusal that names a field.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use prost::Message as _;
use proto::sandbox::v1::{ExecuteRequest, execute_request::Message};
use sandbox_svc::{api::wire, limits::Limits, sandbox::Bounds};

const BOUNDS: Bounds = Bounds {
    limits_default: Limits::DEFAULT,
    limits_max: Limits::MAX,
    wall_clock_max: Duration::from_secs(300),
    module_bytes_max: 1 << 20,
    input_bytes_max: 4096,
    output_bytes_max: 4096,
};

fuzz_target!(|bytes: &[u8]| {
    let Ok(request) = ExecuteRequest::decode(bytes) else { return };
    match request.message {
        Some(Message::Start(start)) => match wire::effect(start, &BOUNDS) {
            Ok(effect) => {
                assert!(effect.input.len() <= BOUNDS.input_bytes_max);
                assert!(!effect.input.contains('\n'), "an input is compact");
                assert!(effect.recorded.len() as u64 <= Limits::MAX.calls);
            }
            Err(refusal) => assert!(!refusal.to_string().is_empty()),
        },
        Some(Message::Artifact(_)) => {}
        Some(Message::Blob(part)) => drop(wire::blob_part(part)),
        Some(Message::Ack(_) | Message::Cancel(_)) | None => {}
    }
});
