//! What the world saw of a run while one process drove it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use e2e::shell_tool::Call;
use proto::runner::v1::JournalEntry;

use super::name::Name;

/// One life of the runner.
#[derive(Debug)]
pub struct Life {
    /// Whether the run got to its end in it.
    pub completed: bool,
    /// When it ended.
    pub ended_at: SystemTime,
    /// Calls that reached the tool.
    pub calls: Vec<Call>,
    /// Nodes whose code reached the sandbox.
    pub executed: BTreeSet<&'static str>,
    /// Requests that reached the upstream, by path.
    pub upstream: BTreeMap<String, usize>,
    /// Questions that reached the model, by their effects' numbers.
    pub asked: BTreeMap<u32, usize>,
}

impl Life {
    /// Effects that were sent, as the journal names them.
    pub fn sent(&self, entries: &[JournalEntry]) -> BTreeSet<Name> {
        let by_key = |call: &Call| {
            let entry = entries.iter().find(|entry| entry.idempotency_key == call.key);
            Name::of(entry.unwrap_or_else(|| panic!("the journal has no effect of {call:?}")))
        };
        let executed = self.executed.iter().map(|node| Name::first(node));
        let asked = self.asked.keys().map(|question| Name::question(*question));
        self.calls.iter().map(by_key).chain(executed).chain(asked).collect()
    }

    /// How often a question reached the model.
    pub fn questions(&self, question: u32) -> usize {
        self.asked.get(&question).copied().unwrap_or_default()
    }

    /// Requests for a path.
    pub fn requests(&self, path: &str) -> usize {
        self.upstream.get(path).copied().unwrap_or_default()
    }
}
