//! What effects wait for before anybody executes them: a slot, a service that is full, a service that does not answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use runner_core::key::EffectKey;

use super::{
    slot::Slot,
    until::{Cut, Until},
};

/// What an effect waits for, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// What.
    pub what: Awaited,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
}

/// What an effect may wait for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Awaited {
    /// One of `--workers`.
    Slot,
    /// A service that is full.
    Busy {
        /// Which.
        service: &'static str,
        /// Where, all addresses.
        url: String,
    },
    /// A service that does not answer.
    Silent {
        /// Which.
        service: &'static str,
        /// Where, all addresses.
        url: String,
        /// What happened instead, last.
        cause: String,
    },
}

/// The effects that wait now.
#[derive(Clone, Default)]
pub struct Waits {
    effects: Arc<Mutex<BTreeMap<(String, EffectKey), Wait>>>,
    /// Services, and where, of which it was said that they do not answer.
    silent: Arc<Mutex<BTreeSet<(&'static str, String)>>>,
}

/// One effect; it waits no more when this is dropped.
pub struct Waiter {
    waits: Waits,
    name: (String, EffectKey),
    slot: Slot,
}

/// A service that does not answer, with all who wait for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// Which.
    pub service: &'static str,
    /// Where.
    pub url: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// What happened instead, last.
    pub cause: String,
    /// Effects that wait for it.
    pub effects: usize,
}

impl Waits {
    /// An effect that may have to wait.
    pub fn waiter(&self, run_id: &str, key: &EffectKey, slot: Slot) -> Waiter {
        Waiter { waits: self.clone(), name: (run_id.to_owned(), key.clone()), slot }
    }

    /// What a run's effects wait for.
    pub fn of_run(&self, run_id: &str) -> Vec<(EffectKey, Wait)> {
        let waits = self.effects.lock();
        let of_run = waits.iter().filter(|((run, _), _)| run == run_id);
        of_run.map(|((_, key), wait)| (key.clone(), wait.clone())).collect()
    }

    /// Services that do not answer, as the effects that need them see it.
    pub fn outages(&self) -> Vec<Outage> {
        let mut outages: BTreeMap<(&'static str, String), Outage> = BTreeMap::new();
        for wait in self.effects.lock().values() {
            let Awaited::Silent { service, url, cause } = &wait.what else { continue };
            let outage = outages.entry((service, url.clone())).or_insert_with(|| Outage {
                service,
                url: url.clone(),
                since_ms: wait.since_ms,
                cause: cause.clone(),
                effects: 0,
            });
            outage.effects += 1;
            outage.since_ms = outage.since_ms.min(wait.since_ms);
        }
        outages.into_values().collect()
    }

    /// Says once that a service does not answer, and once that it does again.
    fn fell_silent(&self, what: &Awaited) {
        let Awaited::Silent { service, url, cause } = what else { return };
        if self.silent.lock().insert((service, url.clone())) {
            tracing::warn!(service, url, cause, "a service does not answer: effects wait for it");
        }
    }

    fn answers(&self, name: &(String, EffectKey)) {
        let what = self.effects.lock().get(name).map(|wait| wait.what.clone());
        let Some(Awaited::Silent { service, url, .. }) = what else { return };
        if self.silent.lock().remove(&(service, url.clone())) {
            tracing::info!(service, url, "a service answers again");
        }
    }

    /// Of a service that nobody waits for it is not known whether it answers.
    fn count(&self) {
        let waits = self.effects.lock();
        self.silent.lock().retain(|(service, url)| {
            waits.values().any(
                |wait| matches!(&wait.what, Awaited::Silent { service: of, url: at, .. } if of == service && at == url),
            )
        });
        for service in SERVICES {
            let waiting = waits
                .values()
                .filter(|wait| matches!(&wait.what, Awaited::Silent { service: of, .. } if *of == service));
            metrics::gauge!("areev_effects_waiting_for_silent_service", "service" => service)
                .set(waiting.count() as f64);
        }
        for kind in KINDS {
            let waiting = waits.values().filter(|wait| wait.what.kind() == kind);
            metrics::gauge!("areev_effects_waiting", "for" => kind).set(waiting.count() as f64);
        }
    }
}

/// What is waited for, as metrics name it.
const KINDS: [&str; 3] = ["slot", "busy_service", "silent_service"];
/// The services that effects need, as texts and metrics name them.
const SERVICES: [&str; 3] = [SANDBOX, BROKER, HOST_TOOL];
/// The sandbox.
pub const SANDBOX: &str = "sandbox";
/// The broker.
pub const BROKER: &str = "credential broker";
/// The host-tool service.
pub const HOST_TOOL: &str = "host tool";

impl Waiter {
    /// It waits for this, from now on unless it did before.
    pub fn waits(&self, what: Awaited) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        {
            let mut waits = self.waits.effects.lock();
            let before = waits.get(&self.name).filter(|wait| wait.what.is_same_kind(&what));
            let since_ms = before.map_or(now_ms, |wait| wait.since_ms);
            waits.insert(self.name.clone(), Wait { what: what.clone(), since_ms });
        }
        self.waits.fell_silent(&what);
        self.waits.count();
    }

