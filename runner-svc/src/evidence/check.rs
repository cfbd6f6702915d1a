//! Checks an exported file with nothing but the file: no service, no secret, no more memory than the run's own state.

mod assembly;
mod sections;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, BufRead, Read as _},
};

use content_digest::Digest;
use runner_core::{
    entry::Entry,
    event::Event,
    manifest::Manifest,
    payload::Payload,
    verify::{Replay, Verdict},
};
use serde::Serialize;

use self::{
    assembly::{Assembly, Piece},
    sections::Sections,
};
use super::{
    family::Children,
    frozen,
    kept::{Found, Kept},
    line::{FORMAT, FORMAT_OLDEST, FORMAT_SAYS_BLOBS, LINE_BYTES_MAX, Line},
    receipt::Receipt,
};
use crate::catalogue::grain::Grain;

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whether everything holds.
    pub clean: bool,
    /// The run, as the file's first line names it.
    pub run_id: String,
    /// Its namespace.
    pub namespace: String,
    /// Events that hold.
    pub events: u64,
    /// Decisions made anew and found the same.
    pub decisions: u64,
    /// SHA-256 of the last event.
    pub head_hash: Digest,
    /// Digest of the folded state.
    pub state_digest: Digest,
    /// How the run ended, or `unfinished`.
    pub outcome: String,
    /// Grains, and blobs of code, that came with it and hold.
    pub grains: u64,
    /// The same, of blobs.
    pub blobs: u64,
    /// Blobs that the run's calls sent, stored or read: its events name them by address and length.
    pub named_blobs: u64,
    /// How many of those came with it.
    pub named_blobs_here: u64,
    /// The key that signed the receipt, 64 hex digits; empty without one.
    pub signed_by: String,
    /// The child runs in the file, parents before their children.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Self>,
    /// The first thing that does not hold, in the run or in a child run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finding: Option<Finding>,
}

/// Something that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// `format`, `record`, `text`, `chain`, `decision`, `state`, `end`, `grain`, `blob`, `receipt` or `child`.
    pub class: &'static str,
    /// The run that it belongs to.
    pub run_id: String,
    /// The event, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<u64>,
    /// The line of the file, from 1; the last one for what is missing.
    pub line: u64,
    /// What is wrong.
    pub problem: String,
}

/// What a file has to agree with beside itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Trusted<'a> {
    /// The public key that has to have signed it, 64 hex digits; any will do without one.
    pub key: Option<&'a str>,
    /// A receipt of its first run that somebody kept.
    pub receipt: Option<&'a Kept>,
}

/// Checks a file.
///
/// # Errors
/// The file cannot be read. What does not hold in it is no error but a finding.
pub fn check(file: &mut dyn BufRead, trusted: Trusted<'_>) -> io::Result<Report> {
    let mut sections = Sections::new(trusted);
    let mut text = Vec::new();
    while !sections.is_over() {
        text.clear();
        if file.take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut text)? == 0 {
            break;
        }
        sections.take(&text);
    }
    Ok(sections.end())
}

/// A line of the file, or why it is none.
fn read(text: &[u8]) -> Result<Line, String> {
    let complete = text.strip_suffix(b"\n").filter(|line| line.len() < LINE_BYTES_MAX);
    let line = complete.ok_or_else(|| "the line is cut off or too long".to_owned());
    line.and_then(|line| serde_json::from_slice(line).map_err(|cause| cause.to_string()))
}

#[derive(Default)]
struct Check {
    line: u64,
    run_id: Option<String>,
    namespace: String,
    /// Whether it stands behind the run whose child it is.
    is_child: bool,
    replay: Replay,
    texts: Assembly,
    bytes: Assembly,
    manifest_digest: Option<Digest>,
    grains: BTreeSet<Digest>,
    blobs: BTreeSet<Digest>,
    /// Whether the file says that its blobs came with it, and whether it says so at all.
    with_blobs: bool,
    says_blobs: bool,
    /// Blobs that calls name, with their lengths, and whether they came.
    named: BTreeMap<Digest, (u64, bool)>,
    receipt: Option<Receipt>,
    children: Option<Children>,
    finding: Option<Finding>,
}

