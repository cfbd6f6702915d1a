//! Reads a run's journal: page by page, off the async threads.

use runner_core::{
    effects::{EffectRow, Effects},
    entry::Entry,
    state::{Corrupt, State},
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
    #[error("RUN-E010: event {sequence} of run {run_id:?} does not follow from those before it: {cause}")]
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

/// A run's state and its effects, in order of dispatch.
pub fn effects(journal: &Journal, run_id: &str) -> Result<(State, Vec<EffectRow>), LoadError> {
    let mut effects = Effects::default();
    let state = folded(journal, run_id, |entry, state| effects.take(state, entry))?;
    Ok((state, effects.into_rows()))
}
