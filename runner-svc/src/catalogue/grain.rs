//! Grains: immutable, content-addressed records. A 9-byte header and one canonical MessagePack map, addressed by the SHA-256 of both.

pub mod author;
mod draft;
mod execution;
mod header;
mod item;
mod kind;
mod names;
mod read;
mod strict;
mod typed;
mod wire;

use std::fmt;

use content_digest::Digest;

pub use draft::Draft;
pub use execution::{Execution, ExecutionStatus};
pub use item::Item;
pub use kind::GrainType;
pub use typed::{ContentRef, EmbeddingRef, InvalidationPolicy, Relation};

/// Smallest grain, in bytes: a header and an empty map.
pub const GRAIN_BYTES_MIN: usize = 10;
/// Largest grain, in bytes, header included.
pub const GRAIN_BYTES_MAX: usize = 16 << 20;
/// Where readers file a grain that names no namespace.
pub const DEFAULT_NAMESPACE: &str = "shared";

/// A grain whose bytes were checked strictly, or made here.
#[derive(Clone, PartialEq)]
pub struct Grain {
    kind: GrainType,
    hash: Digest,
    bytes: Vec<u8>,
    payload: Vec<(String, Item)>,
}

/// Bytes or a document that break the grain format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadGrain {
    /// The field, as the author spells it; empty when it is no single field's.
    pub field: String,
    /// The rule that was broken, and what to write.
    pub rule: String,
}

impl Grain {
    /// Reads bytes strictly: canonical MessagePack, NFC, a header that agrees with the payload, fields of the right types.
    /// Accepts exactly the bytes that an encoder of this format writes, so equal meaning has one address.
    pub fn decode(bytes: Vec<u8>) -> Result<Self, BadGrain> {
        let (kind, payload) = strict::read(&bytes)?;
        Ok(Self { kind, hash: Digest::of(&bytes), bytes, payload })
    }

    /// What it is.
    pub fn kind(&self) -> GrainType {
        self.kind
    }

    /// Its address.
    pub fn hash(&self) -> Digest {
        self.hash
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its namespace, or the one that readers file it under.
    pub fn namespace(&self) -> &str {
        self.text("namespace").unwrap_or(DEFAULT_NAMESPACE)
    }

    /// When it was authored, in milliseconds since 1970.
    pub fn created_at_ms(&self) -> i64 {
        match self.get("created_at") {
            Some(Item::Unsigned(ms)) => i64::try_from(*ms).unwrap_or(i64::MAX),
            Some(Item::Negative(ms)) => *ms,
            _ => 0,
        }
    }

    /// Whether it is a definition: a Tool grain of kind `definition`.
    pub fn is_definition(&self) -> bool {
        self.kind == GrainType::Tool && self.text("kind") == Some("definition")
    }

    /// Whether it is a plan: a Workflow grain.
    pub fn is_plan(&self) -> bool {
        self.kind == GrainType::Workflow
    }

    /// A text field by its long name.
    pub fn text(&self, long: &str) -> Option<&str> {
        if let Some(Item::Text(text)) = self.get(long) { Some(text) } else { None }
    }

    /// A field by its long name: a typed one, or one that the author added.
    pub fn get(&self, long: &str) -> Option<&Item> {
        let named = |key: &str| self.payload.binary_search_by(|(name, _)| name.as_str().cmp(key)).ok();
        let at = named(names::compact(long)).or_else(|| named(long))?;
        Some(&self.payload[at].1)
    }

    /// Its fields by their long names.
    pub fn fields(&self) -> serde_json::Map<String, serde_json::Value> {
        read::Fields(&self.payload).to_members()
    }

    /// Its fields by their long names, as one JSON text; `None` when that is longer than `bytes_max`.
    pub fn fields_json(&self, bytes_max: usize) -> Option<String> {
        read::Fields(&self.payload).to_text(bytes_max)
    }

    /// The bytes of the payload, encoded anew. Equal to what was read, because only canonical bytes are accepted.
    pub fn encode_again(&self) -> Result<Vec<u8>, BadGrain> {
        let mut bytes = self.bytes[..header::HEADER_BYTES].to_vec();
        wire::encode_map(&self.payload, 0, &mut bytes)?;
        Ok(bytes)
    }
}

impl fmt::Debug for Grain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Grain({} {}, {} bytes)", self.kind.name(), self.hash, self.bytes.len())
    }
}

impl BadGrain {
    pub(crate) fn new(field: impl Into<String>, rule: impl Into<String>) -> Self {
        Self { field: shown(field.into()), rule: rule.into() }
    }

    pub(crate) fn whole(rule: impl Into<String>) -> Self {
        Self::new("", rule)
    }
}

impl fmt::Display for BadGrain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() { f.write_str(&self.rule) } else { write!(f, "{:?}: {}", self.field, self.rule) }
    }
}

impl std::error::Error for BadGrain {}

/// A text that came from outside, cut to 128 bytes for an error.
pub(crate) fn shown(mut text: String) -> String {
    if text.len() > 128 {
        let mut end = 128;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}
