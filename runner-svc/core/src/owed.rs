//! `owed`: what the runner must do next, read off the state and not remembered.

use std::time::Duration;

use content_digest::Digest;

use crate::{
    budget::Axis,
    entry::Entry,
    event::{Event, Exchange},
    key::EffectKey,
    payload::Payload,
    pinned::{EffectClass, Executor, PinnedNode},
    run_id::RunId,
    state::{Flight, State},
};

/// One thing that a run is owed.
#[derive(Debug, Clone, PartialEq)]
pub enum Owed {
    /// Dispatch an effect (unless it already is in this process).
    Dispatch(Box<Dispatch>),
    /// Start a child run, or find it again, and feed its end: see [`crate::child`].
    Child {
        /// The effect that it is.
        key: EffectKey,
    },
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
    /// Active time that the run's budget has left, in milliseconds: nothing is waited for longer.
    pub wall_left_ms: Option<u64>,
    /// When its intent was recorded, in milliseconds since 1970.
    pub since_ms: u64,
    /// Times that it was dispatched, this time included.
    pub dispatches: u32,
    /// Brokered calls already answered: the guest gets them again, the broker is not asked.
    pub exchanges: Vec<Exchange>,
    /// Fuel that the run's budget gives it.
    pub fuel_left: Option<u64>,
    /// Brokered calls that the run's budget still gives it.
    pub egress_calls_left: Option<u64>,
}

impl Dispatch {
    /// Its stable name over every redelivery.
    pub fn idempotency_key(&self) -> Digest {
        self.key.idempotency_key(self.run_id.as_str(), self.input.text())
    }

    /// How long it may take: what its node's policy says, else `default`, and never longer than the run has active time left.
    pub fn timeout_within(&self, default: Duration) -> Duration {
        let timeout = self.timeout_ms.map_or(default, Duration::from_millis);
        self.wall_left_ms.map_or(timeout, |left_ms| timeout.min(Duration::from_millis(left_ms)))
    }

    /// Its `tool_call_id`.
    pub fn tool_call_id(&self) -> Digest {
        self.key.tool_call_id(self.run_id.as_str())
    }
}

/// Everything that the run is owed now, in the plan's order. Nothing once it has ended.
pub fn owed(state: &State) -> Vec<Owed> {
    let asked = state.asks().filter(|ask| ask.about.is_some()).map(|ask| ask.flight);
    let mut owed: Vec<Owed> = state.flights().chain(asked).filter_map(|flight| of_flight(state, flight)).collect();
    if owed.is_empty() && state.outcome().is_none() && state.pause().is_none() {
        owed.extend(state.schedule().next_due_ms().map(|due_ms| Owed::WaitUntil { due_ms }));
    }
    owed
}

/// When a tick is due next, in milliseconds since 1970: an ask expires, or a failed task may be tried again.
pub fn next_tick_ms(state: &State) -> Option<u64> {
    if state.outcome().is_some() || state.cancel().is_some() {
        return None;
    }
    let expiry = state.asks().filter_map(|ask| ask.flight.deadline_ms).min();
    let opens_by_itself = state.flights().next().is_none() && state.pause().is_none();
    expiry.or_else(|| state.schedule().next_due_ms().filter(|_| opens_by_itself))
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
        // Questions close by themselves.
        if state.is_ask(flight) {
            return None;
        }
        return Some(Owed::Stop { key: flight.key.clone() });
    }
    let tool_call_id = flight.key.tool_call_id(state.run_id());
    let node = state.node_of(&flight.key)?;
    if node.tool.executor == Executor::ChildRun {
        return Some(Owed::Child { key: flight.key.clone() });
    }
    if state.is_ask(flight) {
        return Some(Owed::WaitAsk { tool_call_id, deadline_ms: flight.deadline_ms });
    }
    if state.task_of(&flight.key).is_some_and(|task| state.is_doubted(&task)) {
        return None;
    }
    let class = node.tool.effect_class()?;
    let (fuel_left, egress_calls_left) = shares(state, flight);
    Some(Owed::Dispatch(Box::new(Dispatch {
        run_id: state.manifest().run_id.clone(),
        key: flight.key.clone(),
        node: node.clone(),
        input: flight.input.clone(),
        class,
        timeout_ms: state.manifest().timeout_ms_of(&flight.key.node),
        wall_left_ms: state.manifest().budgets.left(Axis::WallMs, state.spent()),
        since_ms: flight.since_ms,
        dispatches: flight.dispatches,
        exchanges: flight.exchanges.clone(),
        fuel_left,
        egress_calls_left,
    })))
}

/// Fuel and brokered calls that an effect may still use.
fn shares(state: &State, flight: &Flight) -> (Option<u64>, Option<u64>) {
    if state.manifest().wave_effects_max.is_none() {
        let left = |axis| state.manifest().budgets.left(axis, state.spent());
        return (left(Axis::Fuel), left(Axis::EgressCalls));
    }
    let calls = flight.reserved.egress_calls.map(|share| share.units.saturating_sub(flight.egress_calls));
    (flight.reserved.fuel.map(|share| share.units), calls)
}
