//! Keys of the index: a kind byte, the namespace's hash, a name, the time backwards, the address backwards.

use content_digest::Digest;

use crate::catalogue::grain::Grain;

const DEFINITION: u8 = b'd';
const PLAN: u8 = b'p';
/// Longest tool name that is indexed, in bytes. A longer one can name no node, so nobody looks for it.
const NAME_BYTES_MAX: usize = 256;
/// Ends a name, so that no name's entries begin with another's.
const END_OF_NAME: u8 = 0;

/// The one key of a definition or a plan.
pub struct Key(Vec<u8>);

impl Key {
    /// A grain's key; `None` for one that is not found by anything but its address.
    pub fn of(grain: &Grain) -> Option<Self> {
        let mut key = if grain.is_definition() {
            definitions_named(grain.namespace(), grain.text("tool_name")?)?
        } else if grain.is_plan() {
            plans(grain.namespace())
        } else {
            return None;
        };
        // Later times and greater addresses come first.
        let since_ever = grain.created_at_ms().cast_unsigned() ^ (1 << 63);
        key.extend((!since_ever).to_be_bytes());
        key.extend(grain.hash().as_bytes().map(|byte| !byte));
        Some(Self(key))
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// What the keys of a namespace's definitions begin with.
pub fn definitions(namespace: &str) -> Vec<u8> {
    in_namespace(DEFINITION, namespace)
}

/// What the keys of one name's definitions begin with; `None` for a name that is not indexed.
pub fn definitions_named(namespace: &str, tool_name: &str) -> Option<Vec<u8>> {
    if tool_name.len() > NAME_BYTES_MAX || tool_name.bytes().any(|byte| byte == END_OF_NAME) {
        return None;
    }
    let mut key = definitions(namespace);
    key.extend(tool_name.bytes());
    key.push(END_OF_NAME);
    Some(key)
}

/// What the keys of a namespace's plans begin with.
pub fn plans(namespace: &str) -> Vec<u8> {
    in_namespace(PLAN, namespace)
}

/// The address at a key's end.
pub fn hash(key: &[u8]) -> Option<Digest> {
    let backwards: &[u8; 32] = key.last_chunk()?;
    Some(Digest::from_bytes(backwards.map(|byte| !byte)))
}

/// A namespace may have any length; its hash has one.
fn in_namespace(kind: u8, namespace: &str) -> Vec<u8> {
    let mut key = vec![kind];
    key.extend(Digest::of(namespace).as_bytes());
    key
}
