//! `apply`: folds one event into the state, and refuses what the state does not allow.

use std::{collections::BTreeMap, collections::BTreeSet, sync::Arc};

use content_digest::Digest;

use super::{Flight, Schedule, State, Task};
use crate::{
    budget::Spent,
    document::Document,
    doubt::Verdict,
    entry::Entry,
    event::{Event, Exchange, Fired},
    key::{EffectKey, EffectKind},
    manifest::{ENGINE_EPOCH, Manifest},
    payload::Payload,
    pinned::EffectClass,
    plan::Plan,
    reserve::{Reserved, Wave},
};

/// An event that cannot follow the ones before it: the journal is damaged, or was written by other rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event {sequence}: {problem}")]
pub struct Corrupt {
    /// Its sequence number.
    pub sequence: u64,
    /// What is wrong with it.
    pub problem: String,
}

pub(super) type Applied = Result<(), String>;

impl State {
    /// The state after the first event.
    ///
    /// # Errors
    /// The event is not `RunStarted`, or its manifest does not hold.
    pub fn begin(entry: &Entry) -> Result<Self, Corrupt> {
        let begun = match entry.event() {
            Event::RunStarted { manifest, input } => Self::started(entry, manifest, input),
            other => Err(format!("a journal begins with RunStarted, not {}", other.kind())),
        };
        begun.map_err(|problem| Corrupt { sequence: entry.sequence(), problem })
    }

    fn started(entry: &Entry, manifest_payload: &Payload, input: &Payload) -> Result<Self, String> {
        if entry.sequence() != 0 || entry.recorded().previous != Digest::ZERO {
            return Err("the first event has number 0 and no event before it".to_owned());
        }
        let manifest: Manifest =
            serde_json::from_str(manifest_payload.text()).map_err(|error| format!("the manifest: {error}"))?;
        if manifest.engine_epoch != ENGINE_EPOCH {
            let epoch = manifest.engine_epoch;
            return Err(format!("RUN-E026: started under engine epoch {epoch}; this runner has {ENGINE_EPOCH}"));
        }
        if manifest.input_digest != input.digest() {
            return Err("RUN-E010: the input is not the one that the manifest names".to_owned());
        }
        let plan = Plan::from_document(manifest.plan.clone()).map_err(|refusals| {
            format!("the plan: {}", refusals.first().map(ToString::to_string).unwrap_or_default())
        })?;
        let document = Document::read(input.text()).map_err(|error| format!("the input: {error}"))?;
        let mut state = Self {
            schedule: Schedule::new(&plan),
            manifest: Arc::new(manifest),
            manifest_payload: manifest_payload.clone(),
            plan,
            document,
            superstep: 0,
            open: false,
            to_dispatch: BTreeSet::new(),
            wave: Wave::default(),
            flights: BTreeMap::new(),
            in_doubt: BTreeSet::new(),
            dialogues: BTreeMap::new(),
            results: BTreeMap::new(),
            retrying: BTreeSet::new(),
            backing_off_since: BTreeMap::new(),
            failures: BTreeMap::new(),
            doubts: BTreeMap::new(),
            asks: BTreeMap::new(),
            pause: None,
            pauses: 0,
            cancel: None,
            outcome: None,
            spent: Spent { storage_bytes: entry.stored_bytes(), ..Spent::default() },
            opened_wall_ms: 0,
            fence: 0,
            started_at_ms: entry.at_ms(),
            last_at_ms: entry.at_ms(),
            next_sequence: 1,
            head: entry.hash(),
        };
        let manifest = Arc::clone(&state.manifest);
        if let Some(checkpoint) = manifest.lineage.as_ref().and_then(|lineage| lineage.checkpoint.as_ref()) {
            state.resume_from(checkpoint)?;
        }
        Ok(state)
    }

