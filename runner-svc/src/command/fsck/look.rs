//! The looking: runs, indexes, blobs, marks of loads.

use std::{collections::BTreeSet, fs, path::Path};

use content_digest::Digest;
use runner_core::{event::Event, manifest::Manifest, pinned::Executor, verify::Replay};

use super::{Problem, Report};
use crate::{
    command::store::Store,
    journal::{LIST_ROWS_MAX, PAYLOAD_INLINE_BYTES_MAX, RunInfo},
    runs::{
        Summary,
        load::{self, LoadError},
    },
};

/// Folder of damaged blobs that were put aside.
const ASIDE: &str = "damaged";

/// What runs name.
#[derive(Default)]
struct Named {
    texts: BTreeSet<Digest>,
    code: BTreeSet<Digest>,
    /// Blobs that calls sent, stored or read.
    carried: BTreeSet<Digest>,
}

/// Looks at all of it.
pub(super) async fn everything(store: &Store, dir: &Path, repair: bool) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let mut named = Named::default();
    runs(store, &mut report, &mut named)?;
    for what in store.journal.check_indexes(repair).await? {
        let remedy = "the index is written anew".to_owned();
        report.problems.push(Problem { class: "index", what, remedy, repairable: true, repaired: repair });
    }
    blobs(store, dir, repair, &named, &mut report)?;
    loads(dir, repair, &mut report)?;
    Ok(report)
}

fn runs(store: &Store, report: &mut Report, named: &mut Named) -> anyhow::Result<()> {
    let mut after = None;
    loop {
        let rows = store.journal.all_runs(after, LIST_ROWS_MAX)?;
        let Some(last) = rows.last() else { return Ok(()) };
        after = Some(last.number);
        for row in rows {
            report.runs += 1;
            match row.run {
                Ok(info) => run(store, &info, report, named),
                Err(damaged) => report.problems.push(damaged_run(damaged.to_string())),
            }
        }
    }
}

/// One run, event by event: no more of it is in memory than its state.
fn run(store: &Store, info: &RunInfo, report: &mut Report, named: &mut Named) {
    let run_id = &info.header.run_id;
    let mut replay = Replay::new();
    let read = load::entries(&store.journal, run_id, 0, |entry| {
        let large = entry.payloads().iter().filter(|text| text.len_bytes() > PAYLOAD_INLINE_BYTES_MAX);
        named.texts.extend(large.map(|text| text.digest()));
        if let Event::RunStarted { manifest, .. } = entry.event()
            && let Ok(manifest) = serde_json::from_str::<Manifest>(manifest.text())
        {
            named.code.extend(manifest.nodes.iter().filter_map(|node| match &node.tool.executor {
                Executor::Code { digest, .. } => Some(*digest),
                _ => None,
            }));
        }
        if let Event::ExchangeRecorded { exchange, .. } = entry.event() {
            named.carried.extend(exchange.blobs.iter().map(|blob| blob.digest));
        }
        replay.push(&entry);
        Ok::<_, LoadError>(replay.divergence().is_none())
    });
    if let Err(damage) = read {
        replay.push_damaged(&damage.to_string());
    }
    let head = serde_json::from_slice::<Summary>(&info.summary).ok().map(|summary| summary.head);
    let verdict = replay.finish(head);
    report.events += verdict.events;
    if let Some(divergence) = verdict.divergence {
        let what = format!(
            "run {run_id:?}, event {} ({}): {}",
            divergence.sequence,
            divergence.class.as_str(),
            divergence.problem
        );
        report.problems.push(damaged_run(what));
    }
}

fn damaged_run(what: String) -> Problem {
    let remedy =
        "cannot be repaired here: restore a backup; otherwise this run stays as it is and all others go on".to_owned();
    Problem { class: "run", what, remedy, repairable: false, repaired: false }
}

fn blobs(store: &Store, dir: &Path, repair: bool, named: &Named, report: &mut Report) -> anyhow::Result<()> {
    let stored = store.blobs.addresses()?;
    for digest in &stored {
        report.blobs += 1;
        let used = [&named.texts, &named.code, &named.carried].into_iter().any(|named| named.contains(digest));
        match store.blobs.content(digest) {
            Ok(_) => report.orphan_blobs += u64::from(!used),
            Err(damage) => {
                if repair {
                    put_aside(dir, digest)?;
                }
                let what = format!("blob {} does not hold what it is named for: {damage}", digest.to_uri());
                let remedy = "it is put aside, so that it can be stored again with PutBlob".to_owned();
                report.problems.push(Problem { class: "blob", what, remedy, repairable: true, repaired: repair });
            }
        }
    }
    let stored: BTreeSet<Digest> = stored.into_iter().collect();
    let code = named.code.difference(&stored).map(|digest| (digest, "code that a run names"));
    let carried = named.carried.difference(&stored).map(|digest| (digest, "which a run's call sent, stored or read"));
    for (digest, is) in code.chain(carried) {
        let what = format!("blob {}, {is}, is not here", digest.to_uri());
        let remedy = "store it again with PutBlob".to_owned();
        report.problems.push(Problem { class: "missing", what, remedy, repairable: false, repaired: false });
    }
    Ok(())
}

fn put_aside(dir: &Path, digest: &Digest) -> anyhow::Result<()> {
    let (hex, aside) = (digest.to_hex(), dir.join(ASIDE));
    fs::create_dir_all(&aside)?;
    fs::rename(dir.join("blobs").join(&hex[..2]).join(&hex[2..]), aside.join(hex))?;
    Ok(())
}

/// Marks of loads that did not come to their end.
fn loads(dir: &Path, repair: bool, report: &mut Report) -> anyhow::Result<()> {
    let Ok(marks) = fs::read_dir(dir.join("loading")) else { return Ok(()) };
    for mark in marks {
        let path = mark?.path();
        let text = fs::read_to_string(&path).unwrap_or_default();
        let mut lines = text.lines();
        let (crashes, run_id) = (lines.next().unwrap_or("?").to_owned(), lines.next().unwrap_or("?").to_owned());
        if repair {
            fs::remove_file(&path)?;
        }
        let what = format!("loading run {run_id:?} ended the process {crashes} times");
        let remedy = "it is loaded again at the next start".to_owned();
        report.problems.push(Problem { class: "loading", what, remedy, repairable: true, repaired: repair });
    }
    Ok(())
}
