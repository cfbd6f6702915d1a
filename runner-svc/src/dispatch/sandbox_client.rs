//! Code by service: which sandbox gets an effect, and what happens when it is full, silent or lost.

mod blob;
mod call;
mod relayed;
mod replica;
mod sites;
pub(super) mod words;

pub(super) use words::record as record_of;

use std::{sync::Arc, time::Duration};

use proto::{fault::Reason, tls::TlsMaterial};
use runner_core::{event::Exchange, manifest::OnDangling, outcome::FailureCause, pinned::Runtime};
use tokio::time::Instant;

use super::{
    backoff::Backoff,
    broker_client::{Granted, artifacts::Artifacts},
    code::{CodeRef, SharedCode},
    config::DispatchConfigError,
    effect::{Effect, Ending, JournalExchange, Settled},
    names::Names,
    ready::Unready,
    rendezvous,
    service_client::Trouble,
    shown_time,
    token::Egress,
    until::{Cut, Until},
    waits::{Awaited, SANDBOX, Waiter},
};
use replica::Replica;
use sites::Sites;

/// How often an effect is sent again after a sandbox was lost while it may have been running.
const LOST_MAX: u32 = 3;

/// The sandboxes of this runner.
pub(super) struct Sandboxes {
    sites: Sites,
    patience: Duration,
}

/// One effect on its way to a sandbox.
pub(super) struct Delivery<'a> {
    pub effect: &'a Effect,
    pub code: CodeRef<'a>,
    pub egress: Option<&'a Egress>,
    pub journal: &'a JournalExchange<'a>,
    pub until: Until<'a>,
    /// Exchanges that are durable: the guest is answered from them first.
    pub recorded: Vec<Exchange>,
    /// Told what the effect waits for.
    pub waiter: &'a Waiter,
    /// Longest time that no sandbox answers; then the effect has no end.
    pub patience: Option<Duration>,
    /// The way that bodies go which are blobs.
    pub artifacts: Option<(&'a Artifacts, &'a Granted)>,
}

/// What became of one round over all replicas.
enum Round {
    /// It ended.
    Settled(Settled),
    /// At least one is alive but full; the shortest wait that one of them named.
    Busy(Option<Duration>),
    /// None took it.
    Unavailable(String),
}

impl Sandboxes {
    /// Reaches the sandboxes at their addresses, each with its first call.
    pub(super) fn new(
        (urls, names): (&[String], Arc<dyn Names>),
        source: &SharedCode,
        tls: Option<&TlsMaterial>,
        patience: Duration,
    ) -> Result<Self, DispatchConfigError> {
        Ok(Self { sites: Sites::new(urls, names, source, tls)?, patience })
    }

    /// Executes one effect: on the digest's own replica, on the next one when that is full or silent.
    pub(super) async fn execute(&self, mut delivery: Delivery<'_>) -> Settled {
        let until = delivery.until;
        let mut backoff = Backoff::of(delivery.effect.idempotency_key);
        let (mut silent_since, mut lost) = (None, 0);
        let mut answers = true;
        let mut silence = String::new();
        loop {
            // While none answers none is sent anything: asking costs no slot.
            let round = if answers {
                self.round(&mut delivery, &mut lost).await
            } else {
                Round::Unavailable(std::mem::take(&mut silence))
            };
            let (pause, doing, silent) = match round {
                Round::Settled(settled) => return settled,
                Round::Busy(asked) => {
                    silent_since = None;
                    let pause = if let Some(asked) = asked { backoff.next_after(asked) } else { backoff.next() };
                    delivery.waiter.waits(Awaited::Busy { service: SANDBOX, url: self.urls() });
                    (pause, "every sandbox was busy".to_owned(), false)
                }
                Round::Unavailable(text) => {
                    let pause = backoff.next();
                    let since = *silent_since.get_or_insert_with(Instant::now);
                    if let Some(patience) = delivery.patience.map(|patience| patience.min(self.patience))
                        && since.elapsed().saturating_add(pause) > patience
                    {
                        let patience = shown_time(patience);
                        return Ending::InDoubt {
                            why: format!("no sandbox could be reached within {patience}: {text}"),
                        }
                        .into();
                    }
                    if since.elapsed().saturating_add(pause) > self.patience {
                        let patience = shown_time(self.patience);
                        let text = format_args!("no sandbox could be reached within {patience}: {text}");
                        return Ending::executor_error(text).into();
                    }
                    let cause = text.clone();
                    silence.clone_from(&text);
                    delivery.waiter.waits(Awaited::Silent { service: SANDBOX, url: self.urls(), cause });
                    (pause, format!("no sandbox could be reached: {text}"), true)
                }
            };
            let answering = async { !silent || self.ready().await.is_ok() };
            match delivery.waiter.rests(&until, pause, answering).await {
                Ok(alive) => answers = alive,
                Err(cut) => return until.ending(cut, &doing).into(),
            }
        }
    }

