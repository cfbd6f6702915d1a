//! The code of an effect: what was frozen of it, and where its bytes come from.

use std::sync::Arc;

use content_digest::Digest;
use runner_core::{
    capability,
    pinned::{Executor, Runtime, RuntimeLimits},
};
use serde_json::Value;

use super::effect::Effect;

/// Where code is read from when an executor does not have it.
pub trait CodeSource: Send + Sync {
    /// Reads all bytes of a blob. Blocking; the dispatcher hashes what it gets.
    ///
    /// # Errors
    /// The blob is not stored or cannot be read.
    fn read(&self, digest: &Digest) -> Result<Vec<u8>, CodeUnreadable>;

    /// Size of a blob in bytes; none when it is not stored. Blocking.
    ///
    /// # Errors
    /// The store cannot be asked.
    fn size(&self, digest: &Digest) -> Result<Option<u64>, CodeUnreadable>;
}

/// Why code cannot be read, for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CodeUnreadable(pub String);

/// One source for every call of a dispatcher.
pub type SharedCode = Arc<dyn CodeSource>;

/// The code of an effect, as its definition was frozen.
#[derive(Clone, Copy)]
pub(super) struct CodeRef<'a> {
    /// Address of its bytes.
    pub digest: &'a Digest,
    /// How to execute it.
    pub runtime: Runtime,
    /// Limits that the definition names, narrowed by what the run's budget has left.
    pub limits: RuntimeLimits,
    /// Declared capabilities.
    pub capabilities: Option<&'a Value>,
}

/// What a sandbox allows when a definition names no limit: only a smaller rest of a budget is worth naming.
const FUEL_DEFAULT: u64 = 200_000_000;
const CALLS_DEFAULT: u64 = 64;

impl<'a> CodeRef<'a> {
    /// The code behind an effect; none when a host tool executes it.
    pub(super) fn of(effect: &'a Effect) -> Option<Self> {
        match &effect.tool.executor {
            Executor::Code { digest, runtime, limits, capabilities } => Some(Self {
                digest,
                runtime: *runtime,
                limits: narrowed(limits.unwrap_or_default(), effect),
                capabilities: capabilities.as_ref(),
            }),
            Executor::HostTool | Executor::Person | Executor::ChildRun | Executor::Model { .. } => None,
        }
    }
}

impl CodeRef<'_> {
    /// Whether the definition declares that the code reads blobs.
    pub(super) fn reads_blobs(&self) -> bool {
        self.runtime == Runtime::WasmIo && self.capabilities.is_some_and(capability::reads_blobs)
    }

    /// Whether it declares nothing else.
    pub(super) fn reads_blobs_alone(&self) -> bool {
        self.reads_blobs() && !self.capabilities.is_some_and(capability::calls_out)
    }
}

/// Reads code and makes sure that it is what was named. Blocking.
pub(super) fn read_verified(source: &SharedCode, digest: &Digest) -> Result<Vec<u8>, CodeUnreadable> {
    let bytes = source.read(digest)?;
    let found = Digest::of(&bytes);
    if found == *digest {
        return Ok(bytes);
    }
    let (named, found) = (digest.to_uri(), found.to_hex());
    Err(CodeUnreadable(format!("the stored bytes of {named} hash to {found}: they are damaged and were not used")))
}

/// A call may not use more than its run has left. A guest that is answered from recorded exchanges makes those calls again,
/// and the run has paid for them already.
fn narrowed(limits: RuntimeLimits, effect: &Effect) -> RuntimeLimits {
    let calls_left = effect.egress_calls_left.map(|left| left.saturating_add(effect.recorded.len() as u64));
    RuntimeLimits {
        fuel: least(limits.fuel, effect.fuel_left, FUEL_DEFAULT),
        max_calls: least(limits.max_calls, calls_left, CALLS_DEFAULT),
        ..limits
    }
}

fn least(named: Option<u64>, left: Option<u64>, default: u64) -> Option<u64> {
    match (named, left) {
        (Some(named), Some(left)) => Some(named.min(left)),
        (None, Some(left)) if left < default => Some(left),
        (named, _) => named,
    }
}

#[cfg(test)]
mod tests {
    use super::least;

    #[test]
    fn a_budget_narrows_a_limit_and_never_widens_it() {
        assert_eq!(least(Some(5), Some(3), 10), Some(3));
        assert_eq!(least(Some(5), Some(7), 10), Some(5));
        assert_eq!(least(Some(5), None, 10), Some(5));
        assert_eq!(least(None, Some(7), 10), Some(7));
        assert_eq!(least(None, Some(11), 10), None, "more than the default would widen it");
        assert_eq!(least(None, Some(0), 10), Some(0));
    }
}
