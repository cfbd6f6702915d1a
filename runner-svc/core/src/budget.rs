//! Budgets of a run: bounds, what was spent, and which bound stops the next superstep.

use serde::{Deserialize, Serialize};

use crate::outcome::{Usage, is_zero};

/// Supersteps of a run that names no bound of its own.
pub const SUPERSTEPS_DEFAULT_MAX: u64 = 1024;

/// What a budget bounds. Append-only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// Supersteps.
    Supersteps,
    /// Effects of every kind.
    Effects,
    /// Tool effects.
    ToolCalls,
    /// Model tokens.
    Tokens,
    /// Model cost in millionths of a US dollar.
    UsdMicros,
    /// Active time in milliseconds.
    WallMs,
    /// wasmtime fuel.
    Fuel,
    /// Journal bytes.
    StorageBytes,
    /// Brokered calls.
    EgressCalls,
}

impl Axis {
    /// The option that sets it.
    pub fn option(self) -> &'static str {
        match self {
            Self::Supersteps => "max_supersteps",
            Self::Effects => "max_effects",
            Self::ToolCalls => "max_tool_calls",
            Self::Tokens => "max_tokens",
            Self::UsdMicros => "max_usd_micros",
            Self::WallMs => "max_wall_ms",
            Self::Fuel => "max_fuel",
            Self::StorageBytes => "max_storage_bytes",
            Self::EgressCalls => "max_egress_calls",
        }
    }
}

/// Bounds of a run. Absent is unbounded, but for supersteps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budgets {
    /// Supersteps; 1024 unless named.
    pub max_supersteps: u64,
    /// Effects of every kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_effects: Option<u64>,
    /// Tool effects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tool_calls: Option<u64>,
    /// Model tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Model cost in millionths of a US dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_usd_micros: Option<u64>,
    /// Active time in milliseconds: time in which only a person was waited for does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_wall_ms: Option<u64>,
    /// wasmtime fuel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_fuel: Option<u64>,
    /// Journal bytes: records and the payloads beside them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_storage_bytes: Option<u64>,
    /// Brokered calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_egress_calls: Option<u64>,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            max_supersteps: SUPERSTEPS_DEFAULT_MAX,
            max_effects: None,
            max_tool_calls: None,
            max_tokens: None,
            max_usd_micros: None,
            max_wall_ms: None,
            max_fuel: None,
            max_storage_bytes: None,
            max_egress_calls: None,
        }
    }
}

/// What a run spent, from its journal alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Supersteps opened.
    pub supersteps: u64,
    /// Effects whose intent is recorded.
    pub effects: u64,
    /// Tool effects among them.
    pub tool_calls: u64,
    /// Active time in milliseconds.
    pub wall_ms: u64,
    /// wasmtime fuel.
    pub fuel: u64,
    /// Journal bytes.
    pub storage_bytes: u64,
    /// Brokered calls that went out.
    pub egress_calls: u64,
    /// Model tokens.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens: u64,
    /// Model cost in millionths of a US dollar.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub usd_micros: u64,
}

/// What the next superstep would dispatch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demand {
    /// Effects of every kind.
    pub effects: u64,
    /// Tool effects among them.
    pub tool_calls: u64,
    /// Whether any of them burns fuel.
    pub fuel: bool,
    /// Whether any of them may make brokered calls.
    pub egress: bool,
    /// Whether any of them asks a model.
    pub model: bool,
}

impl Budgets {
    /// The first bound, in the order of [`Axis`], that forbids opening one more superstep with this demand.
    pub fn exhausted(&self, spent: &Spent, demand: &Demand) -> Option<(Axis, u64)> {
        let used_up = |axis: Axis| self.limit_of(axis).filter(|limit| spent.of(axis) >= *limit);
        let no_room = |limit: Option<u64>, spent: u64, wanted: u64| {
            limit.filter(|limit| wanted > 0 && spent.saturating_add(wanted) > *limit)
        };
        let bounds = [
            (Axis::Supersteps, used_up(Axis::Supersteps)),
            (Axis::Effects, no_room(self.max_effects, spent.effects, demand.effects)),
            (Axis::ToolCalls, no_room(self.max_tool_calls, spent.tool_calls, demand.tool_calls)),
            (Axis::Tokens, used_up(Axis::Tokens).filter(|_| demand.model)),
            (Axis::UsdMicros, used_up(Axis::UsdMicros).filter(|_| demand.model)),
            (Axis::WallMs, used_up(Axis::WallMs)),
            (Axis::Fuel, used_up(Axis::Fuel).filter(|_| demand.fuel)),
            (Axis::StorageBytes, used_up(Axis::StorageBytes)),
            (Axis::EgressCalls, used_up(Axis::EgressCalls).filter(|_| demand.egress)),
        ];
        bounds.into_iter().find_map(|(axis, limit)| limit.map(|limit| (axis, limit)))
    }

