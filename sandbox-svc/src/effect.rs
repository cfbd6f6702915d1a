//! One effect as the sandbox knows it: its code, its input, its bounds, and nothing of the plan around it.

use std::{
    collections::VecDeque,
    time::{Duration, Instant, SystemTime},
};

use content_digest::Digest;

use crate::{exchange::Exchange, limits::AskedLimits, outbound::Token, runtime::Runtime};

/// One effect to execute.
pub struct Effect {
    /// The code.
    pub digest: Digest,
    /// How to execute it.
    pub runtime: Runtime,
    /// One compact JSON text.
    pub input: String,
    /// The bounds asked for.
    pub limits: AskedLimits,
    /// Whose calls take their turn together; empty for nobody's in particular.
    pub tenant: String,
    /// The tool's name.
    pub tool_name: String,
    /// Address of the definition.
    pub definition_hash: String,
    /// Stable over redeliveries of the attempt.
    pub idempotency_key: String,
    /// Which effect it is.
    pub key: EffectKey,
    /// The effect's end, if it has one.
    pub deadline: Option<SystemTime>,
    /// The right to make outbound calls.
    pub egress: Option<Egress>,
    /// Whether the definition declares to read blobs.
    pub blob_read: bool,
    /// Exchanges of an earlier delivery, in order.
    pub recorded: VecDeque<Exchange>,
}

/// What the broker is told of the effect that a call is made for.
#[derive(Debug, Clone, Default)]
pub struct Whose {
    /// Which effect.
    pub key: EffectKey,
    /// The tool's name.
    pub tool_name: String,
    /// Address of the definition.
    pub definition_hash: String,
    /// Whose effect it is.
    pub tenant: String,
}

impl Effect {
    /// What the broker is told of it.
    pub fn whose(&self) -> Whose {
        Whose {
            key: self.key.clone(),
            tool_name: self.tool_name.clone(),
            definition_hash: self.definition_hash.clone(),
            tenant: self.tenant.clone(),
        }
    }
}

/// Names one effect, for the log and for records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EffectKey {
    /// The run.
    pub run_id: String,
    /// Path of the fan-out task, empty for a static node.
    pub task_path: String,
    /// The node.
    pub node: String,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The effect's number within the attempt.
    pub effect_seq: u32,
}

/// The right to make outbound calls, for this effect only.
#[derive(Clone)]
pub struct Egress {
    /// The token.
    pub token: Token,
    /// The HTTP door, for child processes.
    pub url: String,
    /// The one of several brokers that minted the token; empty for the only one.
    pub broker_url: String,
}

impl Effect {
    /// When the effect is stopped: at its deadline, and never later than `wall_clock_max` from `now`.
    pub fn ends_at(&self, now: Instant, wall_clock_max: Duration) -> Instant {
        let left = self.deadline.map(|deadline| deadline.duration_since(SystemTime::now()).unwrap_or_default());
        now + left.map_or(wall_clock_max, |left| left.min(wall_clock_max))
    }
}
