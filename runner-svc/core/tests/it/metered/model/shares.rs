//! What an effect or a child run may use of what a run has left.

use std::collections::{BTreeMap, BTreeSet};

use runner_core::budget::Budgets;

use super::{Flight, Run, Spent};
use crate::metered::case::Kind;

impl Run<'_> {
    /// What an effect may use of fuel and calls: all that it wants, or the rest for the first that wants any; none: not now.
    #[expect(clippy::type_complexity, reason = "two shares, each perhaps cut short")]
    pub(super) fn shares(
        &self,
        node: usize,
        base: &Spent,
        taken: &Spent,
    ) -> Option<(Option<(u64, bool)>, Option<(u64, bool)>)> {
        let (fuel, calls) = match self.level.nodes[node].kind {
            Kind::Tool | Kind::Sub(_) => (0, 0),
            Kind::Pure(fuel) => (fuel, 0),
            Kind::Io(fuel, calls) => (fuel, calls),
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
        let fuel = share(self.budgets.max_fuel, base.fuel, taken.fuel, fuel)?;
        Some((fuel, share(self.budgets.max_egress_calls, base.calls, taken.calls, calls)?))
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
            max_storage_bytes: counted(
                budgets.max_storage_bytes,
                self.storage(),
                given(|share| share.max_storage_bytes),
            ),
            max_egress_calls: metered(budgets.max_egress_calls, base.calls, taken.calls, callers),
            ..Budgets::default()
        }
    }
}
