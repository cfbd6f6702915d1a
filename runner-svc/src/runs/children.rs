//! A child run from its parent's side: started once, found again after a crash, followed to its end, canceled with its parent.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use runner_core::{
    child::{self, ChildRun},
    input::Input,
    key::EffectKey,
    manifest::ParentRun,
    outcome::{EffectOutcome, Failure, FailureCause, FailureCode, RunOutcome},
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::{Handle, Runs, StartError, Started, command::Command, load, view::RunView};
use crate::{
    dispatch::{Ending, Settled},
    journal::{CreateError, ParentHeader, ReadError},
};

/// First and longest wait while the store does not answer.
const WAIT_FIRST: Duration = Duration::from_millis(50);
const WAIT_LONGEST: Duration = Duration::from_secs(2);
/// Longest sleep: the wall clock may be set while a deadline is waited for.
const SLEEP_MAX: Duration = Duration::from_secs(30);

/// Tells an effect to stop. Without a reason only this process stops attending to it.
#[derive(Clone, Default)]
pub(super) struct Stop {
    /// Cancelled when it is to stop.
    pub(super) token: CancellationToken,
    why: Arc<OnceLock<Why>>,
}

/// Who cancels a child run, and why.
#[derive(Clone)]
struct Why {
    by: String,
    reason: String,
}

impl Stop {
    /// Stops the effect; a child run is canceled.
    pub(super) fn cancel(&self, by: &str, reason: String) {
        // Canceled before: the first reason stands.
        let _first = self.why.set(Why { by: by.to_owned(), reason });
        self.token.cancel();
    }
}

/// One child run that a parent's driver attends to.
pub(super) struct Attending {
    /// Every run of this process.
    pub(super) runs: Runs,
    /// The parent's effect.
    pub(super) key: EffectKey,
    /// What it is.
    pub(super) child: ChildRun,
    /// Where news of it go.
    pub(super) outbox: mpsc::Sender<Command>,
    /// Stops it.
    pub(super) stop: Stop,
    /// Whether the parent is paused: then it is paused too.
    pub(super) paused: watch::Receiver<bool>,
}

/// Where a child run was found.
enum Found {
    /// Nowhere: it is to be started.
    Absent,
    /// Driven here.
    Live(Handle),
    /// At its end.
    Ended,
    /// Unfinished and not driven: its driver has just let it go.
    Between,
    /// Unfinished, and left by recovery to its parent.
    Recovering,
    /// Unfinished, and not driven before somebody mends it.
    Stuck(String),
    /// Its id belongs to a run that is not this child.
    Foreign,
    /// The store does not say.
    Unknown,
}

/// What follows from one look.
enum Next {
    Settled(Box<Settled>),
    /// Look again at once.
    Look,
    /// Look again when a run of this process has begun, ended or got stuck.
    Wait,
    /// Look again a little later.
    Later,
}

impl Attending {
    /// Attends to it until it has ended, or until it is left to the next process.
    pub(super) async fn attend_to_end(self) -> (EffectKey, Settled) {
        let settled = self.attend().await;
        (self.key, settled)
    }

    async fn attend(&self) -> Settled {
        let mut changes = self.runs.changes();
        let mut wait = WAIT_FIRST;
        loop {
            changes.mark_unchanged();
            let next = match self.runs.find(&self.child) {
                Found::Live(handle) => self.follow(&handle).await,
                Found::Ended => self.read().await,
                Found::Absent if self.stop.token.is_cancelled() => Next::of(Ending::Canceled),
                Found::Absent => self.start().await,
                // A start that the store left in doubt is taken up as soon as it is found.
                Found::Between => match self.runs.reach(self.child.manifest.run_id.as_str()).await {
                    Some(_) => Next::Look,
                    None => Next::Wait,
                },
                Found::Recovering => {
                    match self.runs.adopt(self.child.manifest.run_id.as_str(), self.before_it_goes_on()).await {
                        Ok(()) => Next::Look,
                        Err(reason) => self.delayed(&reason).await,
                    }
                }
                Found::Stuck(reason) => self.stuck(&reason).await,
                Found::Foreign => failed(FailureCause::ExecutorError, self.foreign(), None),
                Found::Unknown => Next::Later,
            };
            let drain = self.runs.drain();
            let waited = match next {
                Next::Settled(settled) => return *settled,
                Next::Look => Some(()),
                Next::Wait => {
                    let stopped = self.stop.token.is_cancelled();
                    let waiting = async {
                        tokio::select! {
                            _ = changes.changed() => {}
                            () = self.stop.token.cancelled(), if !stopped => {}
                        }
                    };
                    drain.run_until_cancelled(waiting).await
                }
                Next::Later => {
                    let slept = drain.run_until_cancelled(tokio::time::sleep(wait)).await;
                    wait = (wait * 2).min(WAIT_LONGEST);
                    slept
                }
            };
            let forsaken = self.stop.token.is_cancelled() && self.stop.why.get().is_none();
            if waited.is_none() || forsaken {
                return Ending::Left.into();
            }
        }
    }

