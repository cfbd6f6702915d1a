//! The runs of a file: the one that was exported, and the child runs behind it, each checked like a file of its own and against
//! what its parent's journal says of it.

use std::collections::BTreeMap;

use content_digest::Digest;

use super::{Check, Finding, Report, Trusted, read};
use crate::evidence::{
    family::{CHILDREN_MAX, Family},
    line::Line,
};

/// The runs of a file, one after the other.
pub(super) struct Sections<'a> {
    trusted: Trusted<'a>,
    line: u64,
    check: Check,
    reports: Vec<Report>,
    /// Child runs that parents name: their parents, and where those end that have ended.
    named: BTreeMap<String, (String, Option<Digest>)>,
    finding: Option<Finding>,
}

impl<'a> Sections<'a> {
    /// Before the first line.
    pub(super) fn new(trusted: Trusted<'a>) -> Self {
        Self { trusted, line: 0, check: Check::default(), reports: Vec::new(), named: BTreeMap::new(), finding: None }
    }

    /// Whether nothing more has to be looked at.
    pub(super) fn is_over(&self) -> bool {
        self.finding.is_some() || self.check.finding.is_some()
    }

    /// Takes a line.
    pub(super) fn take(&mut self, text: &[u8]) {
        self.line += 1;
        let line = read(text);
        if let Ok(Line::Export { run_id, parent: Some(parent), .. }) = &line
            && self.check.receipt.is_some()
        {
            self.close();
            self.begin(run_id, parent);
        }
        if !self.is_over() {
            self.check.line = self.line;
            self.check.take(line);
        }
    }

    /// After the last line.
    pub(super) fn end(mut self) -> Report {
        self.close();
        let met = |run_id: &String| self.reports.iter().any(|report| report.run_id == *run_id);
        let missing = self.named.iter().find(|(run_id, (_, head))| head.is_some() && !met(run_id));
        if let Some((run_id, _)) = missing.filter(|_| self.finding.is_none()) {
            let problem =
                "it has ended by its parent's journal, and is not in the file: its end was cut off".to_owned();
            self.finding = Some(self.of_child(run_id.clone(), problem));
        }
        let mut reports = self.reports.into_iter();
        let mut report = reports.next().expect("a file has a first section, if only an empty one");
        report.children = reports.collect();
        report.clean = self.finding.is_none();
        report.finding = self.finding;
        report
    }

    /// A child run begins: one that a run before it named.
    fn begin(&mut self, run_id: &str, parent: &str) {
        self.check.is_child = true;
        if self.finding.is_some() {
            return;
        }
        let known = self.named.contains_key(run_id) && self.reports.iter().all(|report| report.run_id != run_id);
        if !known || self.reports.len() > CHILDREN_MAX {
            let problem = "no run before it in the file has such a child run, or it was there already".to_owned();
            self.finding = Some(self.of_child(run_id.to_owned(), problem));
        } else if let Some((of, _)) = self.named.get(run_id).filter(|(of, _)| of != parent) {
            let problem = format!("its first line names the parent {parent:?}, it is a child of {of:?}");
            self.finding = Some(self.of_child(run_id.to_owned(), problem));
        }
    }

    /// The run that was read last is whole, or is not.
    fn close(&mut self) {
        let mut check = std::mem::take(&mut self.check);
        let mut family = Family::default();
        family.add(check.children.take().unwrap_or_else(|| crate::evidence::family::Children::of("")));
        // A receipt that was kept is the first run's.
        let receipt = self.trusted.receipt.filter(|_| !check.is_child);
        let report = check.end(Trusted { receipt, ..self.trusted });
        while let Some(kin) = family.take_next() {
            self.named.insert(kin.run_id.as_str().to_owned(), (kin.parent, kin.head));
        }
        if self.finding.is_none() {
            self.finding = report.finding.clone().or_else(|| self.misfit(&report));
        }
        self.reports.push(report);
    }

    /// A child run that ends elsewhere than its parent's journal says.
    fn misfit(&self, report: &Report) -> Option<Finding> {
        let head = self.named.get(&report.run_id)?.1?;
        let problem = format!("its parent's journal says that it ends with {head}, it ends with {}", report.head_hash);
        (head != report.head_hash).then(|| self.of_child(report.run_id.clone(), problem))
    }

    fn of_child(&self, run_id: String, problem: String) -> Finding {
        Finding { class: "child", run_id, event: None, line: self.line, problem }
    }
}
