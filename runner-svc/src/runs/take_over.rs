//! Takes one unfinished run over: folds its journal, and commits at once who drives it now and what follows from that.

use std::time::Duration;

use runner_core::{
    input::Input,
    owed::{Owed, next_tick_ms, owed},
    run::feed,
    state::State,
};

use super::{
    Handle, Room, Runs,
    attempts::CRASHES_MAX,
    load::{self, LoadError},
    record,
    view::Summary,
};
use crate::journal::{AppendError, LeaseError, ReadError, RunInfo, Urgency};

/// What became of a run.
pub enum Taken {
    /// It is driven here.
    Driven(Handle),
    /// Only people or the clock can move it on, and there is no room for it: until then it stays on the disk.
    Parked {
        /// When the clock does, in milliseconds since 1970.
        due_ms: Option<u64>,
    },
    /// It has ended.
    Ended,
}

/// Why it could not be taken over.
#[derive(Debug)]
pub enum Trouble {
    /// Its records are damaged: trying again would be the same.
    Lasting(String),
    /// The store does not answer now.
    Passing(String),
}

impl Runs {
    /// Takes a run over. Without `room` it is parked if it can be. What it is told `first` is durable before any of its effects
    /// is sent again.
    pub(super) async fn take_over(
        &self,
        run_id: &str,
        room: Option<Room>,
        first: Vec<Input>,
    ) -> Result<Taken, Trouble> {
        let info = match self.shared().journal.run(run_id) {
            Ok(info) if info.finished => return Ok(Taken::Ended),
            Ok(info) => info,
            Err(ReadError::NotFound(_)) => return Ok(Taken::Ended),
            Err(ReadError::Storage(storage)) => return Err(Trouble::Passing(storage.to_string())),
            Err(error @ (ReadError::Damaged(_) | ReadError::TooManyWatched(_))) => {
                return Err(Trouble::Lasting(error.to_string()));
            }
        };
        let state = self.fold(run_id).await?;
        if state.outcome().is_some() {
            // The store says otherwise: its bookkeeping of the run was lost, its events were not.
            return Err(Trouble::Lasting(
                "RUN-E020: the run has ended by its events, and what the store kept beside them was lost: export it to see \
                 how it ended"
                    .to_owned(),
            ));
        }
        if let Some(changed) = self.model_changed(&state) {
            return Err(Trouble::Lasting(changed));
        }
        match (room, parkable(&state)) {
            (None, Some(due_ms)) => Ok(Taken::Parked { due_ms }),
            (room, _) => self.drive_on(&info, state, (room.unwrap_or_default(), first)).await,
        }
    }

    /// Why a run does not go on under the model that this runner has now.
    fn model_changed(&self, state: &State) -> Option<String> {
        let pinned = state.manifest().model()?;
        let now = self.shared().model.as_ref();
        if now.is_some_and(|now| now.is_same(pinned)) {
            return None;
        }
        let has = now.map_or_else(|| "none".to_owned(), |model| format!("{} at {}", model.name, model.url));
        let (name, url) = (&pinned.name, &pinned.url);
        Some(format!(
            "RUN-E025: the run was started under the model {name} at {url}, and this runner has {has}: start it with --model \
             {name} --model-url {url} and the same --model-credential"
        ))
    }

    /// Folds the run's journal. That it was begun is on the disk before, so that a fold that ends this process is counted.
    async fn fold(&self, run_id: &str) -> Result<State, Trouble> {
        let (shared, id) = (self.shared().clone(), run_id.to_owned());
        let crashes = shared.attempts.crashes(run_id);
        if crashes >= CRASHES_MAX {
            return Err(Trouble::Lasting(format!(
                "loading it ended this process {crashes} times: look into the log of those starts, then run \
                 `runner-svc fsck --repair` to have it loaded again"
            )));
        }
        let folding = tokio::task::spawn_blocking(move || {
            let mark = shared.attempts.begin(&id);
            let _loading = mark.map_err(|error| Trouble::Passing(format!("its load cannot be noted: {error}")))?;
            load::state(&shared.journal, &id).map_err(|error| match error {
                LoadError::Read(ReadError::Storage(storage)) => Trouble::Passing(storage.to_string()),
                lasting => Trouble::Lasting(lasting.to_string()),
            })
        });
        match folding.await {
            Ok(folded) => folded,
            Err(panic) => Err(Trouble::Lasting(format!("its journal could not be folded: {panic}"))),
        }
    }

    async fn drive_on(
        &self,
        info: &RunInfo,
        mut state: State,
        (room, first): (Room, Vec<Input>),
    ) -> Result<Taken, Trouble> {
        let (shared, run_id) = (self.shared(), &info.header.run_id);
        let claim = shared.claim(&info.header.principal);
        let fence = info.fence + 1;
        let mut entries = Vec::new();
        let taken = Input::TakeOver { holder: claim.holder.clone(), fence };
        for input in first.into_iter().chain([taken]) {
            if state.outcome().is_some() {
                break;
            }
            // What it is told first may have been told before; that it is taken over is news.
            let must_be_taken = matches!(input, Input::TakeOver { .. });
            let fed = feed(&mut state, input, shared.now_ms())
                .map_err(|corrupt| Trouble::Lasting(format!("a decision does not hold: {corrupt}")))?;
            entries.extend(fed.entries);
            if let Some(declined) = fed.declined.filter(|_| must_be_taken) {
                return Err(Trouble::Lasting(declined.to_string()));
            }
        }
        let mut parts = record::parts(&entries).into_iter().peekable();
        let mut appends = Vec::new();
        while let Some(part) = parts.next() {
            let summary = parts.peek().is_none().then(|| Summary::of(&state).to_bytes());
            appends.push(record::append((run_id, fence), Urgency::Closing, part, summary));
        }
        let mut appends = appends.into_iter();
        let Some(first) = appends.next() else { return Err(Trouble::Lasting("a takeover left no event".to_owned())) };
        let lease = match shared.journal.take_over(claim, first).await {
            Ok(lease) => lease,
            Err(LeaseError::Finished(_) | LeaseError::NotFound(_)) => return Ok(Taken::Ended),
            Err(error @ (LeaseError::TooLarge(_) | LeaseError::Damaged(_))) => {
                return Err(Trouble::Lasting(error.to_string()));
            }
            Err(passing) => return Err(Trouble::Passing(passing.to_string())),
        };
        // A takeover of very many effects is more than one commit takes.
        for append in appends {
            match shared.journal.append(append).await {
                Ok(_) => {}
                Err(AppendError::Storage(storage)) => return Err(Trouble::Passing(storage.to_string())),
                Err(lasting) => return Err(Trouble::Lasting(lasting.to_string())),
            }
        }
        tracing::info!(run_id, events = state.events(), fence = lease.fence, "run taken over");
        Ok(Taken::Driven(self.spawn(state, lease.fence, room)))
    }
}

/// Whether only people or the clock can move the run on; and when the clock does.
fn parkable(state: &State) -> Option<Option<u64>> {
    let moves_by_itself = |owed: &Owed| matches!(owed, Owed::Dispatch(_) | Owed::Child { .. } | Owed::Stop { .. });
    (!state.owes_revocation() && !owed(state).iter().any(moves_by_itself)).then(|| next_tick_ms(state))
}

/// How long after `tries` failures a run is tried again.
pub(super) fn pause(tries: u32) -> Duration {
    const FIRST: Duration = Duration::from_millis(250);
    const LONGEST: Duration = Duration::from_secs(30);
    FIRST.saturating_mul(2_u32.saturating_pow(tries)).min(LONGEST)
}
