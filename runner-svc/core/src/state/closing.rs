//! What closing the open superstep would do: merged state, fired edges. Decided once, applied once, by the same function.

use super::State;
use crate::{
    document::{STATE_BYTES_MAX, Slots},
    payload::Payload,
};

/// The close of a superstep, not yet applied.
pub(crate) struct Closing {
    pub(crate) changed: Slots,
    pub(crate) text: Payload,
    /// Edges in the order of their evaluation.
    pub(crate) fired: Vec<u32>,
}

/// The merged state would be over its cap.
pub(crate) struct TooLarge {
    /// The node whose result was merged last.
    pub(crate) node: usize,
}

impl State {
    /// Merges the results in the order of their tasks, then evaluates the out-edges of their nodes in declaration order.
    pub(crate) fn closing(&self) -> Result<Closing, TooLarge> {
        let mut overlay = self.document.overlay();
        for (task, result) in &self.results {
            let merged = overlay.merge(&self.plan, &self.plan.nodes()[task.node], result);
            // Results are read as JSON before they are recorded; the journal's hash chain keeps them so.
            debug_assert!(merged.is_ok(), "a recorded result is JSON");
        }
        let last = self.results.last_key_value().map_or(0, |(task, _)| task.node);
        let text = overlay.text(STATE_BYTES_MAX).ok_or(TooLarge { node: last })?;
        let mut fired = Vec::new();
        for task in self.results.keys() {
            for edge in self.plan.graph().out(task.node) {
                let holds = self
                    .plan
                    .condition_of(*edge)
                    .is_none_or(|condition| condition.holds(overlay.value(condition.key())));
                if holds && !self.schedule.is_spent(&self.plan, *edge) {
                    fired.push(u32::try_from(*edge).unwrap_or(u32::MAX));
                }
            }
        }
        Ok(Closing { changed: overlay.into_changed(), text, fired })
    }
}
