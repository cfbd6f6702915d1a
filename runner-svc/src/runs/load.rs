//! Reads a run's journal: page by page, off the async threads.

use content_digest::Digest;
use runner_core::{
    effects::{EffectRow, Effects},
    entry::Entry,
    event::Event,
    outcome::RunOutcome,
    state::{Corrupt, Receipt, State},
};

use super::record;
use crate::journal::{Journal, ReadError};

/// Records of one page.
const PAGE_RECORDS: usize = 256;

/// Why a run's journal cannot be folded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The journal cannot be read, or a record is damaged.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A record does not decode, or a text that it names is missing.
    #[error("RUN-E010: event {sequence} of run {run_id:?} does not decode: {problem}")]
    Entry {
        /// The run.
        run_id: String,
        /// The event.
        sequence: u64,
        /// What is wrong.
        problem: String,
    },
    /// The events do not fold to a state.
    #[error("{}", does_not_follow(run_id, cause))]
    Corrupt {
        /// The run.
        run_id: String,
        /// The event.
        sequence: u64,
        /// What is wrong.
        cause: Corrupt,
    },
    /// The run has no event.
    #[error("RUN-E010: run {run_id:?} has no first event")]
    Empty {
        /// The run.
        run_id: String,
    },
}

/// What is wrong with an event has a code of its own where another release or another manifest is the reason.
fn does_not_follow(run_id: &str, cause: &Corrupt) -> String {
    let (sequence, problem) = (cause.sequence, &cause.problem);
    match problem.split_once(": ").filter(|(code, _)| code.starts_with("RUN-E")) {
        Some((code, problem)) => format!("{code}: event {sequence} of run {run_id:?}: {problem}"),
        None => format!("RUN-E010: event {sequence} of run {run_id:?} does not follow from those before it: {problem}"),
    }
}

/// Hands every entry from a sequence number on to `each`, in order, until it answers `false`.
pub fn entries<E: From<LoadError>>(
    journal: &Journal,
    run_id: &str,
    from: u64,
    mut each: impl FnMut(Entry) -> Result<bool, E>,
) -> Result<(), E> {
    let mut next = from;
    loop {
        let page = journal.read(run_id, next, PAGE_RECORDS).map_err(LoadError::from)?;
        if page.records.is_empty() {
            return Ok(());
        }
        next = page.next;
        for stored in page.records {
            let sequence = stored.sequence;
            let entry = record::opened(stored).map_err(|cause| LoadError::Entry {
                run_id: run_id.to_owned(),
                sequence,
                problem: cause.to_string(),
            })?;
            if !each(entry)? {
                return Ok(());
            }
        }
    }
}

/// Folds the whole journal of a run.
pub fn state(journal: &Journal, run_id: &str) -> Result<State, LoadError> {
    folded(journal, run_id, |_, _| {})
}

/// Folds the whole journal of a run, showing each entry with the state after it.
pub fn folded(journal: &Journal, run_id: &str, mut each: impl FnMut(&Entry, &State)) -> Result<State, LoadError> {
    let mut folded: Option<State> = None;
    entries(journal, run_id, 0, |entry| {
        let sequence = entry.sequence();
        let corrupt = |cause| LoadError::Corrupt { run_id: run_id.to_owned(), sequence, cause };
        let state = match folded.take() {
            None => State::begin(&entry).map_err(corrupt)?,
            Some(mut state) => {
                state.apply(&entry).map_err(corrupt)?;
                state
            }
        };
        each(&entry, &state);
        folded = Some(state);
        Ok::<_, LoadError>(true)
    })?;
    folded.ok_or_else(|| LoadError::Empty { run_id: run_id.to_owned() })
}

/// The child run below a run in which an ask was settled, as it stands; none if there is none.
pub fn settled_below(journal: &Journal, run_id: &str, ask: &Digest) -> Result<Option<State>, LoadError> {
    let (_, effects) = effects(journal, run_id)?;
    for child in effects.into_iter().filter_map(|effect| effect.child_run) {
        let state = match state(journal, child.as_str()) {
            Ok(state) => state,
            // It was not started yet.
            Err(LoadError::Read(ReadError::NotFound(_))) => continue,
            Err(error) => return Err(error),
        };
        if state.settled_ask(ask).is_some() {
            return Ok(Some(state));
        }
        if let Some(deeper) = settled_below(journal, child.as_str(), ask)? {
            return Ok(Some(deeper));
        }
    }
    Ok(None)
}

/// The state from which a fork goes on: behind a closed superstep; for 0 the last from which it can, which of a run that ended
/// because a budget was spent is its very end. None if there is no such point.
pub fn fork_point(journal: &Journal, run_id: &str, superstep: u64) -> Result<Option<State>, LoadError> {
    let (mut point, mut before) = (None, None);
    folded(journal, run_id, |entry, state| {
        let is_point = match entry.event() {
            Event::RunStarted { .. } => superstep == 0 && state.is_forkable(),
            Event::SuperstepClosed { superstep: closed, .. } if superstep == 0 => *closed > 0 && state.is_forkable(),
            Event::SuperstepClosed { superstep: closed, .. } => *closed == superstep,
            _ => false,
        };
        if let Event::RunFinished { outcome: RunOutcome::BudgetExhausted { .. }, .. } = entry.event()
            && superstep == 0
        {
            point = before.or(point);
        }
        if is_point {
            point = Some(entry.sequence());
        }
        before = state.is_forkable().then(|| entry.sequence());
    })?;
    let Some(point) = point else { return Ok(None) };
    let mut found: Option<State> = None;
    entries(journal, run_id, 0, |entry| {
        let sequence = entry.sequence();
        let corrupt = |cause| LoadError::Corrupt { run_id: run_id.to_owned(), sequence, cause };
        match &mut found {
            None => found = Some(State::begin(&entry).map_err(corrupt)?),
            Some(state) => state.apply(&entry).map_err(corrupt)?,
        }
        Ok::<_, LoadError>(sequence < point)
    })?;
    Ok(found)
}

/// What a cancel did, to a run and to the child runs that were in flight; nothing of a run that nobody canceled.
pub fn receipt(journal: &Journal, run_id: &str) -> Result<Receipt, LoadError> {
    let state = state(journal, run_id)?;
    let Some(mut receipt) = state.cancel_receipt() else { return Ok(Receipt::default()) };
    for child in state.canceled_children() {
        let of_child = match self::receipt(journal, child.as_str()) {
            Ok(of_child) => of_child,
            // It was not started yet.
            Err(LoadError::Read(ReadError::NotFound(_))) => continue,
            Err(error) => return Err(error),
        };
        receipt.effects_stopped = receipt.effects_stopped.saturating_add(of_child.effects_stopped);
        receipt.tokens_revoked = receipt.tokens_revoked.saturating_add(of_child.tokens_revoked);
    }
    Ok(receipt)
}

/// A run's state and its effects, in order of dispatch.
pub fn effects(journal: &Journal, run_id: &str) -> Result<(State, Vec<EffectRow>), LoadError> {
    let mut effects = Effects::default();
    let state = folded(journal, run_id, |entry, state| effects.take(state, entry))?;
    Ok((state, effects.into_rows()))
}
