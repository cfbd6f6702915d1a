//! Lists of runs and asks: one page of an index, newest first or oldest first.

use std::ops::ControlFlow;

use content_digest::Digest;

use super::{
    error::{Fault, ReadError, Storage},
    key::{Ask, ByNamespace, ByPlan, Header, Key, Unfinished},
    lookup,
    record::{LIST_ROWS_MAX, OpenAsk, RunInfo, RunRow},
    shared::Shared,
    shelf::Span,
};

/// A namespace's runs, newest first, those older than `before`.
pub(super) fn by_namespace(
    shared: &Shared,
    namespace: &str,
    before: Option<u64>,
    limit: usize,
) -> Result<Vec<RunRow>, ReadError> {
    let namespace = Digest::of(namespace);
    let key = |run| ByNamespace { namespace, run };
    newest_first(shared, (key, |key| key.run), before, limit)
}

/// A plan's runs in a namespace, newest first, those older than `before`.
pub(super) fn by_plan(
    shared: &Shared,
    (namespace, plan): (&str, Digest),
    before: Option<u64>,
    limit: usize,
) -> Result<Vec<RunRow>, ReadError> {
    let namespace = Digest::of(namespace);
    let key = |run| ByPlan { namespace, plan, run };
    newest_first(shared, (key, |key| key.run), before, limit)
}

/// Runs that have not ended, oldest first, those younger than `after`.
pub(super) fn unfinished(shared: &Shared, after: Option<u64>, limit: usize) -> Result<Vec<RunRow>, ReadError> {
    let Some(from) = after.map_or(Some(0), |after| after.checked_add(1)) else { return Ok(Vec::new()) };
    let (from, to) = (Unfinished(from).encode(), Unfinished(u64::MAX).encode());
    let span = Span { from: &from, to: &to, backwards: false };
    let numbers = keys::<Unfinished>(shared, span, limit)?.into_iter().map(|key| key.0);
    rows(shared, numbers)
}

/// Every run, oldest first, those younger than `after`.
pub(super) fn all(shared: &Shared, after: Option<u64>, limit: usize) -> Result<Vec<RunRow>, ReadError> {
    let Some(from) = after.map_or(Some(0), |after| after.checked_add(1)) else { return Ok(Vec::new()) };
    let (from, to) = (Header(from).encode(), Header(u64::MAX).encode());
    let span = Span { from: &from, to: &to, backwards: false };
    let numbers = keys::<Header>(shared, span, limit)?.into_iter().map(|key| key.0);
    rows(shared, numbers)
}

/// A namespace's pending asks by run and id, those behind `after`.
pub(super) fn open_asks(
    shared: &Shared,
    namespace: &str,
    after: Option<(u64, Digest)>,
    limit: usize,
) -> Result<Vec<OpenAsk>, ReadError> {
    let namespace = Digest::of(namespace);
    let from = match after {
        // The key behind another one is the key and one byte more.
        Some((run, ask)) => [Ask { namespace, run, ask }.encode(), vec![0]].concat(),
        None => Ask { namespace, run: 0, ask: Digest::ZERO }.encode(),
    };
    let to = Ask { namespace, run: u64::MAX, ask: Digest::from_bytes([0xff; 32]) }.encode();
    let keys = keys::<Ask>(shared, Span { from: &from, to: &to, backwards: false }, limit)?;
    let mut asks = Vec::with_capacity(keys.len());
    for key in keys {
        match lookup::header(shared.shelf(), key.run) {
            Ok(header) => asks.push(OpenAsk { run_number: key.run, run_id: header.run_id, ask_id: key.ask }),
            // A run that cannot be read is reported where it is asked for; its asks cannot be answered.
            Err(Fault::Damaged(_)) => {}
            Err(Fault::Storage(storage)) => return Err(storage.into()),
        }
    }
    Ok(asks)
}

/// A run by its number, as it durably stands; `None` while it is being made.
pub(super) fn run(shared: &Shared, number: u64) -> Result<Option<RunInfo>, Fault> {
    let header = lookup::header(shared.shelf(), number)?;
    let Some(state) = shared.durable_state(number, &header.run_id)? else { return Ok(None) };
    let (next_sequence, finished, fence, summary) = (state.next_sequence, state.finished, state.fence, state.summary);
    Ok(Some(RunInfo { header, next_sequence, finished, fence, summary }))
}

fn newest_first<K: Key>(
    shared: &Shared,
    (key, number): (impl Fn(u64) -> K, impl Fn(&K) -> u64),
    before: Option<u64>,
    limit: usize,
) -> Result<Vec<RunRow>, ReadError> {
    let Some(to) = before.map_or(Some(u64::MAX), |before| before.checked_sub(1)) else { return Ok(Vec::new()) };
    let (from, to) = (key(0).encode(), key(to).encode());
    let keys = keys::<K>(shared, Span { from: &from, to: &to, backwards: true }, limit)?;
    rows(shared, keys.iter().map(number))
}

fn rows(shared: &Shared, numbers: impl Iterator<Item = u64>) -> Result<Vec<RunRow>, ReadError> {
    let mut rows = Vec::new();
    for number in numbers {
        match run(shared, number) {
            Ok(Some(run)) => rows.push(RunRow { number, run: Ok(run) }),
            Ok(None) => {}
            Err(Fault::Damaged(damaged)) => rows.push(RunRow { number, run: Err(damaged) }),
            Err(Fault::Storage(storage)) => return Err(storage.into()),
        }
    }
    Ok(rows)
}

fn keys<K: Key>(shared: &Shared, span: Span<'_>, limit: usize) -> Result<Vec<K>, Storage> {
    let limit = limit.clamp(1, LIST_ROWS_MAX);
    let mut keys = Vec::new();
    shared.shelf().scan(span, &mut |key, _| {
        keys.extend(K::decode(key));
        if keys.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(keys)
}
