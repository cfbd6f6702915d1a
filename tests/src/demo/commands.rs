//! The grpcurl lines that repeat what the demo just did.

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