    /// Folds the next event in. After an error the state is not to be used any more.
    ///
    /// # Errors
    /// The event does not follow the last one, or the state does not allow it.
    pub fn apply(&mut self, entry: &Entry) -> Result<(), Corrupt> {
        self.apply_checked(entry).map_err(|problem| Corrupt { sequence: entry.sequence(), problem })
    }

    fn apply_checked(&mut self, entry: &Entry) -> Applied {
        if entry.sequence() != self.next_sequence {
            return Err(format!("number {} is expected here", self.next_sequence));
        }
        if entry.recorded().previous != self.head {
            return Err(format!("the hash chain is broken: it names {} as previous", entry.recorded().previous));
        }
        if self.outcome.is_some() {
            return Err("the run has ended before it".to_owned());
        }
        self.count_active_time(entry);
        self.apply_event(entry)?;
        self.spent.storage_bytes = self.spent.storage_bytes.saturating_add(entry.stored_bytes());
        self.wave.stored(self.spent.storage_bytes);
        self.last_at_ms = entry.at_ms();
        self.next_sequence += 1;
        self.head = entry.hash();
        Ok(())
    }

    /// Time counts as active while an effect is in flight that is no ask and that no person is asked about, and not across a
    /// takeover. A child run counts its own.
    fn count_active_time(&mut self, entry: &Entry) {
        let counts = |flight: &Flight| !matches!(flight.key.kind, EffectKind::Ask | EffectKind::Subgraph);
        let active = self.flights.iter().any(|(task, flight)| counts(flight) && !self.is_doubted(task));
        if active && !matches!(entry.event(), Event::LeaseTaken { .. }) {
            self.spent.wall_ms = self.spent.wall_ms.saturating_add(entry.at_ms().saturating_sub(self.last_at_ms));
        }
    }

    fn apply_event(&mut self, entry: &Entry) -> Applied {
        match entry.event() {
            Event::RunStarted { .. } => Err("the run has started before".to_owned()),
            Event::SuperstepOpened { superstep } => self.superstep_opened(*superstep, entry.at_ms()),
            Event::IntentRecorded { key, input, class } => self.intent_recorded(entry, key, *input, *class),
            Event::InputRefused { key, input, failure } => self.input_refused(key, *input, failure),
            Event::ExchangeRecorded { key, exchange } => self.exchange_recorded(key, exchange),
            Event::ResultRecorded { key, outcome, .. } if key.kind == EffectKind::Ask => {
                self.ask_settled(key, outcome, None, entry.at_ms())
            }
            Event::ResultRecorded { key, outcome, usage } => self.settled(key, outcome, usage),
            Event::ResultDiscarded { key, usage, .. } => self.discarded(key, usage),
            Event::EffectLost { key, .. } => self.effect_lost(key),
            Event::AskRaised { key, input, deadline_ms } => self.ask_raised_now(entry, key, *input, *deadline_ms),
            Event::AskAnswered { key, outcome, by } if key.kind == EffectKind::Ask => {
                self.ask_settled(key, outcome, Some(by), entry.at_ms())
            }
            Event::AskAnswered { key, .. } => Err(format!("{key} is no ask")),
            Event::AskRejected { key, .. } => self.ask_rejected(key),
            Event::RetryScheduled { task_path, node, attempt, due_ms } => {
                let task = self.retry_scheduled(task_path, node, *attempt, *due_ms)?;
                self.backing_off_since.insert(task, entry.at_ms());
                Ok(())
            }
            Event::SuperstepClosed { superstep, fired, state } => self.superstep_closed(*superstep, fired, *state),
            Event::CancelRequested { by, reason } => self.cancel_requested(entry, by, reason),
            Event::TokensRevoked { tokens } => self.tokens_revoked(*tokens),
            Event::PauseRequested { by } => self.pause_requested(by, entry.at_ms()),
            Event::Resumed { .. } => self.resumed(),
            Event::Redelivered { key } => self.redelivered(key),
            Event::EgressRefused { key, .. } => self.in_flight(key).map(|_| ()),
            Event::EgressCalled { key, .. } => {
                let task = self.in_flight(key)?;
                self.called_out(&task);
                Ok(())
            }
            Event::LeaseTaken { fence, .. } => self.lease_taken(*fence),
            Event::RunFinished { outcome, .. } => {
                self.outcome = Some(outcome.clone());
                self.to_dispatch.clear();
                self.flights.clear();
                self.in_doubt.clear();
                self.doubts.clear();
                Ok(())
            }
        }
    }

