//! What one token stands for.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::SystemTime,
};

use content_digest::{Digest, Hasher};
use tokio_util::sync::CancellationToken;

use super::{Bound, Spender};
use crate::{
    capability::Declaration,
    decide::Right,
    refusal::{Refusal, Why},
};

/// The effect that a token is bound to, and whose it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Binding {
    /// The run.
    pub run_id: String,
    /// The run's namespace.
    pub namespace: String,
    /// Path of the fan-out task, empty for a static node.
    pub task_path: String,
    /// The node.
    pub node: String,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The effect's number within the attempt, from 0.
    pub effect_seq: u32,
    /// The tool.
    pub tool_name: String,
    /// Address of its definition, 64 lower-case hex digits.
    pub definition_hash: String,
    /// The principal that started the run.
    pub principal: String,
    /// Whose effect it is, as its sandbox is told it.
    pub tenant: String,
}

/// Names one effect.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EffectKey {
    /// The run: first, so that a run's effects stand together.
    pub run_id: String,
    /// Path of the fan-out task.
    pub task_path: String,
    /// The node.
    pub node: String,
    /// The attempt.
    pub attempt: u32,
    /// The effect's number.
    pub effect_seq: u32,
}

/// Bounds for one effect's calls. Zero is a ceiling of zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ceilings {
    /// Calls.
    pub max_calls: u64,
    /// Bytes of one request body.
    pub max_request_bytes: u64,
    /// Bytes of one answer's body.
    pub max_response_bytes: u64,
}

impl Ceilings {
    /// The most that anyone can be given.
    pub const MAX: Self =
        Self { max_calls: 10_000, max_request_bytes: 32 * 1024 * 1024, max_response_bytes: 32 * 1024 * 1024 };
}

impl Default for Ceilings {
    fn default() -> Self {
        Self { max_calls: 64, max_request_bytes: 1024 * 1024, max_response_bytes: 1024 * 1024 }
    }
}

/// One effect's right to call out, as it was frozen when the token was minted.
#[derive(Debug)]
pub struct Permit {
    /// The effect.
    pub binding: Arc<Binding>,
    /// What its definition declares.
    pub declaration: Option<Declaration>,
    /// Bounds.
    pub ceilings: Ceilings,
    /// Name of the effect that stays the same when it is sent again; empty where the runner gave none.
    pub idempotency_key: String,
    /// The stream that takes the records of calls through the HTTP door; empty for none.
    pub watcher: String,
    /// Who spends it.
    pub spender: Spender,
    /// The certificate that it serves.
    pub bound: Bound,
    /// When it ends at the latest.
    pub deadline: SystemTime,
    /// Cancelled when it is revoked: calls in flight end.
    pub ended: CancellationToken,
    calls: AtomicU64,
    ordinals: AtomicU32,
    named: AtomicU32,
}

impl Permit {
    /// A permit with nothing spent.
    pub fn new(binding: Binding, declaration: Option<Declaration>, ceilings: Ceilings, deadline: SystemTime) -> Self {
        let (calls, ordinals, named) = (AtomicU64::new(0), AtomicU32::new(0), AtomicU32::new(0));
        Self {
            binding: Arc::new(binding),
            declaration,
            ceilings,
            idempotency_key: String::new(),
            watcher: String::new(),
            spender: Spender::default(),
            bound: Bound::default(),
            deadline,
            ended: CancellationToken::new(),
            calls,
            ordinals,
            named,
        }
    }

    /// The same with the effect's idempotency key.
    pub fn with_key(self, idempotency_key: String) -> Self {
        Self { idempotency_key, ..self }
    }

    /// The same with the stream that takes its records.
    pub fn watched_by(self, watcher: String) -> Self {
        Self { watcher, ..self }
    }

    /// The same for one spender.
    pub fn spent_by(self, spender: Spender) -> Self {
        Self { spender, ..self }
    }

    /// Whose call the decision is about.
    pub fn right(&self) -> Right<'_> {
        Right {
            tool: &self.binding.tool_name,
            definition: &self.binding.definition_hash,
            principal: &self.binding.principal,
            declaration: self.declaration.as_ref(),
            own: None,
        }
    }

    /// Takes one call from the budget; it goes back unless it is kept.
    pub fn spend(&self) -> Result<Spend<'_>, Refusal> {
        let max = self.ceilings.max_calls;
        let one_more = |spent| (spent < max).then_some(spent + 1);
        match self.calls.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more) {
            Ok(_) => Ok(Spend { calls: &self.calls, kept: false }),
            Err(_) => {
                let text = format!("all {max} calls of this effect are made: ask for a higher call ceiling");
                Err(Refusal::new(Why::CallsExhausted, text))
            }
        }
    }

    /// The number of the next call, for a door whose callers do not count.
    pub fn next_ordinal(&self) -> u32 {
        self.ordinals.fetch_add(1, Ordering::SeqCst)
    }

    /// The number of the next call that is sent with an idempotency key, for a door whose callers do not count. Refused calls
    /// have none: when the effect is sent again, there may be fewer or more of them.
    pub fn next_named(&self) -> u32 {
        self.named.fetch_add(1, Ordering::SeqCst)
    }

    /// The call of this number was not sent after all. Where another has the next number already, this one stays taken.
    pub fn not_named(&self, number: u32) {
        let _taken = self.named.compare_exchange(number.wrapping_add(1), number, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// One call taken from the budget.
pub struct Spend<'a> {
    calls: &'a AtomicU64,
    kept: bool,
}

impl Spend<'_> {
    /// The call is being made.
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Spend<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.calls.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Binding {
    /// The effect's name.
    pub fn effect(&self) -> EffectKey {
        EffectKey {
            run_id: self.run_id.clone(),
            task_path: self.task_path.clone(),
            node: self.node.clone(),
            attempt: self.attempt,
            effect_seq: self.effect_seq,
        }
    }

    /// SHA-256 over every part, each behind its length.
    pub fn digest(&self) -> Digest {
        let mut hasher = Hasher::new();
        let texts = [&self.run_id, &self.namespace, &self.task_path, &self.node];
        for text in texts.into_iter().chain([&self.tool_name, &self.definition_hash, &self.principal, &self.tenant]) {
            hasher.update((text.len() as u64).to_be_bytes());
            hasher.update(text);
        }
        hasher.update(self.attempt.to_be_bytes());
        hasher.update(self.effect_seq.to_be_bytes());
        hasher.finish()
    }
}
