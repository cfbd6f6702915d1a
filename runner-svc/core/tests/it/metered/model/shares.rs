//! What an effect or a child run may use of what a run has left.

use std::collections::{BTreeMap, BTreeSet};

use runner_core::budget::Budgets;

use super::{Flight, Run, Spent};
use crate::metered::case::Kind;

/// The longest result, and the longest answer to a call as the journal spells it.
const RESULT_BYTES: u64 = 8 << 20;
const ANSWER_BYTES: u64 = 2 << 20;
/// What an event takes beside them.
const BESIDE_BYTES: u64 = 4 << 10;

/// What an effect may use of a budget: how much, and whether it would take more; none of a budget that does not bound it.
type Share = Option<(u64, bool)>;

/// What an effect may use.
pub(super) struct Shares {
    pub(super) fuel: Share,
    pub(super) calls: Share,
    pub(super) storage: Share,
}

impl Run<'_> {
    /// What an effect may use of fuel, calls and journal: all that it wants, or the rest for the first that wants any; none:
    /// not now.
    pub(super) fn shares(&self, node: usize, base: &Spent, taken: &Spent) -> Option<Shares> {
        let one_result = RESULT_BYTES + 2 * BESIDE_BYTES;
        let (fuel, calls, storage) = match self.level.nodes[node].kind {
            Kind::Tool => (0, 0, one_result),
            Kind::Sub(_) => (0, 0, 0),
            Kind::Pure(fuel) => (fuel, 0, one_result),
            Kind::Io(fuel, calls) => (fuel, calls, one_result + calls * (ANSWER_BYTES + BESIDE_BYTES)),
        };
        let share = |max: Option<u64>, spent: u64, taken: u64, want: u64| {
            let Some(max) = max.filter(|_| want > 0) else { return Some(None) };
            let left = max.saturating_sub(spent).saturating_sub(taken);
            match () {
                () if want <= left => Some(Some((want, false))),
                () if taken == 0 && left > 0 => Some(Some((left, true))),
                () => None,
            }
        };
        let budgets = &self.budgets;
        Some(Shares {
            fuel: share(budgets.max_fuel, base.fuel, taken.fuel, fuel)?,
            calls: share(budgets.max_egress_calls, base.calls, taken.calls, calls)?,
            storage: share(budgets.max_storage_bytes, base.storage, taken.storage, storage)?,
        })
    }

    /// What a child run may spend: an even share of what is left beside those that run and those that are still to be sent.
    pub(super) fn share(
        &self,
        waiting: &BTreeSet<usize>,
        flights: &BTreeMap<usize, Flight>,
        base: &Spent,
        taken: &Spent,
    ) -> Budgets {
        let kind = |node: &&usize| &self.level.nodes[**node].kind;
        let children = waiting.iter().filter(|node| matches!(kind(node), Kind::Sub(_))).count() as u64;
        let others = waiting.len() as u64 - children;
        let given = |of: fn(&Budgets) -> Option<u64>| -> u64 {
            flights.values().filter_map(|flight| flight.share.as_ref().and_then(of)).sum()
        };
        let counted = |max: Option<u64>, spent: u64, kept: u64| {
            max.map(|max| max.saturating_sub(spent).saturating_sub(kept) / (children + 1))
        };
        let metered = |max: Option<u64>, spent: u64, taken: u64, sharers: usize| {
            max.map(|max| max.saturating_sub(spent).saturating_sub(taken) / (1 + sharers as u64))
        };
        let burners = waiting.iter().filter(|node| !matches!(kind(node), Kind::Tool)).count();
        let callers = waiting.iter().filter(|node| matches!(kind(node), Kind::Sub(_) | Kind::Io(..))).count();
        let (budgets, spent) = (&self.budgets, &self.spent);
        let supersteps = given(|share| Some(share.max_supersteps));
        Budgets {
            max_supersteps: counted(Some(budgets.max_supersteps), spent.supersteps, supersteps).unwrap(),
            max_effects: counted(
                budgets.max_effects,
                spent.effects,
                children + others + given(|share| share.max_effects),
            ),
            max_tool_calls: counted(
                budgets.max_tool_calls,
                spent.tool_calls,
                others + given(|share| share.max_tool_calls),
            ),
            max_wall_ms: budgets.max_wall_ms.map(|max| max.saturating_sub(spent.wall)),
            max_fuel: metered(budgets.max_fuel, base.fuel, taken.fuel, burners),
            // Whatever waits writes something.
            max_storage_bytes: metered(budgets.max_storage_bytes, base.storage, taken.storage, waiting.len()),
            max_egress_calls: metered(budgets.max_egress_calls, base.calls, taken.calls, callers),
            ..Budgets::default()
        }
    }
}
