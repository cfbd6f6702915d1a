//! What holds for a call from its beginning to its end: one policy with its digest, its credentials' values and its rates.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use content_digest::Digest;

use crate::{
    credential::{KeyError, Keyring},
    pace::{Counted, Pace},
    policy::{Per, Policy, Rate},
    refusal::{Refusal, Why, quote},
};

/// A policy in force. A reload puts another in its place; calls under way keep theirs. No Debug: it holds secrets.
pub struct InForce {
    /// What the operator allows.
    pub policy: Policy,
    /// Its digest.
    pub digest: Digest,
    /// The credentials' values.
    pub keyring: Keyring,
    /// What is left of each tool's rate.
    rates: BTreeMap<String, (Rate, Arc<Pace>)>,
}

impl InForce {
    /// Reads the values that are at hand. What `before` holds for unchanged credentials and rates is kept.
    pub fn open(policy: Policy, before: Option<&Self>) -> Result<Self, KeyError> {
        let keyring = Keyring::open(&policy, before.map(|before| &before.keyring))?;
        let mut rates = BTreeMap::new();
        for (tool, rate) in policy.grants.iter().filter_map(|(tool, grant)| Some((tool, grant.rate?))) {
            let kept = before.and_then(|before| before.rates.get(tool)).filter(|(kept, _)| *kept == rate);
            let kept = kept.map(|(_, pace)| Arc::clone(pace));
            rates.insert(tool.clone(), (rate, kept.unwrap_or_else(|| Arc::new(pace(rate)))));
        }
        Ok(Self { digest: policy.digest(), policy, keyring, rates })
    }

    /// Takes one call of the tool's rate, if its grant has one; it goes back unless it is kept.
    pub fn take_rate(&self, tool: &str) -> Result<Option<Counted<'_>>, Refusal> {
        let Some((rate, pace)) = self.rates.get(tool) else { return Ok(None) };
        pace.count(Instant::now()).map(Some).map_err(|wait| {
            let text = format!(
                "tool {} has made the calls of its rate, {rate}: the next one can be made in {} ms",
                quote(tool),
                wait.max(Duration::from_millis(1)).as_millis()
            );
            Refusal::new(Why::RateExceeded, text)
        })
    }
}

fn pace(rate: Rate) -> Pace {
    let seconds = match rate.per {
        Per::Second => 1,
        Per::Minute => 60,
        Per::Hour => 60 * 60,
    };
    Pace::new(rate.calls.get(), Duration::from_secs(seconds))
}
