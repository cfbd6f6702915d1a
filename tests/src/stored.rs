//! The journal's store in the hands of somebody who may change it, while the runner is stopped. Checksums are made anew: what
//! is changed here only the evidence can notice.

use std::{path::Path, time::Instant};

use anyhow::{Context as _, Result, ensure};
use content_digest::Digest;

use crate::process::PATIENCE;

/// Kind bytes of keys, as on the disk.
const NAME: u8 = 0x10;
const HEADER: u8 = 0x11;
const STATE: u8 = 0x12;
const RECORD: u8 = 0x20;
/// Version of the seal before each value, and its bytes with the checksum.
const SEAL_VERSION: u8 = 1;
const SEAL_BYTES: usize = 5;
/// Bytes before the part of a record: how many parts there are.
const TOTAL_BYTES: usize = 2;

/// The store.
pub struct Stored {
    tree: sled::Db,
}

/// One run in it.
pub struct StoredRun<'a> {
    store: &'a Stored,
    number: u64,
}

impl Stored {
    /// Opens the store of a stopped runner's data directory.
    pub fn open(data: &Path) -> Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            // A killed process may hold its lock for a moment longer.
            match sled::Config::new().path(data.join("journal")).flush_every_ms(None).open() {
                Ok(tree) => return Ok(Self { tree }),
                Err(refused) => ensure!(Instant::now() < deadline, "the store does not open: {refused}"),
            }
            std::thread::yield_now();
        }
    }

    /// A run by its id.
    pub fn run(&self, run_id: &str) -> Result<StoredRun<'_>> {
        let key = [&[NAME][..], Digest::of(run_id).as_bytes()].concat();
        let number = self.get(&key)?.context("no such run")?;
        Ok(StoredRun { store: self, number: u64::from_be_bytes(number.as_slice().try_into()?) })
    }

    /// Writes everything down.
    pub fn close(self) -> Result<()> {
        self.tree.flush().map(drop).context("flushing the store")
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.tree.get(key)?.map(|value| value[SEAL_BYTES..].to_vec()))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let sum = crc32fast::hash(&[key, value].concat()).to_be_bytes();
        self.tree.insert(key, [&[SEAL_VERSION][..], &sum, value].concat())?;
        Ok(())
    }
}

impl StoredRun<'_> {
    /// Changes what the store says the run is, one JSON text.
    pub fn change_header(&self, from: &str, to: &str) -> Result<()> {
        self.change(HEADER, from, to)
    }

    /// Changes how the store says that the run stands; its end is one JSON text.
    pub fn change_status(&self, from: &str, to: &str) -> Result<()> {
        self.change(STATE, from, to)
    }

    fn change(&self, kind: u8, from: &str, to: &str) -> Result<()> {
        let key = [&[kind][..], &self.number.to_be_bytes()].concat();
        let value = self.store.get(&key)?.context("no such value")?;
        self.store.put(&key, &replaced(&value, from.as_bytes(), to.as_bytes())?)
    }

    /// Lets the store say that the run has so many records.
    pub fn set_end(&self, records: u64) -> Result<()> {
        let key = [&[STATE][..], &self.number.to_be_bytes()].concat();
        let value = self.store.get(&key)?.context("no such value")?;
        self.store.put(&key, &[&records.to_be_bytes()[..], &value[8..]].concat())
    }

    /// Number of records.
    pub fn len(&self) -> Result<u64> {
        let mut records = 0;
        while self.store.tree.contains_key(self.key(records, 0))? {
            records += 1;
        }
        Ok(records)
    }

    /// Whether it has no record.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// The bytes of a record: the event, and the texts beside it.
    pub fn record(&self, sequence: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for part in 0.. {
            let Some(value) = self.store.get(&self.key(sequence, part))? else { break };
            bytes.extend_from_slice(&value[TOTAL_BYTES..]);
        }
        Ok(bytes)
    }

    /// The first record in which a text stands.
    pub fn find(&self, text: &str) -> Result<u64> {
        for sequence in 0..self.len()? {
            if position(&self.record(sequence)?, text.as_bytes()).is_some() {
                return Ok(sequence);
            }
        }
        anyhow::bail!("no record has {text}")
    }

    /// Changes a part of a record into another one of the same length.
    pub fn change_record(&self, sequence: u64, from: &str, to: &str) -> Result<()> {
        let bytes = replaced(&self.record(sequence)?, from.as_bytes(), to.as_bytes())?;
        self.put_record(sequence, Some(&bytes))
    }

    /// Changes a text beside an event, and mends its digest wherever the record names it.
    pub fn change_text(&self, sequence: u64, from: &str, to: &str) -> Result<()> {
        let (old, new) = (Digest::of(from), Digest::of(to));
        let bytes = replaced(&self.record(sequence)?, from.as_bytes(), to.as_bytes())?;
        let bytes = replaced(&bytes, old.as_bytes(), new.as_bytes())?;
        self.put_record(sequence, Some(&replaced(&bytes, old.to_hex().as_bytes(), new.to_hex().as_bytes())?))
    }

    /// Writes a record of at most one part, or takes it away.
    pub fn put_record(&self, sequence: u64, bytes: Option<&[u8]>) -> Result<()> {
        let lengths: Vec<usize> = self.lengths(sequence)?;
        for part in 0..lengths.len() {
            self.store.tree.remove(self.key(sequence, u16::try_from(part)?))?;
        }
        let Some(mut rest) = bytes else { return Ok(()) };
        let lengths = if lengths.iter().sum::<usize>() == rest.len() { lengths } else { vec![rest.len()] };
        let total = u16::try_from(lengths.len())?.to_be_bytes();
        for (part, length) in (0_u16..).zip(lengths) {
            let (fragment, after) = rest.split_at(length);
            rest = after;
            self.store.put(&self.key(sequence, part), &[&total[..], fragment].concat())?;
        }
        Ok(())
    }

    fn lengths(&self, sequence: u64) -> Result<Vec<usize>> {
        let mut lengths = Vec::new();
        for part in 0.. {
            let Some(value) = self.store.get(&self.key(sequence, part))? else { break };
            lengths.push(value.len() - TOTAL_BYTES);
        }
        Ok(lengths)
    }

    fn key(&self, sequence: u64, part: u16) -> Vec<u8> {
        [&[RECORD][..], &self.number.to_be_bytes(), &sequence.to_be_bytes(), &part.to_be_bytes()].concat()
    }
}

/// The bytes with the first of these parts replaced by one of the same length.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Result<Vec<u8>> {
    ensure!(from.len() == to.len() && from != to, "a change keeps the length");
    let at = position(bytes, from).with_context(|| format!("{:?} is not there", String::from_utf8_lossy(from)))?;
    Ok([&bytes[..at], to, &bytes[at + from.len()..]].concat())
}

fn position(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}
