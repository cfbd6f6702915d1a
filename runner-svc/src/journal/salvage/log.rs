//! sled's log read past what is damaged in it: every message whose checksum holds, in the order in which they were written.

use std::{collections::BTreeMap, fs::File, io, ops::ControlFlow, os::unix::fs::FileExt as _, path::Path};

use super::{
    super::{
        frame,
        key::{Key as _, Meta},
    },
    message::{
        Change, Entry, Leaf, Message, SEGMENT_BYTES, SEGMENT_HEADER_BYTES, damaged_at, message_at, segment_number,
    },
};

/// Prefixes that are tried for a key whose page was damaged.
const PREFIXES_MAX: usize = 64;

/// What is met, in the order of writing.
pub(super) enum Met<'a> {
    /// Bytes that hold no message, with messages of the same segment behind them: they were one.
    Gap,
    /// A value that was written.
    Put(Vec<u8>, Value<'a>),
    /// A key that was removed.
    Removed(Vec<u8>),
    /// All keys from one on, up to another one that does not belong (none: up to the last), are those that were told just before.
    Whole {
        /// The first key that may be there.
        lo: &'a [u8],
        /// The first that is another page's.
        hi: &'a [u8],
        /// The keys that are.
        keys: &'a [Vec<u8>],
    },
}

/// A value and where it lies in the file.
pub(super) struct Value<'a> {
    /// The value with its seal, which holds.
    pub(super) bytes: &'a [u8],
    /// Where it begins.
    pub(super) at: u64,
}

