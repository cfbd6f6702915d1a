//! Records of one run, page by page, each checked.

use std::{io, ops::ControlFlow};

use runner_core::payload::Payload;

use super::{
    error::{Damaged, Fault, Place, Storage, Trouble},
    frame::{Draft, DraftPayload, Joiner},
    key::{Key as _, Part},
    lookup::damaged,
    payload_files::PayloadFiles,
    record::{PAGE_BYTES_MAX, Page, StoredRecord},
    shared::Shared,
    shelf::Span,
};

/// One run's records from a sequence number on, up to another one that is not read.
pub(super) struct Stretch<'a> {
    pub run_id: &'a str,
    pub number: u64,
    pub from: u64,
    pub end: u64,
}

/// Reads a stretch until its end or until the page is full, one record at least.
pub(super) fn page(shared: &Shared, stretch: &Stretch<'_>) -> Result<Page, Fault> {
    let drafts = drafts(shared, stretch)?;
    let mut page = Page { records: Vec::new(), next: stretch.from };
    let mut bytes = 0;
    for draft in drafts {
        let size = size_of(&draft);
        if !page.records.is_empty() && bytes + size > PAGE_BYTES_MAX {
            break;
        }
        bytes += size;
        let (sequence, run_id) = (page.next, stretch.run_id);
        let bad = |reason: &str| damaged(run_id, Place::Record(sequence), reason);
        let payloads = draft.payloads.into_iter().map(|payload| fetch(&**shared.files(), payload, bad));
        let payloads = match payloads.collect::<Result<Vec<_>, _>>() {
            Ok(payloads) => payloads,
            // What lies before it is good; it is met again when it is asked for.
            Err(_) if !page.records.is_empty() => break,
            Err(fault) => return Err(fault),
        };
        page.records.push(StoredRecord { sequence, bytes: draft.bytes, payloads });
        page.next += 1;
    }
    Ok(page)
}

/// What lies in the store itself.
fn drafts(shared: &Shared, stretch: &Stretch<'_>) -> Result<Vec<Draft>, Fault> {
    let mut drafts = Vec::new();
    if stretch.from >= stretch.end {
        return Ok(drafts);
    }
    let from = Part { run: stretch.number, sequence: stretch.from, part: 0 }.encode();
    let to = Part { run: stretch.number, sequence: stretch.end - 1, part: u16::MAX }.encode();
    let mut assembly = Assembly { sequence: stretch.from, joiner: Joiner::default() };
    let mut bytes = 0;
    let mut met: Option<Damaged> = None;
    let scanned = shared.shelf().scan(Span { from: &from, to: &to, backwards: false }, &mut |key, value| {
        let sequence = assembly.sequence;
        match assembly.push(key, value) {
            Ok(None) => ControlFlow::Continue(()),
            Ok(Some(draft)) => {
                bytes += size_of(&draft);
                drafts.push(draft);
                if bytes >= PAGE_BYTES_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }
            Err(reason) => {
                met = Some(damaged(stretch.run_id, Place::Record(sequence), reason));
                ControlFlow::Break(())
            }
        }
    });
    if let Err(storage) = scanned {
        match Fault::of_run(storage, stretch.run_id, Place::Record(assembly.sequence)) {
            Fault::Damaged(damaged) => met = Some(damaged),
            storage => return Err(storage),
        }
    }
    let missing = assembly.joiner.is_open() || (bytes < PAGE_BYTES_MAX && assembly.sequence < stretch.end);
    if met.is_none() && missing {
        met = Some(damaged(stretch.run_id, Place::Record(assembly.sequence), "the record is missing"));
    }
    match met {
        // What lies before the damage is good; the damage is met when it is asked for.
        Some(damaged) if drafts.is_empty() => Err(damaged.into()),
        Some(_) | None => Ok(drafts),
    }
}

/// The record that is being put together.
struct Assembly {
    sequence: u64,
    joiner: Joiner,
}

impl Assembly {
    fn push(&mut self, key: &[u8], value: &[u8]) -> Result<Option<Draft>, &'static str> {
        let part = Part::decode(key).ok_or("a key is not a record's")?;
        if part.sequence != self.sequence {
            return Err("the record is missing");
        }
        if !self.joiner.push(part.part, key, value)? {
            return Ok(None);
        }
        self.sequence += 1;
        std::mem::take(&mut self.joiner).finish().map(Some)
    }
}

fn size_of(draft: &Draft) -> usize {
    let texts = draft.payloads.iter().map(|payload| match payload {
        DraftPayload::Here(payload) => payload.text().len(),
        DraftPayload::File { bytes, .. } => usize::try_from(*bytes).unwrap_or(usize::MAX),
    });
    draft.bytes.len() + texts.sum::<usize>()
}

/// A text that is gone or changed damages its record; a disk that does not read may read again later.
fn fetch(files: &dyn PayloadFiles, payload: DraftPayload, bad: impl Fn(&str) -> Damaged) -> Result<Payload, Fault> {
    let (digest, size) = match payload {
        DraftPayload::Here(payload) => return Ok(payload),
        DraftPayload::File { digest, bytes } => (digest, bytes),
    };
    let bytes = files.get(&digest).map_err(|error| {
        let text = format!("text {digest} cannot be read: {error}");
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::InvalidData => Fault::Damaged(bad(&text)),
            _ => Fault::Storage(Storage::new(Trouble::Read, text)),
        }
    })?;
    let text = String::from_utf8(bytes).map_err(|_| bad(&format!("text {digest} is not UTF-8")))?;
    let payload = Payload::new(text);
    if payload.digest() == digest && payload.text().len() as u64 == u64::from(size) {
        Ok(payload)
    } else {
        Err(bad(&format!("text {digest} is not what was written")).into())
    }
}