    /// Takes the effect's slot.
    pub(super) async fn takes_slot(&self) {
        if self.slot.is_scarce() {
            self.waits(Awaited::Slot);
            self.slot.take().await;
            self.goes_on();
        } else {
            self.slot.take().await;
        }
    }

    /// Waits for some time without the effect's slot, which others can use meanwhile, and then asks whether it makes sense to
    /// go on: only if it does the slot is taken again.
    pub(super) async fn rests(
        &self,
        until: &Until<'_>,
        pause: Duration,
        answers: impl Future<Output = bool>,
    ) -> Result<bool, Cut> {
        self.slot.give_back();
        until.pause(pause).await?;
        let answers = until.first(answers).await?;
        if answers {
            self.waits.answers(&self.name);
            until.first(self.takes_slot()).await?;
        }
        Ok(answers)
    }

    /// It does not wait now.
    pub fn goes_on(&self) {
        let waited = self.waits.effects.lock().remove(&self.name).is_some();
        if waited {
            self.waits.count();
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.goes_on();
    }
}

impl Awaited {
    fn is_same_kind(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Slot, Self::Slot) => true,
            (Self::Busy { service, .. }, Self::Busy { service: of, .. })
            | (Self::Silent { service, .. }, Self::Silent { service: of, .. }) => service == of,
            (Self::Slot | Self::Busy { .. } | Self::Silent { .. }, _) => false,
        }
    }

    fn kind(&self) -> &'static str {
        let [slot, busy, silent] = KINDS;
        match self {
            Self::Slot => slot,
            Self::Busy { .. } => busy,
            Self::Silent { .. } => silent,
        }
    }

    /// For people: what is waited for.
    pub fn text(&self) -> String {
        match self {
            Self::Slot => "a free slot of --workers".to_owned(),
            Self::Busy { service, url } => format!("the {service} at {url}, which is busy"),
            Self::Silent { service, url, cause } => format!("the {service} at {url}, which does not answer: {cause}"),
        }
    }

    /// For people: what would unblock it.
    pub fn unblocked_by(&self) -> &'static str {
        match self {
            Self::Slot => "another effect ending",
            Self::Busy { .. } => "the service having room; the effect's timeout ends the wait",
            Self::Silent { .. } => "the service answering; the effect's timeout ends the wait",
        }
    }
}

#[cfg(test)]
mod tests {
    use runner_core::key::EffectKind;

    use super::*;

    fn silent(cause: &str) -> Awaited {
        Awaited::Silent { service: SANDBOX, url: "http://a:1".to_owned(), cause: cause.to_owned() }
    }

    #[test]
    fn a_wait_begins_once_changes_its_cause_and_ends_with_its_effect() {
        let waits = Waits::default();
        let key = EffectKey::of_node("work", 1, EffectKind::Tool);
        let slot = || Slot::of(&Arc::new(tokio::sync::Semaphore::new(1)));
        let waiter = waits.waiter("r1", &key, slot());
        assert!(waits.of_run("r1").is_empty());
        waiter.waits(silent("refused"));
        let since_ms = waits.of_run("r1")[0].1.since_ms;
        let other = waits.waiter("r2", &key, slot());
        other.waits(silent("refused"));
        waiter.waits(silent("no route"));
        let (_, wait) = waits.of_run("r1")[0].clone();
        assert_eq!((wait.since_ms, wait.what), (since_ms, silent("no route")));
        let outages = waits.outages();
        assert_eq!((outages.len(), outages[0].effects, outages[0].service), (1, 2, "sandbox"));
        waiter.waits(Awaited::Slot);
        assert_eq!(waits.outages()[0].effects, 1);
        drop((waiter, other));
        assert!(waits.of_run("r1").is_empty() && waits.outages().is_empty());
    }
}