/// What is met in a segment, with the segment's place in the file.
enum Step<'a> {
    Gap,
    Message(Message<'a>, u64),
    /// One whose sum does not hold.
    Damaged(Message<'a>, u64),
}

/// A log on the disk.
pub(super) struct Log {
    file: File,
    /// Places of segments by their numbers.
    segments: BTreeMap<u64, u64>,
}

impl Log {
    /// Finds the segments of a log.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let mut segments = BTreeMap::new();
        let mut bytes = Vec::new();
        for at in (0..len).step_by(SEGMENT_BYTES) {
            let mut head = [0; SEGMENT_HEADER_BYTES];
            let short = len - at < SEGMENT_HEADER_BYTES as u64;
            let known = if short { None } else { file.read_exact_at(&mut head, at).map(|()| segment_number(&head))? };
            let number = match known {
                Some(number) => Some(number),
                None => {
                    read(&file, at, &mut bytes)?;
                    // Its header is damaged, or it was never used.
                    (SEGMENT_HEADER_BYTES..bytes.len())
                        .find_map(|place| message_at(&bytes, place, None))
                        .map(|(message, _)| message.segment)
                }
            };
            if let Some(number) = number {
                segments.insert(number, at);
            }
        }
        Ok(Self { file, segments })
    }

    /// Reads the value at a place.
    pub(super) fn value(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    /// Whether there is damage with messages behind it. Sums are checked and nothing else: this reads about as fast as the disk.
    pub(super) fn has_gap(&self) -> io::Result<bool> {
        let mut gap = false;
        self.messages(&mut |step| {
            gap |= matches!(step, Step::Gap);
            if gap { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(gap)
    }

    /// Shows everything, in the order in which it was written.
    pub(super) fn walk(&self, met: &mut dyn FnMut(Met<'_>)) -> io::Result<()> {
        let mut pages = Pages::default();
        self.messages(&mut |step| {
            match step {
                Step::Gap => met(Met::Gap),
                Step::Message(message, at) => pages.take(&message, at, met),
                Step::Damaged(message, at) => pages.rest_of(&message, at, met),
            }
            ControlFlow::Continue(())
        })
    }

    fn messages(&self, step: &mut dyn FnMut(Step<'_>) -> ControlFlow<()>) -> io::Result<()> {
        let mut bytes = Vec::new();
        for (number, at) in &self.segments {
            read(&self.file, *at, &mut bytes)?;
            if segment(&bytes, (*number, *at), step).is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Bytes of the file.
    pub(super) fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// The last commit that can be read; every commit writes its number. From the newest segment on backwards: this reads
    /// one of them in most cases.
    pub(super) fn last_commit(&self) -> io::Result<Option<u64>> {
        let (key, mut last, mut bytes) = (Meta::Commits.encode(), None, Vec::new());
        for (number, at) in self.segments.iter().rev() {
            read(&self.file, *at, &mut bytes)?;
            let mut take = |prefix: &[u8], entry: &Entry<'_>| {
                let is_it = [prefix, entry.key].concat() == key;
                let count = is_it.then(|| frame::unseal(&key, entry.value).ok()).flatten();
                last = last.max(count.and_then(|count| Some(u64::from_be_bytes(count.try_into().ok()?))));
            };
            let _to_its_end = segment(&bytes, (*number, *at), &mut |step| {
                let (Step::Message(message, _) | Step::Damaged(message, _)) = step else {
                    return ControlFlow::Continue(());
                };
                match message.change() {
                    // Its page is the first, whose keys have no prefix.
                    Some(Change::Set(entry)) => take(&[], &entry),
                    Some(Change::Leaf(leaf)) => leaf.entries.iter().for_each(|entry| take(leaf.prefix, entry)),
                    Some(Change::Remove(_) | Change::Other) | None => {}
                }
                ControlFlow::Continue(())
            });
            if last.is_some() {
                break;
            }
        }
        Ok(last)
    }
}

/// Shows what is in one segment, by its number and its place in the file.
fn segment(
    bytes: &[u8],
    (number, at): (u64, u64),
    step: &mut dyn FnMut(Step<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    if segment_number(bytes) != Some(number) {
        step(Step::Gap)?;
    }
    let (mut place, mut in_gap) = (SEGMENT_HEADER_BYTES, false);
    while place < bytes.len() {
        let Some((message, end)) = message_at(bytes, place, Some(number)) else {
            if !std::mem::replace(&mut in_gap, true)
                && let Some(rest) = damaged_at(bytes, place, number)
            {
                step(Step::Damaged(rest, at))?;
            }
            place += 1;
            continue;
        };
        let last = message.is_cap();
        if std::mem::take(&mut in_gap) {
            step(Step::Gap)?;
        }
        step(Step::Message(message, at))?;
        if last {
            break;
        }
        place = end;
    }
    ControlFlow::Continue(())
}

fn read(file: &File, at: u64, bytes: &mut Vec<u8>) -> io::Result<()> {
    let left = file.metadata()?.len().saturating_sub(at);
    bytes.resize(usize::try_from(left).unwrap_or(SEGMENT_BYTES).min(SEGMENT_BYTES), 0);
    file.read_exact_at(bytes, at)
}

/// What is known of pages: what their keys begin with.
#[derive(Default)]
struct Pages {
    prefixes: BTreeMap<u64, Vec<u8>>,
    recent: Vec<Vec<u8>>,
}

impl Pages {
    fn take(&mut self, message: &Message<'_>, segment_at: u64, met: &mut dyn FnMut(Met<'_>)) {
        match message.change() {
            Some(Change::Set(entry)) => {
                if let Some(key) = self.key_of(message.page, &entry) {
                    met(Met::Put(key, value(&entry, segment_at)));
                }
            }
            Some(Change::Remove(key)) => {
                if let Some(prefix) = self.prefixes.get(&message.page) {
                    met(Met::Removed([prefix.as_slice(), key].concat()));
                }
            }
            Some(Change::Leaf(leaf)) => self.leaf(message.page, &leaf, segment_at, met),
            Some(Change::Other) | None => {}
        }
    }

    /// Values of a damaged message whose own seals hold.
    fn rest_of(&self, message: &Message<'_>, segment_at: u64, met: &mut dyn FnMut(Met<'_>)) {
        let (prefix, entries) = match message.change() {
            Some(Change::Set(entry)) => {
                if let Some(key) = self.key_of(message.page, &entry) {
                    met(Met::Put(key, value(&entry, segment_at)));
                }
                return;
            }
            Some(Change::Leaf(leaf)) => (leaf.prefix, leaf.entries),
            Some(Change::Remove(_) | Change::Other) | None => return,
        };
        for entry in &entries {
            let key = [prefix, entry.key].concat();
            if frame::unseal(&key, entry.value).is_ok() {
                met(Met::Put(key, value(entry, segment_at)));
            }
        }
    }

    fn leaf(&mut self, page: u64, leaf: &Leaf<'_>, segment_at: u64, met: &mut dyn FnMut(Met<'_>)) {
        let mut keys = Vec::with_capacity(leaf.entries.len());
        for entry in &leaf.entries {
            let key = [leaf.prefix, entry.key].concat();
            if frame::unseal(&key, entry.value).is_ok() {
                met(Met::Put(key.clone(), value(entry, segment_at)));
            }
            keys.push(key);
        }
        met(Met::Whole { lo: leaf.lo, hi: leaf.hi, keys: &keys });
        self.prefixes.insert(page, leaf.prefix.to_vec());
        if !self.recent.iter().any(|known| known == leaf.prefix) {
            self.recent.insert(0, leaf.prefix.to_vec());
            self.recent.truncate(PREFIXES_MAX);
        }
    }

    /// The whole key: the seal of its value holds for no other.
    fn key_of(&self, page: u64, entry: &Entry<'_>) -> Option<Vec<u8>> {
        let own = self.prefixes.get(&page).into_iter();
        let none = &Vec::new();
        own.chain(&self.recent).chain([none]).find_map(|prefix| {
            let key = [prefix.as_slice(), entry.key].concat();
            frame::unseal(&key, entry.value).is_ok().then_some(key)
        })
    }
}

fn value<'a>(entry: &Entry<'a>, segment_at: u64) -> Value<'a> {
    Value { bytes: entry.value, at: segment_at + entry.at as u64 }
}
