//! Writes a run as one file, line by line, holding one page of its journal in memory at a time.

use std::{collections::BTreeSet, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use content_digest::Digest;
use runner_core::{entry::Entry, event::Event, manifest::Manifest};

use super::{
    family::{Children, Family},
    frozen,
    line::{FORMAT, Line, PIECE_BYTES_MAX, pieces},
    receipt::ReceiptKey,
};
use crate::{
    catalogue::{Catalogue, CatalogueError, Files},
    journal::{Journal, ReadError, RunInfo},
    runs::{
        Summary,
        load::{self, LoadError},
    },
};

/// What is exported.
pub struct Export<'a> {
    /// The store.
    pub journal: &'a Journal,
    /// Grains and blobs.
    pub catalogue: &'a Catalogue,
    /// Signs the last line.
    pub key: &'a ReceiptKey,
    /// The run as it stood when the call came: what its driver adds meanwhile is not exported.
    pub info: &'a RunInfo,
    /// Whether the blobs go with it: code, and what calls sent, stored or read.
    pub with_blobs: bool,
    /// The clock, in milliseconds since 1970.
    pub now_ms: u64,
}

/// Why an export ends early.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The journal.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A grain or a blob.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// A grain or blob that the manifest names is not in the catalogue.
    #[error("{what} {digest} is not in the catalogue any more: store it again")]
    Missing {
        /// What it is.
        what: &'static str,
        /// Its address.
        digest: Digest,
    },
    /// The run's status document or manifest does not decode.
    #[error("run {run_id:?}: {what} does not decode")]
    Damaged {
        /// The run.
        run_id: String,
        /// What it is.
        what: &'static str,
    },
    /// More child runs than one export holds.
    #[error("{left_out} child runs are over the {max} that one export holds: export them one by one", max = super::family::CHILDREN_MAX)]
    TooManyChildren {
        /// How many, at least.
        left_out: u64,
    },
    /// Whoever asked is gone.
    #[error("nobody reads the export any more")]
    Gone,
}

/// Takes a piece of the file; false when nobody wants more.
pub type Sink<'a> = dyn FnMut(String) -> bool + 'a;

