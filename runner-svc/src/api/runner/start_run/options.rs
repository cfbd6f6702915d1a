//! A run's options: checked by themselves, then against the plan.

use std::{collections::BTreeMap, time::Duration};

use proto::{
    fault::{Fault, Reason},
    runner::v1::{self as pb, RunOptions},
};
use runner_core::{
    budget::Budgets,
    manifest::{Manifest, NodePolicy, OnDangling},
    plan::Plan,
};

use super::policies;
use crate::api::{runner::shown, stamp};

/// Longest time that an option may name.
const LENGTH_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
/// Longest initiator, in bytes.
const INITIATOR_BYTES_MAX: usize = 256;

/// What the manifest takes from the options.
pub struct Options {
    /// Bounds.
    pub budgets: Budgets,
    /// What to do with an effect that was in flight at a crash.
    pub on_dangling: OnDangling,
    /// Per node: timeout, delay between attempts.
    pub node_policies: BTreeMap<String, NodePolicy>,
    /// How long an ask may stay open.
    pub ask_ttl_ms: Option<u64>,
    /// On whose behalf.
    pub initiator: Option<String>,
}

impl Options {
    /// Checks what needs no plan.
    pub fn read(options: RunOptions) -> Result<Self, Fault> {
        let on_dangling = on_dangling(options.on_dangling)?;
        let initiator = Some(options.initiator).filter(|initiator| !initiator.is_empty());
        if initiator.as_ref().is_some_and(|name| name.len() > INITIATOR_BYTES_MAX || name.chars().any(char::is_control))
        {
            let problem = format!("must have at most {INITIATOR_BYTES_MAX} bytes without control characters");
            return Err(invalid("options.initiator", &problem));
        }
        Ok(Self {
            budgets: budgets(options.budgets.unwrap_or_default()),
            on_dangling,
            node_policies: policies::read(options.node_policies)?,
            ask_ttl_ms: length_ms("options.ask_ttl", options.ask_ttl.as_ref())?,
            initiator,
        })
    }

    /// The options of a fork: what is not named is as in the run that it comes from.
    pub fn of_fork(asked: RunOptions, source: &Manifest) -> Result<Self, Fault> {
        let named = asked.clone();
        let mut options = Self::read(asked)?;
        let (budgets, before) = (named.budgets.unwrap_or_default(), source.budgets);
        options.budgets = Budgets {
            max_supersteps: budgets.max_supersteps.unwrap_or(before.max_supersteps),
            max_effects: budgets.max_effects.or(before.max_effects),
            max_tool_calls: budgets.max_tool_calls.or(before.max_tool_calls),
            max_tokens: budgets.max_tokens.or(before.max_tokens),
            max_usd_micros: budgets.max_usd_micros.or(before.max_usd_micros),
            max_wall_ms: budgets.max_wall_ms.or(before.max_wall_ms),
            max_fuel: budgets.max_fuel.or(before.max_fuel),
            max_storage_bytes: budgets.max_storage_bytes.or(before.max_storage_bytes),
            max_egress_calls: budgets.max_egress_calls.or(before.max_egress_calls),
        };
        if named.on_dangling == i32::from(pb::OnDangling::Unspecified) {
            options.on_dangling = source.on_dangling;
        }
        if options.node_policies.is_empty() {
            options.node_policies.clone_from(&source.node_policies);
        }
        options.ask_ttl_ms = options.ask_ttl_ms.or(source.ask_ttl_ms);
        options.initiator = options.initiator.or_else(|| source.initiator.clone());
        Ok(options)
    }

    /// Each policy is for a node of the plan.
    pub fn check(&self, plan: &Plan) -> Result<(), Fault> {
        match self.node_policies.keys().find(|node| plan.index_of(node).is_none()) {
            Some(node) => {
                let problem = format!("names node {}, which the plan does not have", shown(node));
                Err(invalid("options.node_policies", &problem))
            }
            None => Ok(()),
        }
    }
}

/// A number that this release does not know is refused: taken for the default, it would send again what should not be.
fn on_dangling(asked: i32) -> Result<OnDangling, Fault> {
    match pb::OnDangling::try_from(asked) {
        Ok(pb::OnDangling::Unspecified | pb::OnDangling::Redispatch) => Ok(OnDangling::Redispatch),
        Ok(pb::OnDangling::Fail) => Ok(OnDangling::Fail),
        Ok(pb::OnDangling::Ask) => Ok(OnDangling::Ask),
        Err(_unknown) => Err(invalid("options.on_dangling", "is no value that this release knows")),
    }
}

fn budgets(asked: pb::Budgets) -> Budgets {
    Budgets {
        max_supersteps: asked.max_supersteps.unwrap_or(Budgets::default().max_supersteps),
        max_effects: asked.max_effects,
        max_tool_calls: asked.max_tool_calls,
        max_tokens: asked.max_tokens,
        max_usd_micros: asked.max_usd_micros,
        max_wall_ms: asked.max_wall_ms,
        max_fuel: asked.max_fuel,
        max_storage_bytes: asked.max_storage_bytes,
        max_egress_calls: asked.max_egress_calls,
    }
}

pub(super) fn length_ms(field: &str, wire: Option<&prost_types::Duration>) -> Result<Option<u64>, Fault> {
    let Some(wire) = wire else { return Ok(None) };
    let length = stamp::length(wire).filter(|length| !length.is_zero() && *length <= LENGTH_MAX);
    let length = length.ok_or_else(|| invalid(field, "must be over 0 and at most 366 days"))?;
    Ok(Some(u64::try_from(length.as_millis()).unwrap_or(u64::MAX).max(1)))
}

pub(super) fn invalid(field: &str, problem: &str) -> Fault {
    Fault::new(Reason::InvalidArgument, format!("{field} {problem}")).field(field, problem)
}
