//! The nine bytes before the payload: version, flags, type, a piece of the namespace's hash, seconds.

use content_digest::Digest;

use super::{GrainType, Item};

/// Length of the header, in bytes.
pub const HEADER_BYTES: usize = 9;
/// The only version there is.
pub const VERSION: u8 = 1;

const HAS_CONTENT_REFS: u8 = 0x08;
const HAS_EMBEDDING_REFS: u8 = 0x10;
const MADE_BY_A_MODEL: u8 = 0x20;
const SENSITIVITY_SHIFT: u8 = 6;

/// The header. `namespace` is the spelling that was supplied, before normalisation.
pub fn build(kind: GrainType, flags: u8, namespace: Option<&str>, created_at_ms: i64) -> [u8; HEADER_BYTES] {
    let [n0, n1] = namespace_hash(namespace);
    let [s0, s1, s2, s3] = seconds(created_at_ms).to_be_bytes();
    [VERSION, flags, kind.byte(), n0, n1, s0, s1, s2, s3]
}

/// The first two bytes of the namespace's SHA-256; zeros for an absent or empty one.
pub fn namespace_hash(namespace: Option<&str>) -> [u8; 2] {
    match namespace {
        None | Some("") => [0, 0],
        Some(namespace) => {
            let hash = Digest::of(namespace);
            [hash.as_bytes()[0], hash.as_bytes()[1]]
        }
    }
}

/// Whole seconds, held within 32 bits.
pub fn seconds(created_at_ms: i64) -> u32 {
    u32::try_from((created_at_ms / 1000).max(0)).unwrap_or(u32::MAX)
}

/// The flags that a payload's typed fields imply; `field` looks one up by its short name.
pub fn flags<'a>(field: impl Fn(&str) -> Option<&'a Item>) -> u8 {
    let mut flags = 0;
    if field("cr").is_some() {
        flags |= HAS_CONTENT_REFS;
    }
    if field("er").is_some() {
        flags |= HAS_EMBEDDING_REFS;
    }
    if let Some(Item::Text(source)) = field("st")
        && matches!(source.as_str(), "llm_generated" | "consolidated" | "inferred" | "a2a_recalled")
    {
        flags |= MADE_BY_A_MODEL;
    }
    if let Some(Item::List(tags)) = field("tags") {
        flags |= tags.iter().map(sensitivity).max().unwrap_or(0) << SENSITIVITY_SHIFT;
    }
    flags
}

fn sensitivity(tag: &Item) -> u8 {
    let Item::Text(tag) = tag else { return 0 };
    match tag.split_once(':') {
        Some(("phi", _)) => 3,
        Some(("pii" | "sec" | "legal", _)) => 2,
        Some(("reg", _)) => 1,
        _ => 0,
    }
}