    fn superstep_opened(&mut self, superstep: u64, at_ms: u64) -> Applied {
        if self.open || self.cancel.is_some() || self.pause.is_some() || superstep != self.superstep + 1 {
            return Err(format!("superstep {superstep} cannot open after superstep {}", self.superstep));
        }
        self.to_dispatch = self.schedule.take_due(at_ms);
        for task in &self.to_dispatch {
            self.backing_off_since.remove(task);
        }
        if self.to_dispatch.is_empty() {
            return Err(format!("superstep {superstep} opens with no node ready"));
        }
        self.wave = Wave::after(&self.spent);
        self.superstep = superstep;
        self.open = true;
        self.spent.supersteps += 1;
        self.opened_wall_ms = self.spent.wall_ms;
        Ok(())
    }

    fn intent_recorded(&mut self, entry: &Entry, key: &EffectKey, input: Digest, class: EffectClass) -> Applied {
        let executing = self.task_of(key).map(|task| self.executing(&task));
        if executing.and_then(|node| self.pinned(node).tool.effect_class()) != Some(class) {
            return Err(format!("{key} is not of class {}", class.as_str()));
        }
        let Some((_, reserved)) = self.next_to_dispatch() else {
            return Err(format!("{key} is dispatched before its time"));
        };
        self.join_wave(&reserved);
        self.spent.tool_calls += u64::from(key.kind == EffectKind::Tool);
        self.dispatched(entry, key, input, (None, reserved))
    }

    pub(super) fn dispatched(
        &mut self,
        entry: &Entry,
        key: &EffectKey,
        input: Digest,
        (deadline_ms, reserved): (Option<u64>, Reserved),
    ) -> Applied {
        let executing = self.executing(&self.known_task(key)?);
        let (task, derived) = self.attempted(key, input)?;
        self.spent.effects += 1;
        if self.model_of(&task).is_some() {
            self.dialogue_goes_on(&task);
        }
        let allowance = (key.kind == EffectKind::Subgraph).then(|| self.allow());
        let flight = Flight {
            key: key.clone(),
            input: derived,
            since_ms: entry.at_ms(),
            intent_sequence: entry.sequence(),
            dispatches: 1,
            exchanges: Vec::new(),
            deadline_ms,
            reserved,
            egress_calls: 0,
            executing,
            allowance,
        };
        self.flights.insert(task, flight);
        Ok(())
    }

    /// Takes a ready task out for its next attempt, with the input that it gets.
    pub(super) fn attempted(&mut self, key: &EffectKey, input: Digest) -> Result<(Task, Payload), String> {
        let task = self.known_task(key)?;
        if self.to_dispatch.first() != Some(&task) || self.next_key(&task) != *key {
            return Err(format!("{key} is not ready to be dispatched"));
        }
        let derived = self.input_of(&task);
        if derived.digest() != input {
            return Err(format!("the input of {key} has digest {}, not {input}", derived.digest()));
        }
        self.to_dispatch.remove(&task);
        if key.effect_seq == 0 {
            self.schedule.attempt(&task);
        }
        Ok((task, derived))
    }

    fn exchange_recorded(&mut self, key: &EffectKey, exchange: &Exchange) -> Applied {
        let task = self.in_flight(key)?;
        let exchanges = self.flights.get_mut(&task).map(|flight| &mut flight.exchanges);
        let Some(exchanges) = exchanges.filter(|exchanges| exchanges.len() == exchange.ordinal as usize) else {
            return Err(format!("exchange {} of {key} is not the next one", exchange.ordinal));
        };
        exchanges.push(exchange.clone());
        if !exchange.refused {
            self.called_out(&task);
        }
        Ok(())
    }

