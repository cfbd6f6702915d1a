//! Grains with known bytes, as files.

use serde_json::{Map, Value};

/// Reads one of the vector files.
pub fn read(name: &str) -> Value {
    let path = format!("{}/tests/vectors/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The vectors of a file, under the name that the file gives the list.
pub fn list(name: &str, member: &str) -> Vec<Map<String, Value>> {
    let Value::Array(vectors) = read(name)[member].take() else { panic!("{name} has no list {member}") };
    vectors
        .into_iter()
        .map(|vector| if let Value::Object(vector) = vector { vector } else { panic!("{name} lists something else") })
        .collect()
}

/// A text member.
pub fn text<'a>(vector: &'a Map<String, Value>, member: &str) -> &'a str {
    vector[member].as_str().unwrap_or_else(|| panic!("{member} is no text"))
}

/// The vector's bytes.
pub fn bytes(vector: &Map<String, Value>) -> Vec<u8> {
    hex::decode(text(vector, "blob_hex")).unwrap()
}
