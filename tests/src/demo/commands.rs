//! The grpcurl lines that repeat what the demo just did.

use content_digest::Digest;
use serde_json::Value;

use super::cast::Person;

/// A call of a service that knows its callers by token.
pub fn as_person(person: &Person, address: &str, method: &str, request: &Value) -> String {
    format!("grpcurl -plaintext -H 'authorization: Bearer {}' -d '{request}' {address} {method}", person.token)
}

/// A call of a service that this host may ask without a token.
pub fn local(address: &str, method: &str, request: &Value) -> String {
    format!("grpcurl -plaintext -d '{request}' {address} {method}")
}

/// The address of a node's first ask: it follows from the names, so that it is known before the run is started.
pub fn ask_id(run_id: &str, node: &str) -> String {
    let (attempt, effect_seq) = (1_u32.to_be_bytes(), 0_u32.to_be_bytes());
    let parts: [&[u8]; 7] = [b"areev-run:v1", run_id.as_bytes(), b"", node.as_bytes(), &attempt, &effect_seq, b"ask"];
    Digest::of(parts.join(&0x1f)).to_hex()
}
