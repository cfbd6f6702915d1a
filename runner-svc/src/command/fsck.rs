//! `runner-svc fsck DIR`: looks at everything in a data directory, says what does not hold and what can be repaired.

mod look;

use std::path::PathBuf;

use serde::Serialize;

use super::{CLEAN, FOUND, say, store};

/// Its arguments.
#[derive(Debug, Clone, clap::Args)]
pub struct Fsck {
    /// The data directory; no service may run on it
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Repair what can be repaired: write indexes anew, put damaged blobs aside, have runs loaded again that ended the process
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
    /// Blobs that no run and no definition names: no damage, they may be on their way into one.
    pub orphan_blobs: u64,
    /// What does not hold.
    pub problems: Vec<Problem>,
}

/// Something that does not hold.
#[derive(Debug, Serialize)]
pub struct Problem {
    /// `run`, `index`, `blob`, `missing` or `loading`.
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

impl Fsck {
    /// Looks and reports.
    pub(super) fn run(&self) -> anyhow::Result<u8> {
        let store = store::open(&self.dir)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut report = runtime.block_on(look::everything(&store, &self.dir, self.repair))?;
        report.clean = report.problems.iter().all(|problem| problem.repaired);
        say(&if self.json { serde_json::to_string(&report)? } else { shown(&report) });
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
