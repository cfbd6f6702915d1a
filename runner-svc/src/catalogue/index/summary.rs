//! What the index says of a grain, so that a list need not read its files.

use content_digest::Digest;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::catalogue::grain::{Grain, Item};

/// Largest value, in bytes: the store writes larger ones less safely.
const VALUE_BYTES_MAX: usize = 4096;
/// Longest text of a summary, in bytes, before it is cut.
const TEXT_BYTES_MAX: usize = 1024;

/// A definition in short. Long texts are cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefinitionSummary {
    /// Its address.
    #[serde(skip, default = "unset")]
    pub hash: Digest,
    /// The tool's name.
    pub tool_name: String,
    /// What it says of itself; empty if nothing.
    pub tool_description: String,
    /// `host` or `client`.
    pub executor_kind: String,
    /// Address of its code; empty without code.
    pub executor_uri: String,
    /// Its runtime; empty if it names none.
    pub runtime: String,
    /// When it was authored, in milliseconds since 1970.
    pub created_at_ms: i64,
}

/// A plan in short. Long texts are cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanSummary {
    /// Its address.
    #[serde(skip, default = "unset")]
    pub hash: Digest,
    /// Its name; empty if it has none.
    pub name: String,
    /// Number of nodes.
    pub nodes: u32,
    /// Number of edges.
    pub edges: u32,
    /// When it was authored, in milliseconds since 1970.
    pub created_at_ms: i64,
}

impl DefinitionSummary {
    fn of(grain: &Grain, bytes_max: usize) -> Self {
        let text = |name: &str| cut(grain.text(name).unwrap_or_default(), bytes_max);
        let executor_kind = grain.text("executor_kind").filter(|kind| *kind == "client").unwrap_or("host").to_owned();
        Self {
            hash: grain.hash(),
            tool_name: text("tool_name"),
            tool_description: text("tool_description"),
            executor_kind,
            executor_uri: text("executor_uri"),
            runtime: text("runtime"),
            created_at_ms: grain.created_at_ms(),
        }
    }

    /// Reads an entry.
    pub fn read(hash: Digest, value: &[u8]) -> Option<Self> {
        Some(Self { hash, ..read(value)? })
    }
}

impl PlanSummary {
    fn of(grain: &Grain, bytes_max: usize) -> Self {
        Self {
            hash: grain.hash(),
            name: cut(grain.text("name").unwrap_or_default(), bytes_max),
            nodes: count(grain.get("nodes")),
            edges: count(grain.get("edges")),
            created_at_ms: grain.created_at_ms(),
        }
    }

    /// Reads an entry.
    pub fn read(hash: Digest, value: &[u8]) -> Option<Self> {
        Some(Self { hash, ..read(value)? })
    }
}

/// The entry of a definition or a plan, texts cut until it fits.
pub fn write(grain: &Grain) -> Vec<u8> {
    let mut bytes_max = TEXT_BYTES_MAX;
    loop {
        let value = if grain.is_plan() {
            serde_json::to_vec(&PlanSummary::of(grain, bytes_max))
        } else {
            serde_json::to_vec(&DefinitionSummary::of(grain, bytes_max))
        };
        let value = value.expect("texts and numbers always serialize");
        if value.len() <= VALUE_BYTES_MAX || bytes_max == 0 {
            return value;
        }
        bytes_max /= 2;
    }
}

fn read<T: DeserializeOwned>(value: &[u8]) -> Option<T> {
    serde_json::from_slice(value).inspect_err(|cause| tracing::error!(%cause, "an index entry is damaged")).ok()
}

fn count(item: Option<&Item>) -> u32 {
    let Some(Item::List(items)) = item else { return 0 };
    u32::try_from(items.len()).unwrap_or(u32::MAX)
}

fn cut(text: &str, bytes_max: usize) -> String {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

fn unset() -> Digest {
    Digest::ZERO
}
