//! The writer's side of the bookkeeping: checks each order against the runs' states and says what to write.

use std::{collections::BTreeMap, sync::Arc};

use content_digest::Digest;

use super::{
    command::{Answer, Order},
    error::{AppendError, CreateError, Fault, LeaseError, Storage},
    frame,
    heads::Noted,
    key::{Ask, ByNamespace, ByPlan, Header, Key as _, Meta, RunName, State, Unfinished},
    lookup,
    record::{Append, Appended, Claim, Created, Lease, NewRun, Record, RunHeader, Update},
    shelf::{Batch, Shelf},
    state::RunState,
};

/// States kept in memory; at the limit all are let go and read again when needed.
const RUNS_CACHED_MAX: usize = 4096;

/// Knows the runs that are being written to. Used by one thread.
pub(super) struct Ledger {
    runs: BTreeMap<String, Run>,
    next_number: u64,
    /// Number of this opening of the store. It is written with the first commit: no lease of it is in the store before.
    epoch: u64,
    epoch_is_stored: bool,
}

#[derive(Clone)]
struct Run {
    number: u64,
    namespace: Digest,
    state: RunState,
}

/// What a group of orders comes to.
#[derive(Default)]
pub(super) struct Staged {
    /// What to write.
    pub batch: Batch,
    /// Each touched run's number and the state that was durable before; `None` for a new run.
    pub before: BTreeMap<u64, Option<RunState>>,
    /// How far each touched run goes afterwards.
    pub noted: Noted,
    /// Runs that the group makes.
    created: BTreeMap<String, RunHeader>,
    /// What to answer when it is durable.
    pub answers: Vec<Answer>,
}

impl Ledger {
    /// Reads where the store stands and counts this opening.
    pub(super) fn open(shelf: &dyn Shelf) -> Result<Self, Storage> {
        let epoch = lookup::meta_u64(shelf, Meta::Epoch)?.unwrap_or(0) + 1;
        let next_number = lookup::next_number(shelf)?;
        Ok(Self { runs: BTreeMap::new(), next_number, epoch, epoch_is_stored: false })
    }

    /// Forgets what was staged and never became durable.
    pub(super) fn reload(&mut self, shelf: &dyn Shelf) -> Result<(), Storage> {
        self.runs.clear();
        self.next_number = lookup::next_number(shelf)?;
        self.epoch_is_stored = lookup::meta_u64(shelf, Meta::Epoch)? == Some(self.epoch);
        Ok(())
    }

    /// Checks the orders of one group in turn, each against what those before it leave.
    pub(super) fn stage(&mut self, shelf: &dyn Shelf, orders: Vec<Order>) -> Staged {
        if self.runs.len() >= RUNS_CACHED_MAX {
            self.runs.clear();
        }
        let mut staged = Staged::default();
        for order in orders {
            let answer = match order {
                Order::Create { new, header, reply } => {
                    Answer::Create(reply, self.create(shelf, &new, &header, &mut staged))
                }
                Order::Append { append, reply } => Answer::Append(reply, self.append(shelf, &append, &mut staged)),
                Order::Take { claim, with, reply } => {
                    Answer::Lease(reply, self.take(shelf, &with, &claim, &mut staged))
                }
                Order::Still { act, reply } => Answer::Still(reply, act(shelf)),
                Order::Renew { run_id, fence, until_ms, reply } => {
                    Answer::Lease(reply, self.renew(shelf, &run_id, (fence, until_ms), &mut staged))
                }
            };
            staged.answers.push(answer);
        }
        if !self.epoch_is_stored && !staged.batch.is_empty() {
            staged.put(Meta::Epoch.encode(), &self.epoch.to_be_bytes());
            self.epoch_is_stored = true;
        }
        staged
    }

    fn create(
        &mut self,
        shelf: &dyn Shelf,
        new: &NewRun,
        header: &[u8],
        staged: &mut Staged,
    ) -> Result<Created, CreateError> {
        let run_id = &new.header.run_id;
        if let Some(existing) = staged.created.get(run_id) {
            return Err(CreateError::AlreadyExists(Box::new(existing.clone())));
        }
        if let Some(number) = lookup::number(shelf, run_id)? {
            return Err(CreateError::AlreadyExists(Box::new(lookup::header(shelf, number)?)));
        }
        let namespace = Digest::of(&new.header.namespace);
        let number = self.next_number;
        self.next_number += 1;
        let state = RunState {
            next_sequence: 0,
            finished: false,
            fence: 1,
            until_ms: new.claim.now_ms.saturating_add(new.claim.ttl_ms),
            epoch: self.epoch,
            holder: new.claim.holder.as_str().into(),
            summary: Arc::from([]),
        };
        let mut run = Run { number, namespace, state };
        staged.before.insert(number, None);
        staged.created.insert(run_id.clone(), new.header.clone());
        staged.noted.names.insert(number, Digest::of(run_id));
        staged.put(RunName(Digest::of(run_id)).encode(), &number.to_be_bytes());
        staged.put(Header(number).encode(), header);
        staged.put(ByNamespace { namespace, run: number }.encode(), &[]);
        staged.put(ByPlan { namespace, plan: new.header.plan_hash, run: number }.encode(), &[]);
        staged.put(Unfinished(number).encode(), &[]);
        write(&mut run, &new.records, &new.update, staged);
        let created = Created { lease: lease_of(&run.state), next_sequence: run.state.next_sequence };
        self.runs.insert(run_id.clone(), run);
        Ok(created)
    }

