//! Drives one run: takes in what wakes it, journals what follows, and only then acts.

mod cancel;
mod commit;
mod effects;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use runner_core::{
    entry::Entry,
    input::{Declined, Input},
    key::EffectKey,
    outcome::EffectOutcome,
    owed::{next_tick_ms, owed, owed_after},
    run::feed,
    state::State,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use self::effects::Flying;
use super::{
    Runs, Shared,
    command::{Command, CommandError, Ended},
    view::RunView,
};
use crate::dispatch::{Ending, NotJournaled, Settled};

pub use self::commit::Lost;

/// Inputs that one step takes at most.
const STEP_INPUTS_MAX: usize = 256;
/// Bytes of entries from which a step takes no further input.
const STEP_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Requests that wait for one driver.
pub const INBOX_MAX: usize = 1024;
/// Longest sleep: the wall clock may be set while the driver sleeps.
const SLEEP_MAX: Duration = Duration::from_secs(30);

/// One run in the process that drives it.
pub struct Driver {
    shared: Arc<Shared>,
    state: State,
    fence: u64,
    lease_ends: Instant,
    inbox: mpsc::Receiver<Command>,
    /// Handed to effects, so that they can have their exchanges journaled.
    outbox: mpsc::Sender<Command>,
    flying: BTreeMap<EffectKey, Flying>,
    runs: Runs,
    /// What is known of the child runs in flight.
    children: BTreeMap<EffectKey, Arc<RunView>>,
    settling: JoinSet<(EffectKey, Settled)>,
    cancels: Vec<oneshot::Sender<Result<Ended, CommandError>>>,
    /// Whether the run is paused, for its child runs.
    paused: watch::Sender<bool>,
    /// The broker is asked to end the tokens of the run, which is being canceled.
    revoking: JoinSet<u32>,
    view: watch::Sender<Arc<RunView>>,
    drain: CancellationToken,
}

/// Everything that can wake a driver.
enum Wake {
    Command(Command),
    Settled(EffectKey, Settled),
    Revoked(u32),
    Due,
    Renew,
    Drain,
}

/// What is told to somebody once the step is durable.
enum Telling {
    Answered(oneshot::Sender<Result<Arc<RunView>, CommandError>>),
    Declined(oneshot::Sender<Result<Arc<RunView>, CommandError>>, Declined),
    Exchanged(oneshot::Sender<Result<(), NotJournaled>>, Result<(), NotJournaled>),
}

impl Telling {
    fn of(reply: oneshot::Sender<Result<Arc<RunView>, CommandError>>, declined: Option<Declined>) -> Self {
        match declined {
            None => Self::Answered(reply),
            Some(declined) => Self::Declined(reply, declined),
        }
    }
}

/// One durable step: entries and who is told of them.
#[derive(Default)]
struct Step {
    entries: Vec<Entry>,
    /// Bytes of the entries, texts beside them included.
    bytes: u64,
    tellings: Vec<Telling>,
    /// Whether a child run's part of the view is another one now.
    child_moved: bool,
}

/// What a driver starts with.
pub struct Begin {
    /// Every run of this process.
    pub runs: Runs,
    /// The state after the run's durable events.
    pub state: State,
    /// The fence of its lease.
    pub fence: u64,
    /// Where requests come from.
    pub inbox: (mpsc::Sender<Command>, mpsc::Receiver<Command>),
    /// Where views go.
    pub view: watch::Sender<Arc<RunView>>,
    /// Cancelled when the service drains.
    pub drain: CancellationToken,
}

impl Driver {
    /// Takes a run over.
    pub fn new(shared: Arc<Shared>, begin: Begin) -> Self {
        let lease_ends = Instant::now() + shared.lease;
        let (outbox, inbox) = begin.inbox;
        Self {
            shared,
            state: begin.state,
            fence: begin.fence,
            lease_ends,
            inbox,
            outbox,
            flying: BTreeMap::new(),
            runs: begin.runs,
            children: BTreeMap::new(),
            settling: JoinSet::new(),
            cancels: Vec::new(),
            paused: watch::Sender::new(false),
            revoking: JoinSet::new(),
            view: begin.view,
            drain: begin.drain,
        }
    }

    /// Drives the run until it ends, the service drains, or the lease is lost.
    pub async fn drive(mut self) -> Result<(), Lost> {
        self.act(owed(&self.state));
        while self.state.outcome().is_none() {
            let wake = self.wake().await;
            if matches!(wake, Wake::Drain) && self.flying.is_empty() {
                tracing::info!(run_id = self.state.run_id(), "left for the next start");
                return Ok(());
            }
            let step = self.gather(wake).await?;
            let owed = owed_after(&self.state, &step.entries);
            self.finish_step(step).await?;
            self.act(owed);
        }
        self.ended().await;
        Ok(())
    }

    /// Waits for whatever comes first.
    async fn wake(&mut self) -> Wake {
        let due = self.sleep_until_due();
        let renew_in =
            self.lease_ends.saturating_duration_since(Instant::now()).saturating_sub(self.shared.lease * 2 / 3);
        let renewing = !self.flying.is_empty();
        let draining = self.drain.is_cancelled() && self.flying.is_empty();
        tokio::select! {
            biased;
            () = std::future::ready(()), if draining => Wake::Drain,
            Some(Ok((key, settled))) = self.settling.join_next(), if !self.settling.is_empty() => {
                Wake::Settled(key, settled)
            }
            Some(revoked) = self.revoking.join_next(), if !self.revoking.is_empty() => {
                Wake::Revoked(revoked.unwrap_or_default())
            }
            Some(command) = self.inbox.recv() => Wake::Command(command),
            () = tokio::time::sleep(renew_in), if renewing => Wake::Renew,
            () = tokio::time::sleep(due.unwrap_or(SLEEP_MAX)), if due.is_some() => Wake::Due,
            () = self.drain.cancelled(), if !self.drain.is_cancelled() => Wake::Drain,
        }
    }

