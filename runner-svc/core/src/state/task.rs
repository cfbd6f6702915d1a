//! A task: what the scheduler counts in. A static node is one, and so is each part of a fan-out.

/// One thing that is dispatched, settles and is merged. Ordered as it is dispatched and merged: static nodes by their
/// place in the plan, then fan-out tasks by path.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Task {
    /// Path of the fan-out task; empty for a static node, so that static nodes come first.
    pub(crate) path: String,
    /// Index of the node.
    pub(crate) node: usize,
}

impl Task {
    /// The static node of this index.
    pub(crate) fn of_node(node: usize) -> Self {
        Self { path: String::new(), node }
    }
}