    /// The bound of an axis.
    pub fn limit_of(&self, axis: Axis) -> Option<u64> {
        match axis {
            Axis::Supersteps => Some(self.max_supersteps),
            Axis::Effects => self.max_effects,
            Axis::ToolCalls => self.max_tool_calls,
            Axis::Tokens => self.max_tokens,
            Axis::UsdMicros => self.max_usd_micros,
            Axis::WallMs => self.max_wall_ms,
            Axis::Fuel => self.max_fuel,
            Axis::StorageBytes => self.max_storage_bytes,
            Axis::EgressCalls => self.max_egress_calls,
        }
    }

    /// What an axis has left; none where it is unbounded.
    pub fn left(&self, axis: Axis, spent: &Spent) -> Option<u64> {
        self.limit_of(axis).map(|limit| limit.saturating_sub(spent.of(axis)))
    }

    /// Whether it bounds anything that effects use up: time and supersteps pass by themselves.
    pub(crate) fn bounds_effects(&self) -> bool {
        let axes = [
            Axis::Effects,
            Axis::ToolCalls,
            Axis::Tokens,
            Axis::UsdMicros,
            Axis::Fuel,
            Axis::StorageBytes,
            Axis::EgressCalls,
        ];
        axes.into_iter().any(|axis| self.limit_of(axis).is_some())
    }

    /// Whether nothing of an axis is left.
    pub fn is_spent(&self, axis: Axis, spent: &Spent) -> bool {
        self.left(axis, spent) == Some(0)
    }
}

impl Spent {
    /// What was spent of an axis.
    pub fn of(&self, axis: Axis) -> u64 {
        match axis {
            Axis::Supersteps => self.supersteps,
            Axis::Effects => self.effects,
            Axis::ToolCalls => self.tool_calls,
            Axis::Tokens => self.tokens,
            Axis::UsdMicros => self.usd_micros,
            Axis::WallMs => self.wall_ms,
            Axis::Fuel => self.fuel,
            Axis::StorageBytes => self.storage_bytes,
            Axis::EgressCalls => self.egress_calls,
        }
    }

    /// Counts what an effect used.
    pub(crate) fn use_up(&mut self, usage: &Usage) {
        self.fuel = self.fuel.saturating_add(usage.fuel);
        self.tokens = self.tokens.saturating_add(usage.tokens);
        self.usd_micros = self.usd_micros.saturating_add(usage.usd_micros);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_bounds_stops_at_1024_supersteps_only() {
        let budgets = Budgets::default();
        let mut spent = Spent { supersteps: 1023, fuel: u64::MAX, wall_ms: u64::MAX, ..Spent::default() };
        let demand = Demand { effects: u64::MAX, tool_calls: 1, fuel: true, egress: true, model: true };
        assert_eq!(budgets.exhausted(&spent, &demand), None);
        spent.supersteps = 1024;
        assert_eq!(budgets.exhausted(&spent, &demand), Some((Axis::Supersteps, 1024)));
    }

    #[test]
    fn effects_are_reserved_before_they_are_dispatched() {
        let budgets = Budgets { max_effects: Some(3), max_tool_calls: Some(2), ..Budgets::default() };
        let spent = Spent { effects: 2, tool_calls: 1, ..Spent::default() };
        let one = Demand { effects: 1, tool_calls: 1, ..Demand::default() };
        assert_eq!(budgets.exhausted(&spent, &one), None);
        let two = Demand { effects: 2, ..one };
        assert_eq!(budgets.exhausted(&spent, &two), Some((Axis::Effects, 3)));
        let two_tools = Demand { effects: 1, tool_calls: 2, ..one };
        assert_eq!(budgets.exhausted(&spent, &two_tools), Some((Axis::ToolCalls, 2)));
    }

    #[test]
    fn fuel_and_egress_bound_only_what_uses_them() {
        let budgets = Budgets { max_fuel: Some(10), max_egress_calls: Some(1), ..Budgets::default() };
        let spent = Spent { fuel: 10, egress_calls: 1, ..Spent::default() };
        assert_eq!(budgets.exhausted(&spent, &Demand::default()), None);
        let fuel = Demand { fuel: true, ..Demand::default() };
        assert_eq!(budgets.exhausted(&spent, &fuel), Some((Axis::Fuel, 10)));
        let egress = Demand { egress: true, ..Demand::default() };
        assert_eq!(budgets.exhausted(&spent, &egress), Some((Axis::EgressCalls, 1)));
    }
}