impl Export<'_> {
    /// Writes the whole file: the run, then the child runs below it, at most [`super::family::CHILDREN_MAX`].
    ///
    /// # Errors
    /// The run or what it names cannot be read, or nobody reads on.
    pub fn write(&self, sink: &mut Sink<'_>) -> Result<(), ExportError> {
        let mut family = Family::default();
        family.add(self.section(None, sink)?);
        while let Some(kin) = family.take_next() {
            let info = match self.journal.run(kin.run_id.as_str()) {
                Ok(info) => info,
                // It was not started yet, or was canceled before.
                Err(ReadError::NotFound(_)) if kin.head.is_none() => continue,
                Err(error) => return Err(LoadError::from(error).into()),
            };
            family.add(Export { info: &info, ..*self }.section(Some(kin.parent), sink)?);
        }
        match family.left_out() {
            0 => Ok(()),
            left_out => Err(ExportError::TooManyChildren { left_out }),
        }
    }

    /// Writes one run.
    fn section(&self, parent: Option<String>, sink: &mut Sink<'_>) -> Result<Children, ExportError> {
        let header = &self.info.header;
        let damaged = |what| ExportError::Damaged { run_id: header.run_id.clone(), what };
        let summary: Summary =
            serde_json::from_slice(&self.info.summary).map_err(|_| damaged("its status document"))?;
        let (run_id, namespace) = (header.run_id.clone(), header.namespace.clone());
        let (exported_at_ms, with_blobs) = (self.now_ms, Some(self.with_blobs));
        send(sink, &Line::Export { format: FORMAT, run_id, namespace, exported_at_ms, parent, with_blobs })?;
        let mut carried = BTreeSet::new();
        let (manifest, children) = self.events(&mut carried, sink)?;
        let manifest = manifest.ok_or_else(|| damaged("its manifest"))?;
        self.grains(&manifest, sink)?;
        if self.with_blobs {
            self.blobs(&manifest, carried, sink)?;
        }
        send(sink, &Line::Receipt { receipt: self.key.receipt(header, &summary) })?;
        Ok(children)
    }

    /// Also gathers the blobs that calls sent, stored or read.
    fn events(
        &self,
        carried: &mut BTreeSet<Digest>,
        sink: &mut Sink<'_>,
    ) -> Result<(Option<Manifest>, Children), ExportError> {
        let (mut manifest, mut children) = (None, Children::of(&self.info.header.run_id));
        let mut left = self.info.next_sequence;
        load::entries(self.journal, &self.info.header.run_id, 0, |entry| {
            if let Event::RunStarted { manifest: text, .. } = entry.event() {
                manifest = serde_json::from_str(text.text()).ok();
            }
            if let Event::ExchangeRecorded { exchange, .. } = entry.event() {
                carried.extend(exchange.blobs.iter().map(|blob| blob.digest));
            }
            children.take(&entry);
            event(&entry, sink)?;
            left = left.saturating_sub(1);
            Ok::<_, ExportError>(left > 0)
        })?;
        Ok((manifest, children))
    }

    fn grains(&self, manifest: &Manifest, sink: &mut Sink<'_>) -> Result<(), ExportError> {
        for digest in frozen::grains(manifest) {
            let grain = self.catalogue.grain(&digest)?.ok_or(ExportError::Missing { what: "grain", digest })?;
            let pieces = grain.bytes().chunks(PIECE_BYTES_MAX);
            let count = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
            for (piece, bytes) in (1..).zip(pieces) {
                send(sink, &Line::Grain { digest, piece, pieces: count, base64: STANDARD.encode(bytes) })?;
            }
        }
        Ok(())
    }

    fn blobs(&self, manifest: &Manifest, carried: BTreeSet<Digest>, sink: &mut Sink<'_>) -> Result<(), ExportError> {
        let blobs: &Arc<Files> = self.catalogue.blobs();
        for digest in frozen::code(manifest).into_iter().chain(carried).collect::<BTreeSet<Digest>>() {
            let mut content = blobs.content(&digest)?.ok_or(ExportError::Missing { what: "blob", digest })?;
            // An empty blob is one line too.
            let count = u32::try_from(content.size.div_ceil(PIECE_BYTES_MAX as u64).max(1)).unwrap_or(u32::MAX);
            let mut left = Vec::new();
            for piece in 1..=count {
                while left.len() < PIECE_BYTES_MAX {
                    let next = content.next_piece()?;
                    if next.is_empty() {
                        break;
                    }
                    left.extend(next);
                }
                let rest = left.split_off(left.len().min(PIECE_BYTES_MAX));
                send(sink, &Line::Blob { digest, piece, pieces: count, base64: STANDARD.encode(&left) })?;
                left = rest;
            }
        }
        Ok(())
    }
}

/// An event behind the texts that it names.
fn event(entry: &Entry, sink: &mut Sink<'_>) -> Result<(), ExportError> {
    let mut written = BTreeSet::new();
    for payload in entry.payloads() {
        if !written.insert(payload.digest()) {
            continue;
        }
        let pieces = pieces(payload.text());
        let count = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
        for (piece, text) in (1..).zip(pieces) {
            let (digest, text) = (payload.digest(), text.to_owned());
            send(sink, &Line::Text { digest, piece, pieces: count, text })?;
        }
    }
    let record = String::from_utf8(entry.record().to_vec()).expect("a record is JSON");
    send(sink, &Line::Event { record })
}

fn send(sink: &mut Sink<'_>, line: &Line) -> Result<(), ExportError> {
    if sink(line.to_text()) { Ok(()) } else { Err(ExportError::Gone) }
}
