//! `runner-svc verify FILE`: an exported run, checked with nothing but the file.

use std::{
    fs::File,
    io::{BufReader, Read as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::{CLEAN, FOUND, say};
use crate::evidence::{
    check::{Report, Trusted, check},
    kept::{BYTES_MAX, Kept},
};

/// Its arguments.
#[derive(Debug, Clone, clap::Args)]
pub struct Verify {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Public key that has to have signed the receipt, 64 hex digits: the service logs its own at each start
    #[arg(long, value_name = "HEX", value_parser = key)]
    key: Option<String>,
    /// A receipt of the run that was kept when it ended: the member `receipt` of the answer of GetRun or WaitRun, as JSON. The
    /// run has to end where it says, so that a service whose own records were cut or put back is caught, too
    #[arg(long, value_name = "FILE")]
    receipt: Option<PathBuf>,
    /// Write the report as one JSON object
    #[arg(long)]
    json: bool,
}

impl Verify {
    /// Checks and reports.
    pub(super) fn run(&self) -> anyhow::Result<u8> {
        let file = File::open(&self.file).with_context(|| format!("cannot open {}", self.file.display()))?;
        let kept = self.receipt.as_deref().map(kept).transpose()?;
        let trusted = Trusted { key: self.key.as_deref(), receipt: kept.as_ref() };
        let report = check(&mut BufReader::new(file), trusted)
            .with_context(|| format!("cannot read {}", self.file.display()))?;
        say(&if self.json { serde_json::to_string(&report)? } else { shown(&report, self.key.is_some()) })?;
        Ok(if report.clean { CLEAN } else { FOUND })
    }
}

fn kept(path: &Path) -> anyhow::Result<Kept> {
    let file = File::open(path).with_context(|| format!("cannot open --receipt {}", path.display()))?;
    let mut text = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut text).with_context(|| format!("cannot read --receipt {}", path.display()))?;
    Kept::read(&text).map_err(|cause| anyhow::anyhow!("--receipt {}: {cause}", path.display()))
}

fn key(text: &str) -> Result<String, String> {
    match hex::decode(text) {
        Ok(bytes) if bytes.len() == 32 => Ok(text.to_ascii_lowercase()),
        Ok(_) | Err(_) => Err("give 64 hex digits".to_owned()),
    }
}

fn shown(report: &Report, key_named: bool) -> String {
    let Report { run_id, namespace, events, decisions, outcome, grains, blobs, signed_by, children, .. } = report;
    let carried = match (report.named_blobs, report.named_blobs_here) {
        (0, _) => String::new(),
        (named, here) => format!("; its calls name {named}, of which {here} came with it"),
    };
    let signed = match (signed_by.as_str(), key_named) {
        ("", _) => "none".to_owned(),
        (key, true) => format!("signed by {key}"),
        (key, false) => format!("signed by {key}; compare with the key that the service logs, or name it with --key"),
    };
    let verdict = match &report.finding {
        None => "clean".to_owned(),
        Some(finding) => {
            let event = finding.event.map(|event| format!("event {event}, ")).unwrap_or_default();
            let of = if finding.run_id == *run_id { String::new() } else { format!("child run {}, ", finding.run_id) };
            format!("NOT CLEAN: {of}{event}line {} ({}): {}", finding.line, finding.class, finding.problem)
        }
    };
    format!(
        "run       {run_id} of namespace {namespace}\noutcome   {outcome}\nevents    {events}, {decisions} decisions made \
         again\nhead      {}\nstate     {}\nwith it   {grains} grains, {blobs} blobs{carried}\nchildren  {}\nreceipt   {signed}\nverdict   \
         {verdict}",
        report.head_hash,
        report.state_digest,
        below(children),
    )
}

/// The child runs, a line each.
fn below(children: &[Report]) -> String {
    if children.is_empty() {
        return "none".to_owned();
    }
    let shown = children.iter().map(|child| {
        let Report { run_id, events, outcome, .. } = child;
        format!("\n          {run_id}: {outcome}, {events} events")
    });
    format!("{}{}", children.len(), shown.collect::<String>())
}