    fn called_out(&mut self, task: &Task) {
        self.spent.egress_calls += 1;
        if let Some(flight) = self.flights.get_mut(task) {
            flight.egress_calls += 1;
        }
    }

    fn superstep_closed(&mut self, superstep: u64, fired: &Fired, state: Digest) -> Applied {
        if !self.open || superstep != self.superstep || !self.flights.is_empty() || self.next_to_dispatch().is_some() {
            return Err(format!("superstep {superstep} cannot close: it is not open, or effects are in flight"));
        }
        let closing = self.closing().map_err(|overfull| format!("superstep {superstep} cannot close: {overfull:?}"))?;
        if closing.text.digest() != state {
            return Err(format!(
                "the state after superstep {superstep} has digest {}, not {state}",
                closing.text.digest()
            ));
        }
        if Fired::new(closing.fired.clone()) != *fired {
            return Err(format!("superstep {superstep} fires other edges"));
        }
        for task in self.failures.keys() {
            self.schedule.fail(task);
        }
        // What a spent budget or a failure kept from being dispatched is due again.
        for task in std::mem::take(&mut self.to_dispatch) {
            self.schedule.make_ready(&task, 0);
        }
        let done = std::mem::take(&mut self.results);
        let settled = done.into_iter().map(|(task, done)| (task, done.sends)).collect();
        self.schedule.close(&self.plan, settled, &closing);
        self.document.take(closing.changed, closing.text);
        self.open = false;
        Ok(())
    }

    fn effect_lost(&mut self, key: &EffectKey) -> Applied {
        let task = self.in_flight(key)?;
        if key.kind == EffectKind::Ask || self.is_doubted(&task) {
            return Err(format!("{key} has no executor that could be lost"));
        }
        self.in_doubt.insert(task);
        Ok(())
    }

    fn redelivered(&mut self, key: &EffectKey) -> Applied {
        let task = self.in_flight(key)?;
        let decided = self.doubts.get(&task).is_some_and(|doubt| doubt.verdict == Some(Verdict::Redispatch));
        if !decided && !self.in_doubt.remove(&task) {
            return Err(format!("{key} is not in doubt"));
        }
        self.doubts.remove(&task);
        if let Some(flight) = self.flights.get_mut(&task) {
            flight.dispatches = flight.dispatches.saturating_add(1);
        }
        Ok(())
    }

    fn lease_taken(&mut self, fence: u64) -> Applied {
        if fence <= self.fence {
            return Err(format!("fencing token {fence} is not higher than {}", self.fence));
        }
        self.fence = fence;
        if let Some(cancel) = &self.cancel {
            // Whatever was being stopped went down with its process, but for child runs: they are found again.
            if !cancel.settles {
                self.flights.retain(|_, flight| flight.key.kind == EffectKind::Subgraph);
            }
            return Ok(());
        }
        // What a person is asked about already stays as it is.
        let in_doubt = self.flights.iter().filter(|(task, _)| !self.is_doubted(task)).filter(|(_, flight)| {
            let class = self.manifest.nodes[flight.executing].tool.effect_class();
            matches!(class, Some(EffectClass::Brokered | EffectClass::Opaque))
        });
        self.in_doubt = in_doubt.map(|(task, _)| task.clone()).collect();
        Ok(())
    }

    pub(super) fn in_flight(&self, key: &EffectKey) -> Result<Task, String> {
        let task = self.known_task(key)?;
        match self.flights.get(&task) {
            Some(flight) if flight.key == *key => Ok(task),
            _ => Err(format!("{key} is not in flight")),
        }
    }

    fn known_task(&self, key: &EffectKey) -> Result<Task, String> {
        self.task_of(key).ok_or_else(|| format!("the plan has no node {}", crate::text::shown(&key.node)))
    }
}
