//! Which task is dispatched next: wave by wave, each within what the budgets have left.

use super::{State, Task};
use crate::{
    budget::Axis,
    key::EffectKind,
    model,
    pinned::{Executor, PinnedTool},
    reserve::{Reserved, Room, Wants, Wave},
};

impl State {
    /// The next task of the open superstep to be dispatched now, with its shares of the budgets; none while a wave has to
    /// settle first, after an effect's failure for good, and when a budget is spent.
    pub(crate) fn next_to_dispatch(&self) -> Option<(&Task, Reserved)> {
        let task = self.to_dispatch.first()?;
        let Some(effects_max) = self.manifest.wave_effects_max else { return Some((task, Reserved::default())) };
        // A loop that has begun is in flight between its effects too, and settles before the run fails.
        let goes_on = self.manifest.settles_loops() && self.dialogues.contains_key(task);
        if self.an_effect_failed() && !goes_on {
            return None;
        }
        let tool = &self.pinned(self.executing(task)).tool;
        if self.manifest.settles_loops() && !self.may_have_another(task, tool.effect_kind()) {
            return None;
        }
        if tool.effect_kind() == EffectKind::Ask {
            return Some((task, Reserved::default()));
        }
        let budgets = &self.manifest.budgets;
        let spent = [Axis::WallMs, Axis::StorageBytes].into_iter().any(|axis| budgets.is_spent(axis, &self.spent));
        if self.wave.is_empty() && spent {
            return None;
        }
        let mut wants = self.wants_of(tool);
        if let Executor::Model { model } = &tool.executor {
            let request = self.input_of(task);
            let (tokens, usd_micros) = (model::tokens_of(&request), model.cost_at_most(&request));
            wants = Wants { egress_calls: 1, tokens, usd_micros, ..wants };
        }
        match self.wave.room(budgets, &wants, effects_max) {
            Room::Now(reserved) => Some((task, reserved)),
            Room::NextWave | Room::Spent => None,
        }
    }

    /// Whether the budgets of effects and tool calls have one left, and whose turn it is: where budgets are shared, the loops of
    /// several models go on together, from one wave to the next. Else who is answered first would take what is left.
    fn may_have_another(&self, task: &Task, kind: EffectKind) -> bool {
        let budgets = &self.manifest.budgets;
        let is_spent = |axis: Axis| budgets.is_spent(axis, &self.spent);
        if is_spent(Axis::Effects) || (kind == EffectKind::Tool && is_spent(Axis::ToolCalls)) {
            return false;
        }
        self.wave.is_empty() || !self.dialogues.contains_key(task) || !budgets.bounds_effects()
    }

    /// What one effect of a tool may use of what the run reserves.
    pub(super) fn wants_of(&self, tool: &PinnedTool) -> Wants {
        let wants = tool.wants();
        if self.manifest.reserves_storage { wants } else { Wants { storage_bytes: 0, ..wants } }
    }

    /// Whether an effect failed for good, asks not counted: whether a person refuses before or after a wave has settled must
    /// not decide what the waves after it are.
    fn an_effect_failed(&self) -> bool {
        self.failures.keys().any(|task| self.pinned(task.node).tool.effect_kind() != EffectKind::Ask)
    }

    /// An effect other than an ask joins the wave.
    pub(super) fn join_wave(&mut self, reserved: &Reserved) {
        self.wave.join(reserved);
    }

    /// Once nothing but asks is in flight the next wave begins, with what was not used.
    pub(super) fn next_wave(&mut self) {
        let working = self.flights.values().any(|flight| flight.key.kind != EffectKind::Ask);
        if !working {
            self.wave = Wave::after(&self.spent);
        }
    }
}
