//! What closing the open superstep would do: merged state, complete nodes, fired edges. Decided once, applied once, by the same
//! function.

use super::State;
use crate::{
    document::{STATE_BYTES_MAX, Slots},
    fan_out::TASKS_PER_RUN_MAX,
    payload::Payload,
};

/// The close of a superstep, not yet applied.
pub(crate) struct Closing {
    pub(crate) changed: Slots,
    pub(crate) text: Payload,
    /// Nodes that are complete with it, by index: their out-edges were evaluated.
    pub(crate) completed: Vec<usize>,
    /// Edges in the order of their evaluation.
    pub(crate) fired: Vec<u32>,
}

/// Why the superstep cannot be closed: the run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overfull {
    /// The merged state would be over its cap.
    State {
        /// The node whose result was merged last.
        node: usize,
    },
    /// The run would have more fan-out tasks than it may have.
    Tasks {
        /// The first node whose tasks are too many.
        node: usize,
    },
}

impl State {
    /// Merges the results in the order of their tasks, then evaluates the out-edges of the nodes that are complete with them,
    /// in declaration order. A node is complete when it and all its fan-out tasks have settled, those that are asked for now
    /// among them.
    pub(crate) fn closing(&self) -> Result<Closing, Overfull> {
        self.room_for_tasks()?;
        let mut overlay = self.document.overlay();
        for (task, done) in &self.results {
            let merged = overlay.merge(&self.plan, &self.plan.nodes()[task.node], &done.output);
            // Results are read as JSON before they are recorded; the journal's hash chain keeps them so.
            debug_assert!(merged.is_ok(), "a recorded result is JSON");
        }
        overlay.settle();
        let last = self.results.last_key_value().map_or(0, |(task, _)| task.node);
        let text = overlay.text(STATE_BYTES_MAX).ok_or(Overfull::State { node: last })?;
        let made = self.results.values().flat_map(|done| &done.sends);
        let completed = self.schedule.completed(self.results.keys(), made);
        let mut fired = Vec::new();
        for node in &completed {
            for edge in self.plan.graph().out(*node) {
                let holds = self
                    .plan
                    .condition_of(*edge)
                    .is_none_or(|condition| condition.holds(overlay.value(condition.key())));
                if holds && !self.schedule.is_spent(&self.plan, *edge) {
                    fired.push(u32::try_from(*edge).unwrap_or(u32::MAX));
                }
            }
        }
        Ok(Closing { changed: overlay.into_changed(), text, completed, fired })
    }

    fn room_for_tasks(&self) -> Result<(), Overfull> {
        let mut made = self.schedule.parts().made();
        for (task, done) in &self.results {
            made += done.sends.len();
            if made > TASKS_PER_RUN_MAX {
                return Err(Overfull::Tasks { node: task.node });
            }
        }
        Ok(())
    }
}