    fn sleep_until_due(&self) -> Option<Duration> {
        let now = self.shared.now_ms();
        next_tick_ms(&self.state).map(|due| Duration::from_millis(due.saturating_sub(now)).min(SLEEP_MAX))
    }

    /// Takes in what woke the driver and whatever else is there already, for one commit.
    async fn gather(&mut self, first: Wake) -> Result<Step, Lost> {
        let mut step = Step::default();
        let mut next = Some(first);
        for _ in 0..STEP_INPUTS_MAX {
            let Some(wake) = next.take() else { break };
            self.absorb(wake, &mut step).await?;
            if step.bytes >= STEP_BYTES_MAX {
                break;
            }
            next = match self.settling.try_join_next() {
                Some(Ok((key, settled))) => Some(Wake::Settled(key, settled)),
                Some(Err(_)) | None => self.inbox.try_recv().ok().map(Wake::Command),
            };
        }
        if let Some(wake) = next {
            self.absorb(wake, &mut step).await?;
        }
        Ok(step)
    }

    async fn absorb(&mut self, wake: Wake, step: &mut Step) -> Result<(), Lost> {
        match wake {
            Wake::Command(command) => self.obey(command, step)?,
            Wake::Settled(key, settled) => self.settled(key, settled, step)?,
            Wake::Revoked(tokens) => self.revoked(tokens, step)?,
            Wake::Due => {
                self.take(Input::Tick, step)?;
            }
            Wake::Renew => self.renew().await?,
            Wake::Drain => {}
        }
        Ok(())
    }

    fn obey(&mut self, command: Command, step: &mut Step) -> Result<(), Lost> {
        match command {
            Command::Answer { tool_call_id, by, answer, is_error, reply } => {
                let declined = self.take(Input::Answer { tool_call_id, by, answer, is_error }, step)?;
                step.tellings.push(Telling::of(reply, declined));
            }
            Command::Exchange { key, exchange, reply } => {
                let declined = self.take(Input::Exchange { key, exchange }, step)?;
                step.tellings.push(Telling::Exchanged(reply, declined.map_or(Ok(()), |_| Err(NotJournaled))));
            }
            Command::Cancel { by, reason, reply } => self.cancel((by, reason), reply, step)?,
            Command::Pause { by, reply } => {
                let declined = self.take(Input::Pause { by }, step)?;
                step.tellings.push(Telling::of(reply, declined));
            }
            Command::Resume { by, reply } => {
                let declined = self.take(Input::Resume { by }, step)?;
                step.tellings.push(Telling::of(reply, declined));
            }
            Command::Child { key, view } => {
                self.children.insert(key, view);
                step.child_moved = true;
            }
        }
        Ok(())
    }

    fn settled(&mut self, key: EffectKey, settled: Settled, step: &mut Step) -> Result<(), Lost> {
        self.flying.remove(&key);
        self.children.remove(&key);
        let outcome = match settled.ending {
            Ending::Left => return Ok(()),
            Ending::Outcome(outcome) => outcome,
            Ending::Canceled => effects::canceled(),
            Ending::NotJournaled => effects::not_journaled(),
            Ending::InDoubt { why } => {
                self.take(Input::Lost { key, why }, step)?;
                return Ok(());
            }
        };
        // An effect that is not in flight any more was decided without this answer: it is late, and not taken.
        if let Some(declined) = self.take(Input::Result { key: key.clone(), outcome, usage: settled.usage }, step)? {
            tracing::info!(run_id = self.state.run_id(), %declined, "a result was not taken");
        }
        if let Some(late) = settled.late {
            let (output, usage) = *late;
            // It settled as timed out; what came after that is evidence and nothing else.
            let outcome = EffectOutcome::Completed { output };
            self.take(Input::Result { key, outcome, usage }, step)?;
        }
        Ok(())
    }

    /// One input, with everything that it leads to; why it was declined, if it was.
    fn take(&mut self, input: Input, step: &mut Step) -> Result<Option<Declined>, Lost> {
        let fed = feed(&mut self.state, input, self.shared.now_ms())
            .map_err(|corrupt| Lost::Quarantine(format!("a decision does not hold: {corrupt}")))?;
        step.bytes += fed.entries.iter().map(Entry::stored_bytes).sum::<u64>();
        step.entries.extend(fed.entries);
        Ok(fed.declined)
    }

    /// Makes the step durable, then tells whoever waits for it.
    async fn finish_step(&mut self, step: Step) -> Result<(), Lost> {
        if !step.entries.is_empty() {
            self.commit(&step.entries).await?;
        }
        if !step.entries.is_empty() || step.child_moved {
            let view = RunView::of(&self.state).with_children(&self.state, &self.children);
            self.view.send_replace(Arc::new(view));
        }
        let view = Arc::clone(&self.view.borrow());
        for telling in step.tellings {
            // Whoever asked may have gone; what was asked for is done all the same.
            match telling {
                Telling::Answered(reply) => drop(reply.send(Ok(Arc::clone(&view)))),
                Telling::Declined(reply, declined) => drop(reply.send(Err(CommandError::Declined(declined)))),
                Telling::Exchanged(reply, taken) => drop(reply.send(taken)),
            }
        }
        Ok(())
    }
}
