//! The newest value of each key that can be read, and the store that is made of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    path::Path,
};

use content_digest::Digest;

use super::{
    super::{
        frame::{self, Joiner},
        heads::Head,
        key::{Ask, ByNamespace, ByPlan, Header, Key, Meta, Part, RunName, State, Unfinished},
        record::RunHeader,
        sled_shelf::FORMAT,
        state::RunState,
    },
    log::{Log, Met},
};

/// Bytes of one batch of the new store.
const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Memory for the new store's cache, in bytes.
const CACHE_BYTES: u64 = 16 * 1024 * 1024;
/// By how much a lease's fence grows that may have been lost: more than any run was taken over.
const FENCE_LEAP: u64 = 1 << 20;

/// Where a value lies in the damaged file.
#[derive(Clone, Copy)]
struct At {
    place: u64,
    len: usize,
}

/// What can be read. Memory for each key, not for values.
pub(super) struct Rebuild {
    values: BTreeMap<Vec<u8>, At>,
    gaps: u64,
}

/// What is written that was not read.
#[derive(Default)]
pub(super) struct Amended {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    removed: BTreeSet<Vec<u8>>,
    ended: BTreeSet<u64>,
    /// Runs that lack something.
    pub(super) runs_short: u64,
}

impl Rebuild {
    /// Reads all of it.
    pub(super) fn of(log: &Log) -> io::Result<Self> {
        let mut rebuild = Self { values: BTreeMap::new(), gaps: 0 };
        log.walk(&mut |met| rebuild.take(met))?;
        Ok(rebuild)
    }

    /// Places that could not be read.
    pub(super) fn gaps(&self) -> u64 {
        self.gaps
    }

    fn take(&mut self, met: Met<'_>) {
        match met {
            Met::Gap => self.gaps += 1,
            Met::Put(key, value) => {
                self.values.insert(key, At { place: value.at, len: value.bytes.len() });
            }
            Met::Removed(key) => {
                self.values.remove(&key);
            }
            Met::Whole { lo, hi, keys } => self.forget_removed(lo, hi, keys),
        }
    }

    /// Only two kinds of keys are ever removed. Any other that a page has no more was moved to a page that may be damaged.
    fn forget_removed(&mut self, lo: &[u8], hi: &[u8], keys: &[Vec<u8>]) {
        let of_page = |key: &&Vec<u8>| hi.is_empty() || key.as_slice() < hi;
        let removable = |key: &&Vec<u8>| matches!(key.first(), Some(&Ask::KIND | &Unfinished::KIND));
        let range = self.values.range(lo.to_vec()..).map(|(key, _)| key).take_while(of_page);
        let gone: Vec<_> = range.filter(removable).filter(|key| keys.binary_search(key).is_err()).cloned().collect();
        for key in gone {
            self.values.remove(&key);
        }
    }

    /// Writes a store; how many values it has. All of it is on the disk when this returns.
    pub(super) fn write(&self, log: &Log, mut amended: Amended, (target, commits): (&Path, u64)) -> io::Result<u64> {
        let counted =
            self.read(log, &Meta::Commits)?.and_then(|value| Some(u64::from_be_bytes(value.try_into().ok()?)));
        amended.put(Meta::Commits.encode(), &commits.max(counted.unwrap_or(0)).to_be_bytes());
        if self.read(log, &Meta::Format)?.is_none() {
            amended.put(Meta::Format.encode(), &FORMAT.to_be_bytes());
        }
        let config = sled::Config::new().path(target).cache_capacity(CACHE_BYTES).flush_every_ms(None);
        let store = config.open().map_err(io::Error::other)?;
        let (mut batch, mut bytes, mut written) = (sled::Batch::default(), 0, amended.values.len() as u64);
        for (key, at) in &self.values {
            if amended.values.contains_key(key) || amended.removed.contains(key) {
                continue;
            }
            let value = log.value(at.place, at.len)?;
            bytes += key.len() + value.len();
            written += 1;
            batch.insert(key.as_slice(), value);
            if bytes >= BATCH_BYTES {
                store.apply_batch(std::mem::take(&mut batch)).map_err(io::Error::other)?;
                store.flush().map_err(io::Error::other)?;
                bytes = 0;
            }
        }
        for (key, value) in amended.values {
            batch.insert(key, value);
        }
        store.apply_batch(batch).map_err(io::Error::other)?;
        store.flush().map_err(io::Error::other)?;
        drop(store);
        for entry in fs::read_dir(target)? {
            File::open(entry?.path())?.sync_all()?;
        }
        File::open(target)?.sync_all()?;
        Ok(written)
    }

