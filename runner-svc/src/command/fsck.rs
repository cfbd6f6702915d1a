//! `runner-svc fsck DIR`: looks at everything in a data directory, says what does not hold and what can be repaired.

mod look;

use std::path::PathBuf;

use serde::Serialize;

use crate::journal::Mended;

use super::{
    CLEAN, FOUND, say,
    store::{self, Damage},
};

/// Its arguments.
#[derive(Debug, Clone, clap::Args)]
pub struct Fsck {
    /// The data directory; no service may run on it
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Repair what can be repaired: write a damaged journal and indexes anew from what can be read, accepting what is lost, put
    /// damaged blobs aside, have runs loaded again that ended the process
    #[arg(long)]
    repair: bool,
    /// Write the report as one JSON object
    #[arg(long)]
    json: bool,
}

/// What was found.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Whether everything holds.
    pub clean: bool,
    /// Runs looked at.
    pub runs: u64,
    /// Events of theirs that hold.
    pub events: u64,
    /// Blobs looked at.
    pub blobs: u64,
    /// Blobs that no run names: no damage, they may be on their way into one, or the answer of a call that ended before its event.
    pub orphan_blobs: u64,
    /// What does not hold.
    pub problems: Vec<Problem>,
}

/// Something that does not hold.
#[derive(Debug, Serialize)]
pub struct Problem {
    /// `store`, `run`, `index`, `blob`, `missing` or `loading`.
    pub class: &'static str,
    /// What, for people.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
    /// Whether `--repair` mends it.
    pub repairable: bool,
    /// Whether it was mended now.
    pub repaired: bool,
}

/// What to do about what no repair brings back.
const LOST: &str = "what could be read was written anew, the rest is lost here: a backup may have it";

impl Problem {
    fn of_store(Mended { kept, gaps, values, runs_short }: &Mended) -> Self {
        let how = match gaps {
            // What follows damage at the end is nothing, so that there is no place in between.
            0 => "had lost its end or some of its values".to_owned(),
            1 => "was damaged in one place".to_owned(),
            _ => format!("was damaged in {gaps} places"),
        };
        let lack = match runs_short {
            0 => "no run lacks anything".to_owned(),
            1 => "one run lacks something".to_owned(),
            _ => format!("{runs_short} runs lack something"),
        };
        let what = format!(
            "the journal's file {how}: {values} values were read and written anew, {lack}; the damaged one is kept as {}",
            kept.display()
        );
        let whole = *runs_short == 0;
        let remedy = if whole { "remove it once nobody wants to look at it any more" } else { LOST };
        Self { class: "store", what, remedy: remedy.to_owned(), repairable: whole, repaired: whole }
    }
}

impl Fsck {
    /// Looks and reports.
    pub(super) fn run(&self) -> anyhow::Result<u8> {
        let store = store::open(&self.dir, if self.repair { Damage::Mend } else { Damage::Refuse })?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut report = runtime.block_on(look::everything(&store, &self.dir, self.repair))?;
        if let Some(mended) = &store.mended {
            report.problems.insert(0, Problem::of_store(mended));
        }
        report.clean = report.problems.iter().all(|problem| problem.repaired);
        say(&if self.json { serde_json::to_string(&report)? } else { shown(&report) })?;
        Ok(if report.clean { CLEAN } else { FOUND })
    }
}

fn shown(report: &Report) -> String {
    let Report { runs, events, blobs, orphan_blobs, problems, .. } = report;
    let mut text = format!("{runs} runs, {events} events, {blobs} blobs ({orphan_blobs} that nothing names yet)");
    for problem in problems {
        let Problem { class, what, remedy, repairable, repaired } = problem;
        let state = match (repaired, repairable) {
            (true, _) => "repaired",
            (false, true) => "run again with --repair",
            (false, false) => remedy.as_str(),
        };
        text.push_str(&format!("\n{class}: {what}: {state}"));
    }
    text.push_str(if report.clean { "\nclean" } else { "\nNOT CLEAN" });
    text
}