impl Check {
    fn take(&mut self, line: Result<Line, String>) {
        match line {
            Ok(_) if self.receipt.is_some() => self.find("format", "something follows the receipt"),
            Ok(Line::Export { format, .. }) if !(FORMAT_OLDEST..=FORMAT).contains(&format) => {
                self.find("format", &format!("format {format}: this program reads {FORMAT_OLDEST} to {FORMAT}"));
            }
            Ok(Line::Export { format, with_blobs, .. }) if with_blobs.is_some() != (format >= FORMAT_SAYS_BLOBS) => {
                self.find(
                    "format",
                    &format!("format {format} has to say from {FORMAT_SAYS_BLOBS} on whether blobs are there"),
                );
            }
            Ok(Line::Export { parent: Some(_), .. }) if self.run_id.is_none() && !self.is_child => {
                self.find("format", "the first line names a parent: only child runs behind their parent have one");
            }
            Ok(Line::Export { run_id, namespace, with_blobs, .. }) if self.run_id.is_none() => {
                (self.with_blobs, self.says_blobs) = (with_blobs == Some(true), with_blobs.is_some());
                self.children = Some(Children::of(&run_id));
                (self.run_id, self.namespace) = (Some(run_id), namespace);
            }
            Ok(Line::Export { .. }) => self.find("format", "a second beginning"),
            Ok(_) if self.run_id.is_none() => self.find("format", "the first line is no `export` line"),
            Ok(Line::Text { digest, piece, pieces, text }) => {
                self.piece("text", Piece { digest, piece, pieces, bytes: text.into_bytes() });
            }
            Ok(Line::Event { record }) => self.event(record),
            Ok(Line::Grain { digest, piece, pieces, base64 }) => self.binary("grain", (digest, piece, pieces), &base64),
            Ok(Line::Blob { digest, piece, pieces, base64 }) => self.binary("blob", (digest, piece, pieces), &base64),
            Ok(Line::Receipt { receipt }) => self.receipt = Some(receipt),
            Err(cause) => self.find("format", &cause),
        }
    }

    fn piece(&mut self, class: &'static str, piece: Piece) {
        if let Err(problem) = self.texts.push(piece) {
            self.find(class, &problem);
        }
    }

    fn binary(&mut self, class: &'static str, (digest, piece, pieces): (Digest, u32, u32), base64: &str) {
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        let Ok(bytes) = STANDARD.decode(base64) else { return self.find(class, "it is no base64") };
        match self.bytes.push(Piece { digest, piece, pieces, bytes }) {
            Err(problem) => self.find(class, &problem),
            Ok(false) => {}
            Ok(true) => {
                let whole = self.bytes.take(&digest).unwrap_or_default();
                let length = whole.len() as u64;
                match class {
                    "grain" if Grain::decode(whole).is_err() => self.find(class, &format!("{digest} is no grain")),
                    "grain" => drop(self.grains.insert(digest)),
                    _ => self.blob(digest, length),
                }
            }
        }
    }

    fn blob(&mut self, digest: Digest, length: u64) {
        self.blobs.insert(digest);
        let Some((named, here)) = self.named.get_mut(&digest) else { return };
        *here = true;
        if *named != length {
            let problem = format!("{digest} has {length} bytes, an event says {named}");
            self.find("blob", &problem);
        }
    }

    fn event(&mut self, record: String) {
        let texts = &self.texts;
        let opened = Entry::open(record.into_bytes(), |named| {
            let bytes = texts.get(&named.digest).ok_or("the text is not in the file")?;
            std::str::from_utf8(bytes).map(Payload::new).map_err(|_| "the text is no UTF-8")
        });
        match opened {
            Ok(entry) => {
                if let Event::RunStarted { manifest, .. } = entry.event() {
                    self.manifest_digest = Some(manifest.digest());
                }
                if let Event::ExchangeRecorded { exchange, .. } = entry.event() {
                    self.named.extend(exchange.blobs.iter().map(|blob| (blob.digest, (blob.bytes, false))));
                }
                self.replay.push(&entry);
                if let Some(children) = &mut self.children {
                    children.take(&entry);
                }
            }
            Err(bad) => self.replay.push_damaged(&match &bad {
                runner_core::entry::BadEntry::Fetch(cause) => format!("{bad}: {cause}"),
                _ => bad.to_string(),
            }),
        }
        // What an event names comes right before it.
        self.texts = Assembly::default();
        self.diverged();
    }

    fn diverged(&mut self) {
        let Some(divergence) = self.replay.divergence() else { return };
        let (class, event, problem) = (divergence.class.as_str(), divergence.sequence, divergence.problem.clone());
        let run_id = self.run_id.clone().unwrap_or_default();
        self.finding.get_or_insert(Finding { class, run_id, event: Some(event), line: self.line, problem });
    }

    fn find(&mut self, class: &'static str, problem: &str) {
        let problem = problem.chars().take(512).collect();
        let run_id = self.run_id.clone().unwrap_or_default();
        self.finding.get_or_insert(Finding { class, run_id, event: None, line: self.line, problem });
    }