    fn append(&mut self, shelf: &dyn Shelf, append: &Append, staged: &mut Staged) -> Result<Appended, AppendError> {
        let run_id = || append.run_id.clone();
        let run = self.run(shelf, &append.run_id)?.ok_or_else(|| AppendError::NotFound(run_id()))?;
        let (current, next) = (run.state.fence, run.state.next_sequence);
        if append.fence != current {
            return Err(AppendError::LeaseLost { run_id: run_id(), given: append.fence, current });
        }
        if run.state.finished {
            return Err(AppendError::Finished(run_id()));
        }
        if append.expected_next != next {
            return Err(AppendError::Conflict { run_id: run_id(), expected: append.expected_next, next });
        }
        staged.touch(run);
        write(run, &append.records, &append.update, staged);
        Ok(Appended { next_sequence: run.state.next_sequence })
    }

    /// Gives the lease if it is free: ended, the claimant's own, or of a process that is gone.
    fn take(
        &mut self,
        shelf: &dyn Shelf,
        with: &Append,
        claim: &Claim,
        staged: &mut Staged,
    ) -> Result<Lease, LeaseError> {
        let (epoch, run_id) = (self.epoch, with.run_id.as_str());
        let run = self.run(shelf, run_id)?.ok_or_else(|| LeaseError::NotFound(run_id.to_owned()))?;
        if run.state.finished {
            return Err(LeaseError::Finished(run_id.to_owned()));
        }
        let left_ms = run.state.until_ms.saturating_sub(claim.now_ms);
        if run.state.epoch == epoch && *run.state.holder != *claim.holder && left_ms > 0 {
            let holder = run.state.holder.to_string();
            return Err(LeaseError::Held { run_id: run_id.to_owned(), holder, left_ms });
        }
        may_take(run, with)?;
        staged.touch(run);
        run.state.fence += 1;
        run.state.epoch = epoch;
        run.state.holder = claim.holder.as_str().into();
        run.state.until_ms = claim.now_ms.saturating_add(claim.ttl_ms);
        write(run, &with.records, &with.update, staged);
        Ok(lease_of(&run.state))
    }

    fn renew(
        &mut self,
        shelf: &dyn Shelf,
        run_id: &str,
        (given, until_ms): (u64, u64),
        staged: &mut Staged,
    ) -> Result<Lease, LeaseError> {
        let run = self.run(shelf, run_id)?.ok_or_else(|| LeaseError::NotFound(run_id.to_owned()))?;
        let current = run.state.fence;
        if given != current {
            return Err(LeaseError::Lost { run_id: run_id.to_owned(), given, current });
        }
        if run.state.finished {
            return Err(LeaseError::Finished(run_id.to_owned()));
        }
        staged.touch(run);
        run.state.until_ms = until_ms;
        staged.put(State(run.number).encode(), &run.state.encode());
        Ok(lease_of(&run.state))
    }

    fn run(&mut self, shelf: &dyn Shelf, run_id: &str) -> Result<Option<&mut Run>, Fault> {
        if !self.runs.contains_key(run_id) {
            let Some(number) = lookup::number(shelf, run_id)? else { return Ok(None) };
            let namespace = Digest::of(lookup::header(shelf, number)?.namespace);
            let run = Run { number, namespace, state: lookup::state(shelf, number, run_id)? };
            self.runs.insert(run_id.to_owned(), run);
        }
        Ok(self.runs.get_mut(run_id))
    }
}

impl Staged {
    fn put(&mut self, key: Vec<u8>, value: &[u8]) {
        let sealed = frame::seal(&key, value);
        self.batch.put(key, sealed);
    }

    /// Remembers how a run stood before the group.
    fn touch(&mut self, run: &Run) {
        self.before.entry(run.number).or_insert_with(|| Some(run.state.clone()));
    }
}

/// Whether records that say who took the run over follow its latest ones.
fn may_take(run: &Run, append: &Append) -> Result<(), LeaseError> {
    let (run_id, current, next) = (append.run_id.clone(), run.state.fence, run.state.next_sequence);
    if append.fence != current + 1 {
        return Err(LeaseError::Lost { run_id, given: append.fence, current });
    }
    if append.expected_next != next {
        return Err(LeaseError::Conflict { run_id, expected: append.expected_next, next });
    }
    Ok(())
}

/// Adds records and update to the batch and moves the run's state on.
fn write(run: &mut Run, records: &[Record], update: &Update, staged: &mut Staged) {
    for record in records {
        for (key, value) in frame::split(run.number, run.state.next_sequence, record) {
            staged.batch.put(key, value);
        }
        run.state.next_sequence += 1;
    }
    let ask = |id: &Digest| Ask { namespace: run.namespace, run: run.number, ask: *id }.encode();
    for id in &update.asks_opened {
        staged.put(ask(id), &[]);
    }
    for id in &update.asks_closed {
        staged.batch.remove(ask(id));
    }
    if let Some(summary) = &update.summary {
        run.state.summary = Arc::from(summary.as_slice());
    }
    if update.finished {
        run.state.finished = true;
        staged.batch.remove(Unfinished(run.number).encode());
    }
    staged.put(State(run.number).encode(), &run.state.encode());
    staged.noted.heads.insert(run.number, run.state.next_sequence);
}

fn lease_of(state: &RunState) -> Lease {
    Lease { holder: state.holder.to_string(), fence: state.fence, until_ms: state.until_ms }
}