    /// Asks every replica whether it answers; one is enough.
    pub(super) async fn ready(&self) -> Result<(), Vec<Unready>> {
        let replicas = self.sites.replicas().await;
        let answers = futures::future::join_all(replicas.iter().map(|replica| replica.ready())).await;
        if answers.iter().any(Result::is_ok) {
            return Ok(());
        }
        Err(answers.into_iter().filter_map(Result::err).collect())
    }

    /// What isolates native blobs in every sandbox that answers.
    pub(super) async fn native_isolation(&self) -> Vec<String> {
        let answers = {
            let replicas = self.sites.replicas().await;
            futures::future::join_all(replicas.iter().map(|replica| replica.native_isolation())).await
        };
        let common = answers.into_iter().flatten().reduce(|mut common, other| {
            common.retain(|barrier| other.contains(barrier));
            common
        });
        common.unwrap_or_default()
    }

    async fn round(&self, delivery: &mut Delivery<'_>, lost: &mut u32) -> Round {
        let replicas = self.sites.replicas().await;
        let order = rendezvous::order(replicas.iter().map(|replica| replica.url()), delivery.code.digest);
        let (mut busy, mut asked, mut silence) = (false, None::<Duration>, Vec::new());
        for index in order {
            let replica: &Replica = &replicas[index];
            match replica.deliver(delivery).await {
                Ok(settled) => return Round::Settled(settled),
                Err(call::NoOutcome::Cut(cut)) => return Round::Settled(cut_while_running(delivery, cut).into()),
                Err(call::NoOutcome::NotJournaled) => return Round::Settled(Ending::NotJournaled.into()),
                Err(call::NoOutcome::Trouble(trouble)) => match trouble {
                    Trouble::Busy(after) => {
                        busy = true;
                        asked = asked.into_iter().chain(after).min();
                    }
                    Trouble::Unavailable(text) => silence.push(format!("{}: {text}", replica.url())),
                    Trouble::Refused { reason: Some(Reason::DeadlineExceeded), text } => {
                        let over = format_args!("the sandbox at {}: {text}", replica.url());
                        return Round::Settled(Ending::timeout(over).into());
                    }
                    Trouble::Refused { text, .. } => {
                        let refusal = format_args!("the sandbox at {} refused: {text}", replica.url());
                        return Round::Settled(Ending::executor_error(refusal).into());
                    }
                    Trouble::Lost(text) => {
                        *lost += 1;
                        if let Some(ending) = given_up(delivery, *lost, replica.url(), &text) {
                            return Round::Settled(ending.into());
                        }
                        tracing::warn!(
                            sandbox = replica.url(),
                            cause = text,
                            lost,
                            "sandbox lost; sending the effect again"
                        );
                        silence.push(format!("{}: {text}", replica.url()));
                    }
                },
            }
        }
        if busy { Round::Busy(asked) } else { Round::Unavailable(silence.join("; ")) }
    }

    fn urls(&self) -> String {
        self.sites.urls()
    }
}

fn cut_while_running(delivery: &Delivery<'_>, cut: Cut) -> Ending {
    delivery.until.ending(cut, "the sandbox was executing it")
}

/// Whether an effect ends because its sandbox was lost while it may have been running. A pure module changes nothing by
/// running twice; one with brokered calls goes on from its durable exchanges, if the run wants that; a native blob is never
/// run twice on a guess.
fn given_up(delivery: &Delivery<'_>, lost: u32, url: &str, text: &str) -> Option<Ending> {
    let (runtime, on_dangling) = (delivery.code.runtime, delivery.effect.on_dangling);
    let unknown = "whether it reached the world is not known";
    match runtime {
        Runtime::Wasm if lost <= LOST_MAX => None,
        Runtime::WasmIo if lost <= LOST_MAX && on_dangling == OnDangling::Redispatch => None,
        Runtime::Wasm => Some(Ending::executor_error(format_args!(
            "the sandbox at {url} was lost {lost} times while executing: {text}"
        ))),
        Runtime::WasmIo if on_dangling == OnDangling::Redispatch => Some(Ending::executor_error(format_args!(
            "the sandbox at {url} was lost {lost} times while executing; {unknown}: {text}"
        ))),
        Runtime::WasmIo | Runtime::Native if on_dangling == OnDangling::Ask => {
            Some(Ending::InDoubt { why: format!("the sandbox at {url} was lost while executing; {unknown}: {text}") })
        }
        Runtime::WasmIo | Runtime::Native => Some(Ending::failed(
            FailureCause::Unknown,
            format_args!("the sandbox at {url} was lost while executing; {unknown}: {text}"),
        )),
    }
}