    fn end(mut self, trusted: Trusted<'_>) -> Report {
        let state = self.replay.state();
        let outcome = state.and_then(|state| state.outcome()).map_or("unfinished", |outcome| outcome.word()).to_owned();
        let run_id = state.map(|state| state.run_id().to_owned());
        let misfit = state.and_then(|state| self.misfit(state.manifest()));
        let verdict = std::mem::take(&mut self.replay).finish(None);
        if self.finding.is_none() {
            self.finish(&verdict, &outcome, run_id.as_deref(), trusted);
            if let Some((class, problem)) = misfit {
                self.find(class, &problem);
            }
        }
        Report {
            clean: self.finding.is_none(),
            run_id: self.run_id.unwrap_or_default(),
            namespace: self.namespace,
            events: verdict.events,
            decisions: verdict.decisions,
            head_hash: verdict.head,
            state_digest: verdict.state_digest,
            outcome,
            grains: self.grains.len() as u64,
            blobs: self.blobs.len() as u64,
            named_blobs: self.named.len() as u64,
            named_blobs_here: self.named.values().filter(|(_, here)| *here).count() as u64,
            signed_by: self.receipt.map(|receipt| receipt.public_key).unwrap_or_default(),
            children: Vec::new(),
            finding: self.finding,
        }
    }

    /// What the first line says and the run's manifest does not, or the other way round: the namespace, and what came with it.
    fn misfit(&self, manifest: &Manifest) -> Option<(&'static str, String)> {
        if manifest.namespace != self.namespace {
            let (says, is) = (&self.namespace, &manifest.namespace);
            return Some(("format", format!("the first line names the namespace {says:?}, the run's is {is:?}")));
        }
        if !self.with_blobs && self.says_blobs && !self.blobs.is_empty() {
            let here = self.blobs.len();
            return Some(("blob", format!("the first line says that no blobs are there, and {here} are")));
        }
        let says =
            |what, digest: Digest| (what, format!("the run names the {what} {digest}, and it is not in the file"));
        if let Some(grain) = frozen::grains(manifest).difference(&self.grains).next() {
            return Some(says("grain", *grain));
        }
        let mut blobs = frozen::code(manifest);
        blobs.extend(self.named.keys());
        blobs.difference(&self.blobs).next().filter(|_| self.with_blobs).map(|blob| says("blob", *blob))
    }

    /// What can be judged only when all has been seen.
    fn finish(&mut self, verdict: &Verdict, outcome: &str, run_id: Option<&str>, trusted: Trusted<'_>) {
        if let Some(divergence) = &verdict.divergence {
            let (class, problem) = (divergence.class.as_str(), divergence.problem.clone());
            let run_id = self.run_id.clone().unwrap_or_default();
            self.finding = Some(Finding { class, run_id, event: Some(divergence.sequence), line: self.line, problem });
            return;
        }
        if !self.texts.is_empty() || !self.bytes.is_empty() {
            return self.find("end", "the file ends within a text, a grain or a blob: its end was cut off");
        }
        if run_id != self.run_id.as_deref() {
            return self.find("chain", "the events are those of another run than the first line names");
        }
        let Some(receipt) = self.receipt.clone() else {
            return self.find("receipt", "the file has no receipt: its end was cut off");
        };
        if let Err(bad) = receipt.check(trusted.key) {
            return self.find("receipt", &bad.to_string());
        }
        let differs = |what: &str, says: &dyn std::fmt::Display, found: &dyn std::fmt::Display| {
            format!("the receipt says {what} {says}, the events make it {found}")
        };
        let problem = if Some(receipt.run_id.as_str()) != run_id {
            differs("run", &receipt.run_id, &run_id.unwrap_or_default())
        } else if Some(receipt.manifest_digest) != self.manifest_digest {
            differs("manifest", &receipt.manifest_digest, &self.manifest_digest.unwrap_or(Digest::ZERO))
        } else if receipt.events != verdict.events {
            differs("events", &receipt.events, &verdict.events)
        } else if receipt.head_hash != verdict.head {
            differs("head", &receipt.head_hash, &verdict.head)
        } else if receipt.outcome != outcome {
            differs("outcome", &receipt.outcome, &outcome)
        } else {
            let found = Found { run_id: &receipt.run_id, events: verdict.events, head: verdict.head, outcome };
            let Some(problem) = trusted.receipt.and_then(|kept| kept.misfit(found, trusted.key)) else { return };
            problem
        };
        self.find("receipt", &problem);
    }
}
