//! A task: what the scheduler counts in. A static node is one, and so is each part of a fan-out.

use serde::{Deserialize, Serialize};

use super::State;
use crate::{document::Document, fan_out::Sender, key::EffectKey, payload::Payload};

/// One thing that is dispatched, settles and is merged. Ordered as it is dispatched and merged: static nodes by their
/// place in the plan, then fan-out tasks by path.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Task {
    /// Path of the fan-out task; empty for a static node, so that static nodes come first.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) path: String,
    /// Index of the node.
    pub(crate) node: usize,
}

impl Task {
    /// The static node of this index.
    pub(crate) fn of_node(node: usize) -> Self {
        Self { path: String::new(), node }
    }

    /// Whether it is a static node.
    pub(crate) fn is_static(&self) -> bool {
        self.path.is_empty()
    }
}

impl State {
    /// The task of an effect; none if the plan has no such node.
    pub(crate) fn task_of(&self, key: &EffectKey) -> Option<Task> {
        self.plan.index_of(&key.node).map(|node| Task { path: key.task_path.clone(), node })
    }

    /// The key of a task's next attempt.
    pub(crate) fn next_key(&self, task: &Task) -> EffectKey {
        let pinned = self.pinned(task.node);
        let key = EffectKey::of_node(&pinned.node, self.schedule.attempts(task) + 1, pinned.tool.effect_kind());
        self.next_in_dialogue(task, EffectKey { task_path: task.path.clone(), ..key })
    }

    /// The input of a task's next effect: the state, of a fan-out task its own; with the definition's locked parameters laid over it, whatever
    /// stands there under their keys.
    pub(crate) fn input_of(&self, task: &Task) -> Payload {
        let input = self.own_input_of(task);
        match self.model_of(task) {
            Some(model) => self.input_in_dialogue(task, model, &input),
            None => input,
        }
    }

    fn own_input_of(&self, task: &Task) -> Payload {
        let locked = &self.pinned(task.node).tool.locked_params;
        let Some(part) = self.schedule.parts().get(task) else { return self.document.with(locked) };
        if locked.is_empty() {
            return part.input.clone();
        }
        // A task for a node with locked parameters was taken with an object only.
        Document::read(part.input.text()).map_or_else(|_| part.input.clone(), |own| own.with(locked))
    }

    /// The task as the sender of what its result asks for.
    pub(crate) fn sender(&self, task: &Task) -> Sender<'_> {
        let parts = self.schedule.parts();
        let parent = if task.is_static() { self.plan.nodes()[task.node].as_str() } else { &task.path };
        Sender {
            node: task.node,
            sent: parts.sent_by(parent),
            depth: parts.get(task).map_or(0, |part| part.depth),
            plan: &self.plan,
            pinned: &self.manifest.nodes,
        }
    }

    /// Whether this attempt was dispatched before and has settled since.
    pub(crate) fn has_settled(&self, key: &EffectKey) -> bool {
        let Some(task) = self.task_of(key) else { return false };
        let made = if task.is_static() || self.schedule.parts().get(&task).is_some() {
            (1..=self.schedule.attempts(&task)).contains(&key.attempt)
        } else {
            // Gone: all that is known of it is that its parent asked for it.
            let (parent, ordinal) = task.path.rsplit_once('/').unwrap_or_default();
            ordinal.parse().is_ok_and(|ordinal: usize| ordinal < self.schedule.parts().sent_by(parent))
        };
        made && self.flight(key).is_none()
    }
}