    /// What has to be written so that no run seems to be whole that is not, and each is found.
    pub(super) fn amended(&self, log: &Log, heads: &[Head]) -> io::Result<Amended> {
        let mut amended = Amended::default();
        for number in self.numbers(heads) {
            let noted = usize::try_from(number).ok().and_then(|place| heads.get(place)).copied().unwrap_or_default();
            let header = self.read(log, &Header(number))?;
            let header: Option<RunHeader> = header.and_then(|header| serde_json::from_slice(&header).ok());
            let state = self.read(log, &State(number))?.and_then(|state| RunState::decode(&state));
            let mut finished = state.as_ref().is_some_and(|state| state.finished);
            let acknowledged = state.as_ref().map_or(0, |state| state.next_sequence).max(noted.next_sequence);
            let head = acknowledged.max(self.head_of(number));
            let is_behind = state.as_ref().is_some_and(|state| state.next_sequence < head);
            let is_whole = header.is_some() && state.is_some() && !self.lacks_records(log, number, head)?;
            if !is_whole || is_behind {
                amended.runs_short += 1;
            }
            if let Some(mut state) = state
                && (is_behind || (finished && !is_whole))
            {
                // Its records are read up to where they were acknowledged: one that is lost is met there. One that has ended is
                // read at the next start like any other then, and named.
                (state.next_sequence, state.finished, finished) = (head, false, false);
                state.fence = state.fence.saturating_add(FENCE_LEAP);
                amended.put(State(number).encode(), &state.encode());
            }
            let name = header.as_ref().map(|header| Digest::of(&header.run_id)).or(noted.name);
            amended.index(number, (name, header.as_ref()), finished);
        }
        for (key, _) in self.values.range(vec![Ask::KIND]..vec![Ask::KIND + 1]) {
            let run = Ask::decode(key).map(|ask| ask.run);
            if run.is_none_or(|run| amended.ended.contains(&run)) {
                amended.removed.insert(key.clone());
            }
        }
        Ok(amended)
    }

    /// The numbers of all runs that are known.
    fn numbers(&self, heads: &[Head]) -> BTreeSet<u64> {
        let noted = (0..).zip(heads).filter(|(_, head)| head.next_sequence > 0).map(|(number, _)| number);
        let mut numbers: BTreeSet<u64> = noted.collect();
        let bookkept = self.values.range(vec![Header::KIND]..vec![State::KIND + 1]);
        numbers.extend(bookkept.filter_map(|(key, _)| {
            Header::decode(key).map(|header| header.0).or(State::decode(key).map(|state| state.0))
        }));
        numbers
    }

    /// Behind the last record that can be read.
    fn head_of(&self, run: u64) -> u64 {
        let key = |sequence| Part { run, sequence, part: 0 }.encode();
        let last = self.values.range(key(0)..=Part { run, sequence: u64::MAX, part: u16::MAX }.encode()).next_back();
        last.and_then(|(key, _)| Part::decode(key)).map_or(0, |part| part.sequence + 1)
    }

    /// Whether a record of a run is not there, or a part of one.
    fn lacks_records(&self, log: &Log, run: u64, head: u64) -> io::Result<bool> {
        let key = |sequence| Part { run, sequence, part: 0 }.encode();
        let (mut next, mut joiner) = (0, Joiner::default());
        for (key, at) in self.values.range(key(0)..key(head)) {
            let value = log.value(at.place, at.len)?;
            let part = Part::decode(key).filter(|part| part.sequence == next);
            match part.map(|part| joiner.push(part.part, key, &value)) {
                Some(Ok(false)) => {}
                Some(Ok(true)) if std::mem::take(&mut joiner).finish().is_ok() => next += 1,
                Some(Ok(true) | Err(_)) | None => return Ok(true),
            }
        }
        Ok(next < head)
    }

    fn read(&self, log: &Log, key: &impl Key) -> io::Result<Option<Vec<u8>>> {
        let key = key.encode();
        let Some(at) = self.values.get(&key) else { return Ok(None) };
        let value = log.value(at.place, at.len)?;
        Ok(frame::unseal(&key, &value).ok().map(<[u8]>::to_vec))
    }
}

impl Amended {
    fn put(&mut self, key: Vec<u8>, value: &[u8]) {
        let sealed = frame::seal(&key, value);
        self.values.insert(key, sealed);
    }

    /// How a run is found.
    fn index(&mut self, number: u64, (name, header): (Option<Digest>, Option<&RunHeader>), finished: bool) {
        if let Some(name) = name {
            self.put(RunName(name).encode(), &number.to_be_bytes());
        }
        if let Some(header) = header {
            let namespace = Digest::of(&header.namespace);
            self.put(ByNamespace { namespace, run: number }.encode(), &[]);
            self.put(ByPlan { namespace, plan: header.plan_hash, run: number }.encode(), &[]);
        }
        let unfinished = Unfinished(number).encode();
        if finished {
            self.removed.insert(unfinished);
            self.ended.insert(number);
        } else {
            self.put(unfinished, &[]);
        }
    }
}
