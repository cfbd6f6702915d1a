//! The broker's replicas. Every effect of a run has its token from the same one, as long as that answers: a token is spent where
//! it was minted.

use std::time::Duration;

use content_digest::Digest;
use futures::future::join_all;
use proto::{fault::Reason, tls::TlsMaterial};
use tokio::time::Instant;

use super::{
    backoff::Backoff,
    broker_client::{Broker, Granted, Spender},
    config::DispatchConfigError,
    effect::{Effect, Ending},
    ready::Unready,
    rendezvous,
    service_client::Trouble,
    shown_time,
    until::Until,
    waits::{Awaited, BROKER, Waiter},
};

/// At least one replica.
pub(super) struct Brokers {
    replicas: Vec<Broker>,
    patience: Duration,
}

impl Brokers {
    /// Reaches the replicas with the first call; none without an address.
    pub(super) fn new(
        urls: &[String],
        tls: Option<&TlsMaterial>,
        patience: Duration,
    ) -> Result<Option<Self>, DispatchConfigError> {
        let replicas = urls.iter().map(|url| Broker::new(url, tls)).collect::<Result<Vec<_>, _>>()?;
        Ok((!replicas.is_empty()).then_some(Self { replicas, patience }))
    }

    /// Mints a token, at the next replica when one does not answer, and trying for a while when none does. None when the host
    /// grants this tool nothing.
    ///
    /// # Errors
    /// How the effect ends: no broker can be reached or one refuses, or the effect has to stop.
    pub(super) async fn mint(
        &self,
        (effect, waiter): (&Effect, &Waiter),
        spender: Spender,
        until: &Until<'_>,
    ) -> Result<Option<Granted>, Ending> {
        let order = rendezvous::order(self.replicas.iter().map(Broker::url), &Digest::of(&effect.run_id));
        let several = order.len() > 1;
        let mut backoff = Backoff::of(effect.idempotency_key);
        let began = Instant::now();
        loop {
            let mut troubles = Vec::with_capacity(order.len());
            for replica in order.iter().map(|index| &self.replicas[*index]) {
                match replica.mint((effect, spender), until, several).await? {
                    Ok(granted) => {
                        waiter.goes_on();
                        return Ok(Some(granted));
                    }
                    Err(Trouble::Refused { reason: Some(Reason::NoGrant), .. }) => return Ok(None),
                    Err(Trouble::Refused { text, .. }) => {
                        let failure =
                            format_args!("the credential broker at {} refused a token: {text}", replica.url());
                        return Err(Ending::executor_error(failure));
                    }
                    Err(trouble) => {
                        if matches!(trouble, Trouble::Lost(_)) {
                            replica.forget(effect);
                        }
                        troubles.push((replica.url(), trouble));
                    }
                }
            }
            let asked = troubles.iter().filter_map(|(_, trouble)| match trouble {
                Trouble::Busy(asked) => *asked,
                _ => None,
            });
            let pause = match asked.min() {
                Some(asked) => backoff.next_after(asked),
                None => backoff.next(),
            };
            let (url, trouble) = troubles.first().expect("there is at least one replica");
            if began.elapsed().saturating_add(pause) > self.patience {
                return Err(Ending::executor_error(format_args!(
                    "the credential broker at {url} did not mint a token within {}: {}",
                    shown_time(self.patience),
                    trouble.text()
                )));
            }
            waiter.waits(match trouble {
                Trouble::Busy(_) => Awaited::Busy { service: BROKER, url: (*url).to_owned() },
                silent => Awaited::Silent { service: BROKER, url: (*url).to_owned(), cause: silent.text().to_owned() },
            });
            let doing = || format!("the credential broker at {url} could not be reached: {}", trouble.text());
            let silent = !troubles.iter().any(|(_, trouble)| matches!(trouble, Trouble::Busy(_)));
            let mut pause = pause;
            loop {
                let answering = async { !silent || self.policy_digest().await.is_ok() };
                let rested = waiter.rests(until, pause, answering).await;
                if rested.map_err(|cut| until.ending(cut, &doing()))? || began.elapsed() > self.patience {
                    break;
                }
                pause = backoff.next();
            }
        }
    }

    /// Ends every token of a run at every replica, and every one minted for it later. Answers how many were alive.
    ///
    /// # Errors
    /// The first replica that does not answer; its tokens end by their deadlines.
    pub(super) async fn revoke_run(&self, run_id: &str) -> Result<u32, Unready> {
        let answers = join_all(self.replicas.iter().map(|replica| replica.revoke_run(run_id))).await;
        answers.into_iter().try_fold(0, |sum: u32, revoked| Ok(sum.saturating_add(revoked?)))
    }

    /// Digest of the policy in force, by the first replica that answers.
    ///
    /// # Errors
    /// Why the last one does not.
    pub(super) async fn policy_digest(&self) -> Result<Digest, Unready> {
        let mut answer = self.replicas[0].policy_digest().await;
        for replica in &self.replicas[1..] {
            if answer.is_ok() {
                break;
            }
            answer = replica.policy_digest().await;
        }
        answer
    }
}