    /// A child takes no place of `--max-concurrent-runs`: its parent, which waits for it, has one already.
    async fn start(&self) -> Next {
        match self.runs.start_child(&self.child).await {
            Ok(Started::New(_) | Started::Existing(_)) => Next::Look,
            Err(StartError::Create(CreateError::TooLarge(large))) => failed(
                FailureCause::ExecutorError,
                format!("it cannot be started: {large}"),
                Some(FailureCode::TooLarge),
            ),
            Err(error @ StartError::Broken(_)) => {
                tracing::error!(run_id = self.child.manifest.run_id.as_str(), %error, "a child run cannot be started");
                failed(
                    FailureCause::ExecutorError,
                    "it cannot be started: internal error, see the log".to_owned(),
                    None,
                )
            }
            Err(error @ (StartError::Create(_) | StartError::TooMany(_))) => {
                tracing::warn!(run_id = self.child.manifest.run_id.as_str(), %error, "a child run waits for its start");
                Next::Later
            }
        }
    }

    async fn follow(&self, handle: &Handle) -> Next {
        let mut views = handle.follow();
        let mut paused = self.paused.clone();
        let mut told: Option<Arc<RunView>> = None;
        loop {
            let view = Arc::clone(&views.borrow_and_update());
            if let Some(outcome) = &view.outcome {
                return self.ended(outcome, &view);
            }
            if told.as_ref().is_none_or(|told| told.is_news(&view)) {
                self.tell(Arc::clone(&view)).await;
                told = Some(Arc::clone(&view));
            }
            self.pause(handle, &view).await;
            if self.stop.token.is_cancelled() {
                return match self.stop.why.get() {
                    Some(why) => self.cancel(handle, why.clone()).await,
                    None => Next::of(Ending::Left),
                };
            }
            tokio::select! {
                changed = views.changed() => if changed.is_err() {
                    return Next::Look;
                },
                () = self.stop.token.cancelled() => {}
                Ok(()) = paused.changed() => {}
                () = tokio::time::sleep(self.until_deadline()), if self.child.deadline_ms.is_some() => {
                    if self.until_deadline().is_zero() {
                        let reason = self.waited_too_long();
                        return self.cancel(handle, Why { by: self.own_name(), reason }).await;
                    }
                }
            }
        }
    }

    /// What a child run whose process is gone is told before it goes on: a parent that is being canceled, or waits no longer,
    /// lets it send nothing again; a parent that is paused lets it open no superstep.
    fn before_it_goes_on(&self) -> Vec<Input> {
        if let Some(Why { by, reason }) = self.stop.why.get().cloned() {
            return vec![Input::Cancel { by, reason }];
        }
        if self.child.deadline_ms.is_some() && self.until_deadline().is_zero() {
            return vec![Input::Cancel { by: self.own_name(), reason: self.waited_too_long() }];
        }
        if *self.paused.borrow() { vec![Input::Pause { by: self.own_name() }] } else { Vec::new() }
    }

    fn waited_too_long(&self) -> String {
        format!("the timeout of node {:?} passed", self.key.node)
    }

    async fn cancel(&self, handle: &Handle, Why { by, reason }: Why) -> Next {
        let (reply, ended) = oneshot::channel();
        if handle.send(Command::Cancel { by, reason, reply }).await.is_err() {
            return Next::Look;
        }
        let Ok(Ok(ended)) = ended.await else { return Next::Look };
        match &ended.view.outcome {
            Some(outcome) => self.ended(outcome, &ended.view),
            None => Next::Look,
        }
    }

    /// Nobody drives it before somebody mends it: the parent says so, and waits; its own cancel it obeys.
    async fn stuck(&self, reason: &str) -> Next {
        if self.stop.token.is_cancelled() {
            return Next::of(Ending::Canceled);
        }
        self.tell(Arc::new(RunView::stuck(reason, self.runs.shared().now_ms()))).await;
        Next::Wait
    }

    /// It cannot be taken over now; that is tried again.
    async fn delayed(&self, reason: &str) -> Next {
        tracing::warn!(run_id = self.child.manifest.run_id.as_str(), reason, "a child run could not be taken over");
        self.tell(Arc::new(RunView::stuck(reason, self.runs.shared().now_ms()))).await;
        Next::Later
    }

