//! The loop that start, resume and verification share: take an input in, then decide to quiescence.

use crate::{
    decide,
    entry::Entry,
    event::{Event, Recorded},
    input::{Declined, Input},
    manifest::Manifest,
    payload::Payload,
    state::{Corrupt, State},
};

/// What an input led to. The entries are one batch: they become durable together or not at all.
#[derive(Debug, Default)]
pub struct Fed {
    /// Events in order, already folded into the state. To be committed even when the input was declined: they are evidence.
    pub entries: Vec<Entry>,
    /// Why the input was declined, if it was.
    pub declined: Option<Declined>,
}

/// Starts a run: `RunStarted` and everything up to its first effects. `input` is what [`crate::read_input`] gave; the
/// manifest names its digest.
///
/// # Errors
/// The manifest does not hold together: a fault of the caller.
pub fn start(manifest: &Manifest, input: Payload, at_ms: u64) -> Result<(State, Vec<Entry>), Corrupt> {
    let event = Event::RunStarted { manifest: manifest.to_payload(), input };
    let previous = content_digest::Digest::ZERO;
    let entry = Entry::seal(Recorded { sequence: 0, at_ms, previous, event });
    let mut state = State::begin(&entry)?;
    let mut entries = vec![entry];
    quiesce(&mut state, at_ms, &mut entries)?;
    Ok((state, entries))
}

/// Folds a stored journal. The state is what [`start`] and [`feed`] left behind when its last batch was committed.
///
/// # Errors
/// The first event that cannot follow; an empty journal is corrupt too.
pub fn fold<'a>(journal: impl IntoIterator<Item = &'a Entry>) -> Result<State, Corrupt> {
    let mut entries = journal.into_iter();
    let first = entries.next().ok_or_else(|| Corrupt { sequence: 0, problem: "the journal is empty".to_owned() })?;
    let mut state = State::begin(first)?;
    for entry in entries {
        state.apply(entry)?;
    }
    Ok(state)
}

/// Takes an input in and decides to quiescence. The state is ahead of the disk until the entries are committed: after a
/// failed commit, drop it and fold the journal again.
///
/// # Errors
/// The state does not allow what was decided from it: a fault of this crate. The state is not to be used any more.
pub fn feed(state: &mut State, input: Input, at_ms: u64) -> Result<Fed, Corrupt> {
    let mut fed = Fed::default();
    // A takeover comes before all that is due: an effect that is only decided on now was not in flight in the process before.
    if !matches!(input, Input::TakeOver { .. }) {
        quiesce(state, at_ms, &mut fed.entries)?;
    }
    loop {
        let again = matches!(input, Input::Tick);
        let admitted = match decide::admit(state, input.clone(), at_ms) {
            Ok(admitted) => admitted,
            Err(declined) => {
                fed.declined = Some(declined);
                return Ok(fed);
            }
        };
        fed.declined = admitted.declined;
        let Some(event) = admitted.event else { return Ok(fed) };
        record(state, event, at_ms, &mut fed.entries)?;
        quiesce(state, at_ms, &mut fed.entries)?;
        // A tick may expire several asks, one by one; it ends when none is left or the run has ended.
        if !again || state.outcome().is_some() {
            return Ok(fed);
        }
    }
}

fn quiesce(state: &mut State, at_ms: u64, entries: &mut Vec<Entry>) -> Result<(), Corrupt> {
    while let Some(event) = decide::next(state, at_ms) {
        record(state, event, at_ms, entries)?;
    }
    Ok(())
}

fn record(state: &mut State, event: Event, at_ms: u64, entries: &mut Vec<Entry>) -> Result<(), Corrupt> {
    let entry = Entry::seal(Recorded { sequence: state.events(), at_ms, previous: state.head(), event });
    state.apply(&entry)?;
    entries.push(entry);
    Ok(())
}
