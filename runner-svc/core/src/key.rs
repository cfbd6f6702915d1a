//! The names of an effect: its journal key, its `tool_call_id`, its idempotency key.

use std::fmt;

use content_digest::{Digest, Hasher};
use serde::{Deserialize, Serialize};

/// Separates the parts of what is hashed.
const SEPARATOR: [u8; 1] = [0x1f];
/// Domain of `tool_call_id`, so that no other hash can be mistaken for one.
const TOOL_CALL_DOMAIN: &str = "areev-run:v1";

/// What kind of call to the world an effect is. Append-only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectKind {
    /// A host tool or code.
    Tool,
    /// A model call.
    Llm,
    /// A child run.
    Subgraph,
    /// A question to a person.
    Ask,
}

impl EffectKind {
    /// The word that keys and the API use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Llm => "llm",
            Self::Subgraph => "subgraph",
            Self::Ask => "ask",
        }
    }
}

/// Names one effect within its run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EffectKey {
    /// Path of the fan-out task; empty for a static node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub task_path: String,
    /// The node.
    pub node: String,
    /// The attempt, from 1; never restarts, also not in a later generation.
    pub attempt: u32,
    /// The effect's number within the attempt, from 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub effect_seq: u32,
    /// Its kind.
    pub kind: EffectKind,
}

impl EffectKey {
    /// The only effect of a static node's attempt.
    pub fn of_node(node: &str, attempt: u32, kind: EffectKind) -> Self {
        Self { task_path: String::new(), node: node.to_owned(), attempt, effect_seq: 0, kind }
    }

    /// SHA-256 of `areev-run:v1` and, each after byte 0x1f: run id, task path, node, attempt (u32 big-endian), effect number
    /// (u32 big-endian), kind. Its 64 hex digits address an ask.
    pub fn tool_call_id(&self, run_id: &str) -> Digest {
        let mut hasher = Hasher::new();
        hasher.update(TOOL_CALL_DOMAIN);
        let parts: [&[u8]; 6] = [
            run_id.as_bytes(),
            self.task_path.as_bytes(),
            self.node.as_bytes(),
            &self.attempt.to_be_bytes(),
            &self.effect_seq.to_be_bytes(),
            self.kind.as_str().as_bytes(),
        ];
        for part in parts {
            hasher.update(SEPARATOR);
            hasher.update(part);
        }
        hasher.finish()
    }

    /// SHA-256 of run id, task path, node, attempt (decimal), effect number (decimal) and the input's JSON text, byte 0x1f
    /// between them. The same over every redelivery of the attempt.
    pub fn idempotency_key(&self, run_id: &str, input_json: &str) -> Digest {
        let mut hasher = Hasher::new();
        for part in [run_id, &self.task_path, &self.node, &self.attempt.to_string(), &self.effect_seq.to_string()] {
            hasher.update(part);
            hasher.update(SEPARATOR);
        }
        hasher.update(input_json);
        hasher.finish()
    }
}

/// For logs and error texts: `work attempt 2`.
impl fmt::Display for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.task_path.is_empty() {
            write!(f, "{} ", self.task_path)?;
        }
        write!(f, "{} {} attempt {}", self.kind.as_str(), crate::text::shown(&self.node), self.attempt)?;
        if self.effect_seq > 0 {
            write!(f, " effect {}", self.effect_seq)?;
        }
        Ok(())
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}
