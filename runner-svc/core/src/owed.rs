//! `owed`: what the runner must do next, read off the state and not remembered.

use content_digest::Digest;

use crate::{
    entry::Entry,
    event::{Event, Exchange},
    key::EffectKey,
    payload::Payload,
    pinned::{EffectClass, PinnedNode},
    run_id::RunId,
    state::{Flight, State},
};

/// One thing that a run is owed.
#[derive(Debug, Clone, PartialEq)]
pub enum Owed {
    /// Dispatch an effect (unless it already is in this process).
    Dispatch(Box<Dispatch>),
    /// Wait for a person's answer.
    WaitAsk {
        /// The ask.
        tool_call_id: Digest,
        /// When it expires, in milliseconds since 1970: feed a tick then.
        deadline_ms: Option<u64>,
    },
    /// Wait for a point in time, in milliseconds since 1970, then feed a tick.
    WaitUntil {
        /// When.
        due_ms: u64,
    },
    /// The run is being canceled: stop this effect and feed its result, whatever it is.
    Stop {
        /// The effect.
        key: EffectKey,
    },
}

/// An effect to dispatch, with all that its executor needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Dispatch {
    /// The run.
    pub run_id: RunId,
    /// The effect.
    pub key: EffectKey,
    /// The node and its frozen definition.
    pub node: PinnedNode,
    /// Its input, one JSON text.
    pub input: Payload,
    /// What must be durable before it is sent.
    pub class: EffectClass,
    /// Longest wait, in milliseconds, where the run names one.
    pub timeout_ms: Option<u64>,
    /// When its intent was recorded, in milliseconds since 1970.
    pub since_ms: u64,
    /// Times that it was dispatched, this time included.
    pub dispatches: u32,
    /// Brokered calls already answered: the guest gets them again, the broker is not asked.
    pub exchanges: Vec<Exchange>,
    /// Fuel that the run's budget has left.
    pub fuel_left: Option<u64>,
    /// Brokered calls that the run's budget has left.
    pub egress_calls_left: Option<u64>,
}

impl Dispatch {
    /// Its stable name over every redelivery.
    pub fn idempotency_key(&self) -> Digest {
        self.key.idempotency_key(self.run_id.as_str(), self.input.text())
    }

    /// Its `tool_call_id`.
    pub fn tool_call_id(&self) -> Digest {
        self.key.tool_call_id(self.run_id.as_str())
    }
}

/// Everything that the run is owed now, in the plan's order. Nothing once it has ended.
pub fn owed(state: &State) -> Vec<Owed> {
    let mut owed: Vec<Owed> = state.flights().filter_map(|flight| of_flight(state, flight)).collect();
    if owed.is_empty() && state.outcome().is_none() {
        owed.extend(state.schedule().next_due_ms().map(|due_ms| Owed::WaitUntil { due_ms }));
    }
    owed
}

/// What these entries, just fed, made owed in addition: cheaper than [`owed`] with many effects in flight.
pub fn owed_after(state: &State, entries: &[Entry]) -> Vec<Owed> {
    let keys = entries.iter().filter_map(|entry| match entry.event() {
        Event::IntentRecorded { key, .. } | Event::AskRaised { key, .. } | Event::Redelivered { key } => Some(key),
        _ => None,
    });
    keys.filter_map(|key| state.flight(key)).filter_map(|flight| of_flight(state, flight)).collect()
}

fn of_flight(state: &State, flight: &Flight) -> Option<Owed> {
    if state.canceled_by().is_some() {
        return Some(Owed::Stop { key: flight.key.clone() });
    }
    let node = state.node_of(&flight.key)?;
    let Some(class) = node.tool.effect_class() else {
        let tool_call_id = flight.key.tool_call_id(state.run_id());
        return Some(Owed::WaitAsk { tool_call_id, deadline_ms: flight.deadline_ms });
    };
    let (budgets, spent) = (&state.manifest().budgets, state.spent());
    Some(Owed::Dispatch(Box::new(Dispatch {
        run_id: state.manifest().run_id.clone(),
        key: flight.key.clone(),
        node: node.clone(),
        input: flight.input.clone(),
        class,
        timeout_ms: state.manifest().timeout_ms_of(&flight.key.node),
        since_ms: flight.since_ms,
        dispatches: flight.dispatches,
        exchanges: flight.exchanges.clone(),
        fuel_left: budgets.max_fuel.map(|max| max.saturating_sub(spent.fuel)),
        egress_calls_left: budgets.max_egress_calls.map(|max| max.saturating_sub(spent.egress_calls)),
    })))
}
