//! Where a forked run comes from: the run and the event behind which it goes on, and how far that run's plan was by then.

use content_digest::Digest;
use serde::{Deserialize, Serialize};

use crate::{run_id::RunId, state::Checkpoint};

/// The origin of a fork.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lineage {
    /// The run that was forked.
    pub run_id: RunId,
    /// Supersteps that it had opened by then.
    pub superstep: u64,
    /// Sequence number of its last event that counts for the fork.
    pub sequence: u64,
    /// SHA-256 of that event.
    pub head: Digest,
    /// Everybody who started that run, the runs that it was forked from itself, or one of them on whose behalf: none of them
    /// can answer the fork's asks.
    pub started_by: Vec<String>,
    /// How far the plan was; none when the fork has another plan, which begins anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
}