    /// From its journal: it ended while nobody attended to it.
    async fn read(&self) -> Next {
        let (journal, run_id) = (self.runs.shared().journal.clone(), self.child.manifest.run_id.as_str().to_owned());
        match tokio::task::spawn_blocking(move || load::state(&journal, &run_id)).await {
            Ok(Ok(state)) => {
                let view = RunView::of(&state);
                view.outcome.as_ref().map_or(Next::Later, |outcome| self.ended(outcome, &view))
            }
            Ok(Err(load::LoadError::Read(ReadError::Storage(_)))) => Next::Later,
            Ok(Err(damage)) => self.stuck(&damage.to_string()).await,
            Err(panic) => self.stuck(&format!("its journal could not be folded: {panic}")).await,
        }
    }

    fn ended(&self, outcome: &RunOutcome, view: &RunView) -> Next {
        let run_id = &self.child.manifest.run_id;
        let (mut result, usage) = child::result(run_id, outcome, view.summary.spent, view.summary.head);
        if matches!(outcome, RunOutcome::Canceled { by, .. } if *by == self.own_name()) {
            let detail = format!("child run {run_id} did not end within the timeout of its node");
            result = EffectOutcome::Failed { failure: Failure::new(FailureCause::Timeout, &detail) };
        }
        Next::Settled(Box::new(Settled { ending: Ending::Outcome(result), usage, late: None }))
    }

    /// Pauses it with its parent, and resumes it with its parent unless somebody else paused it.
    async fn pause(&self, handle: &Handle, view: &RunView) {
        let with_parent = *self.paused.borrow();
        let own = view.paused.as_ref().map(|pause| pause.by == self.own_name());
        // Nobody waits for the answer: the child's next view shows what became of it.
        let (reply, _) = oneshot::channel();
        let _told = match (with_parent, own) {
            (true, None) => handle.send(Command::Pause { by: self.own_name(), reply }).await,
            (false, Some(true)) => handle.send(Command::Resume { by: self.own_name(), reply }).await,
            (true, Some(_)) | (false, Some(false) | None) => return,
        };
    }

    async fn tell(&self, view: Arc<RunView>) {
        // The driver may have gone; then nobody wants to know.
        let _told = self.outbox.send(Command::Child { key: self.key.clone(), view }).await;
    }

    /// By what name the parent itself cancels: no principal has one with a space.
    fn own_name(&self) -> String {
        self.child.manifest.parent.as_ref().map(ParentRun::name).unwrap_or_default()
    }

    fn foreign(&self) -> String {
        "its id is taken by a run that is not this child: start the parent under another id".to_owned()
    }

    fn until_deadline(&self) -> Duration {
        let now_ms = self.runs.shared().now_ms();
        let left_ms = self.child.deadline_ms.map_or(u64::MAX, |deadline_ms| deadline_ms.saturating_sub(now_ms));
        Duration::from_millis(left_ms).min(SLEEP_MAX)
    }
}

impl Next {
    fn of(ending: Ending) -> Self {
        Self::Settled(Box::new(ending.into()))
    }
}

fn failed(cause: FailureCause, detail: String, code: Option<FailureCode>) -> Next {
    let failure = Failure { code, ..Failure::permanent(cause, &format!("child run: {detail}")) };
    Next::of(Ending::Outcome(EffectOutcome::Failed { failure }))
}

impl Runs {
    /// Where a child run is. The store is asked first: whatever changes after it was asked is told by [`Runs::changes`].
    fn find(&self, child: &ChildRun) -> Found {
        let run_id = child.manifest.run_id.as_str();
        let info = match self.shared().journal.run(run_id) {
            Ok(info) => info,
            Err(ReadError::NotFound(_)) => return Found::Absent,
            Err(ReadError::Damaged(damaged)) => return Found::Stuck(damaged.to_string()),
            Err(ReadError::Storage(_) | ReadError::TooManyWatched(_)) => return Found::Unknown,
        };
        if info.header.parent != parent_header(&child.manifest) {
            return Found::Foreign;
        }
        if info.finished {
            return Found::Ended;
        }
        match (self.live(run_id), self.quarantine_of(run_id)) {
            (Some(handle), _) => Found::Live(handle),
            (None, Some(reason)) => Found::Stuck(reason),
            (None, None) if self.recovering(run_id).is_some() => Found::Recovering,
            (None, None) => Found::Between,
        }
    }
}

/// What a child run's header says of its parent.
pub(super) fn parent_header(manifest: &runner_core::manifest::Manifest) -> Option<ParentHeader> {
    manifest.parent.as_ref().map(|parent| ParentHeader {
        run_id: parent.run_id.as_str().to_owned(),
        tool_call_id: parent.effect.tool_call_id(parent.run_id.as_str()),
    })
}
