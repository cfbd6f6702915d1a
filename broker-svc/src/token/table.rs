//! The tokens that are alive, and the runs that are over. Bounded in both.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::SystemTime,
};

use uuid::Uuid;

use super::{EffectKey, MintError, Permit, TokenBounds};

/// All that is remembered.
#[derive(Default)]
pub struct Table {
    live: BTreeMap<Uuid, Arc<Permit>>,
    by_effect: BTreeMap<EffectKey, Uuid>,
    by_end: BTreeSet<(SystemTime, Uuid)>,
    ended: BTreeSet<String>,
    /// The same runs, oldest first, with the time at which each may be forgotten.
    ended_by_age: VecDeque<(SystemTime, String)>,
}

impl Table {
    /// Takes a permit in, in the place of an earlier one of the same effect.
    pub fn insert(&mut self, id: Uuid, permit: Permit, now: SystemTime, bounds: &TokenBounds) -> Result<(), MintError> {
        self.forget(now);
        if self.ended.contains(&permit.binding.run_id) {
            return Err(MintError::RunOver);
        }
        let effect = permit.binding.effect();
        self.end(&effect);
        if self.live.len() >= bounds.live_max {
            return Err(MintError::Full(bounds.live_max));
        }
        self.by_end.insert((permit.deadline, id));
        self.by_effect.insert(effect, id);
        self.live.insert(id, Arc::new(permit));
        Ok(())
    }

    /// The permit, if its token is alive.
    pub fn get(&self, id: &Uuid) -> Option<Arc<Permit>> {
        self.live.get(id).cloned()
    }

    /// Ends an effect's token; answers how many were alive.
    pub fn revoke_effect(&mut self, effect: &EffectKey, now: SystemTime) -> u32 {
        self.forget(now);
        u32::from(self.end(effect))
    }

    /// Ends a run's tokens and remembers the run.
    pub fn revoke_run(&mut self, run_id: &str, now: SystemTime, bounds: &TokenBounds) -> u32 {
        self.forget(now);
        let first = EffectKey {
            run_id: run_id.to_owned(),
            task_path: String::new(),
            node: String::new(),
            attempt: 0,
            effect_seq: 0,
        };
        let effects: Vec<_> =
            self.by_effect.range(first..).map(|(key, _)| key).take_while(|key| key.run_id == run_id).cloned().collect();
        let revoked = effects.iter().filter(|effect| self.end(effect)).count();
        if self.ended.insert(run_id.to_owned()) {
            self.ended_by_age.push_back((now + bounds.ended_run_memory, run_id.to_owned()));
        }
        while self.ended_by_age.len() > bounds.ended_runs_max {
            self.forget_oldest_run();
        }
        u32::try_from(revoked).unwrap_or(u32::MAX)
    }

    /// Tokens alive now.
    pub fn live(&mut self, now: SystemTime) -> usize {
        self.forget(now);
        self.live.len()
    }

    fn end(&mut self, effect: &EffectKey) -> bool {
        let Some(id) = self.by_effect.remove(effect) else { return false };
        let Some(permit) = self.live.remove(&id) else { return false };
        self.by_end.remove(&(permit.deadline, id));
        permit.ended.cancel();
        true
    }

    /// Drops what time has ended.
    fn forget(&mut self, now: SystemTime) {
        while let Some((_, id)) = self.by_end.first().copied().filter(|(end, _)| *end <= now) {
            let effect = self.live.get(&id).map(|permit| permit.binding.effect());
            if !effect.is_some_and(|effect| self.end(&effect)) {
                self.by_end.pop_first();
            }
        }
        while self.ended_by_age.front().is_some_and(|(end, _)| *end <= now) {
            self.forget_oldest_run();
        }
    }

    fn forget_oldest_run(&mut self) {
        if let Some((_, run_id)) = self.ended_by_age.pop_front() {
            self.ended.remove(&run_id);
        }
    }
}
