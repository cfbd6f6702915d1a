//! Single values read and checked: what the store says of itself and of one run.

use std::ops::ControlFlow;

use content_digest::Digest;

use super::{
    error::{Damaged, Fault, Place, Storage, Trouble},
    frame,
    key::{Header, Key, Meta, RunName, State},
    record::RunHeader,
    shelf::{Shelf, Span},
    state::RunState,
};

/// A number about the whole store.
pub(super) fn meta_u64(shelf: &dyn Shelf, meta: Meta) -> Result<Option<u64>, Storage> {
    let key = meta.encode();
    let Some(sealed) = shelf.get(&key)? else { return Ok(None) };
    let number = frame::unseal(&key, &sealed).ok().and_then(number_of);
    number.map(Some).ok_or_else(|| Storage::new(Trouble::Read, format!("the value of {meta:?} is damaged")))
}

/// The number that the next run gets.
pub(super) fn next_number(shelf: &dyn Shelf) -> Result<u64, Storage> {
    let (from, to) = (Header(0).encode(), Header(u64::MAX).encode());
    let mut next = 0;
    shelf.scan(Span { from: &from, to: &to, backwards: true }, &mut |key, _| {
        next = Header::decode(key).map_or(0, |header| header.0 + 1);
        ControlFlow::Break(())
    })?;
    Ok(next)
}

/// A run's number by its id.
pub(super) fn number(shelf: &dyn Shelf, run_id: &str) -> Result<Option<u64>, Fault> {
    let key = RunName(Digest::of(run_id)).encode();
    let sealed = shelf.get(&key).map_err(|storage| Fault::of_run(storage, run_id, Place::Header))?;
    let Some(sealed) = sealed else { return Ok(None) };
    let damaged = |reason: &str| damaged(run_id, Place::Header, reason);
    let value = frame::unseal(&key, &sealed).map_err(damaged)?;
    Ok(Some(number_of(value).ok_or_else(|| damaged("its number is cut off"))?))
}

/// What a run is. A run whose header cannot be read is named by its id's digest, and by its number where that is lost too.
pub(super) fn header(shelf: &dyn Shelf, number: u64) -> Result<RunHeader, Fault> {
    let key = Header(number).encode();
    let damaged = |reason: &str| damaged(&name_without_header(shelf, number), Place::Header, reason);
    let sealed = shelf.get(&key).map_err(|storage| match storage.kind {
        Trouble::Corrupt => Fault::Damaged(damaged(&storage.reason)),
        _ => Fault::Storage(storage),
    })?;
    let sealed = sealed.ok_or_else(|| damaged("the value is missing"))?;
    let value = frame::unseal(&key, &sealed).map_err(damaged)?;
    Ok(serde_json::from_slice(value).map_err(|error| damaged(&error.to_string()))?)
}

/// Looks through all names: only for a run that is damaged.
fn name_without_header(shelf: &dyn Shelf, number: u64) -> String {
    let (from, to) = (RunName(Digest::ZERO).encode(), RunName(Digest::from_bytes([0xff; 32])).encode());
    let mut name = None;
    let looked = shelf.scan(Span { from: &from, to: &to, backwards: false }, &mut |key, sealed| {
        let is_it = frame::unseal(key, sealed).ok().and_then(number_of) == Some(number);
        name = RunName::decode(key).filter(|_| is_it);
        if is_it { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    match (looked, name) {
        (Ok(()), Some(RunName(digest))) => format!("number {number}, its id has the digest {digest}"),
        _ => format!("number {number}"),
    }
}

/// Where a run stands in the store, durable or not.
pub(super) fn state(shelf: &dyn Shelf, number: u64, run_id: &str) -> Result<RunState, Fault> {
    let damaged = |reason: &str| damaged(run_id, Place::State, reason);
    let key = State(number).encode();
    let sealed = shelf.get(&key).map_err(|storage| Fault::of_run(storage, run_id, Place::State))?;
    let sealed = sealed.ok_or_else(|| damaged("the value is missing"))?;
    let value = frame::unseal(&key, &sealed).map_err(damaged)?;
    Ok(RunState::decode(value).ok_or_else(|| damaged("its lengths do not add up"))?)
}

pub(super) fn damaged(run_id: &str, place: Place, reason: &str) -> Damaged {
    Damaged { run_id: run_id.to_owned(), place, reason: reason.to_owned() }
}

fn number_of(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}
