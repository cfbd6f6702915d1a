//! What a child run may spend: what is left of its parent's budgets, shared evenly with what is dispatched beside it.
//!
//! The share is reserved while the child runs; what it spent is the parent's own once it has ended, the rest is free again.

use super::{State, Task};
use crate::{
    budget::{Axis, Budgets, Spent},
    pinned::Executor,
    reserve::Wants,
};

impl State {
    /// Takes the share of a subgraph that was just dispatched. Its siblings keep room for their own dispatch.
    pub(super) fn allow(&mut self) -> Budgets {
        let tool = |task: &Task| &self.pinned(task.node).tool;
        let is_child = |task: &&Task| tool(task).executor == Executor::ChildRun;
        let children = self.to_dispatch.iter().filter(is_child).count() as u64;
        let others = self.to_dispatch.len() as u64 - children;
        let budgets = &self.manifest.budgets;
        // Of these a sibling that is no subgraph takes one at a time.
        let counted = |axis: Axis, kept: u64| {
            let reserved = self.flights.values().filter_map(|flight| flight.allowance.as_ref()?.limit_of(axis));
            let used = reserved.fold(kept, u64::saturating_add);
            budgets.left(axis, &self.spent).map(|left| left.saturating_sub(used) / (children + 1))
        };
        // Of these it may take any amount: it has a share too.
        let metered = |axis: Axis, wants: fn(&Wants) -> u64| {
            let sharers =
                self.to_dispatch.iter().filter(|task| is_child(task) || wants(&self.wants_of(tool(task))) > 0);
            self.wave.left(budgets, axis).map(|left| left / (1 + sharers.count() as u64))
        };
        let allowance = Budgets {
            max_supersteps: counted(Axis::Supersteps, 0).unwrap_or_default(),
            max_effects: counted(Axis::Effects, children + others),
            max_tool_calls: counted(Axis::ToolCalls, others),
            max_tokens: metered(Axis::Tokens, |wants| wants.tokens),
            max_usd_micros: metered(Axis::UsdMicros, |wants| wants.usd_micros),
            // Time passes for all of them at once: nothing of it is shared.
            max_wall_ms: budgets.left(Axis::WallMs, &self.spent),
            max_fuel: metered(Axis::Fuel, |wants| wants.fuel),
            max_storage_bytes: if self.manifest.reserves_storage {
                metered(Axis::StorageBytes, |wants| wants.storage_bytes)
            } else {
                counted(Axis::StorageBytes, 0)
            },
            max_egress_calls: metered(Axis::EgressCalls, |wants| wants.egress_calls),
        };
        self.wave.give(&allowance);
        allowance
    }

    /// A child run ended: what it spent is spent. Children run at the same time, so that of a superstep's times the longest
    /// counts.
    pub(super) fn spent_by_child(&mut self, child: &Spent) {
        let spent = &mut self.spent;
        let add = |own: &mut u64, child: u64| *own = own.saturating_add(child);
        add(&mut spent.supersteps, child.supersteps);
        add(&mut spent.effects, child.effects);
        add(&mut spent.tool_calls, child.tool_calls);
        add(&mut spent.tokens, child.tokens);
        add(&mut spent.usd_micros, child.usd_micros);
        add(&mut spent.fuel, child.fuel);
        add(&mut spent.storage_bytes, child.storage_bytes);
        add(&mut spent.egress_calls, child.egress_calls);
        spent.wall_ms = spent.wall_ms.max(self.opened_wall_ms.saturating_add(child.wall_ms));
    }
}
