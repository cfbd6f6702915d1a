//! Compares the indexes of runs with the runs themselves, and writes them anew.

use std::{collections::BTreeSet, ops::ControlFlow};

use content_digest::Digest;

use super::{
    error::{Fault, Storage},
    frame,
    key::{ByNamespace, ByPlan, Header, Key, RunName, Unfinished},
    lookup,
    shelf::{Batch, Shelf, Span},
};

/// Most differences that are told one by one.
const LINES_MAX: usize = 1000;

/// What differs.
#[derive(Default)]
pub(super) struct Differences {
    /// For people, a line each.
    pub(super) lines: Vec<String>,
    more: usize,
}

impl Differences {
    /// Looks at all runs; with `mend` writes what is missing and removes what is too much.
    pub(super) fn look(&mut self, shelf: &dyn Shelf, mend: bool) -> Result<(), Storage> {
        let mut batch = Batch::default();
        let mut expected: [BTreeSet<Vec<u8>>; 4] = Default::default();
        for number in numbers(shelf)? {
            // A run that is damaged itself is told where runs are looked at.
            let header = match lookup::header(shelf, number) {
                Ok(header) => header,
                Err(Fault::Damaged(_)) => {
                    // It stays listed, so that it is told at every start.
                    expected[3].insert(Unfinished(number).encode());
                    continue;
                }
                Err(Fault::Storage(storage)) => return Err(storage),
            };
            let unfinished = match lookup::state(shelf, number, &header.run_id) {
                Ok(state) => !state.finished,
                Err(Fault::Damaged(_)) => true,
                Err(Fault::Storage(storage)) => return Err(storage),
            };
            let (namespace, plan) = (Digest::of(&header.namespace), header.plan_hash);
            expected[0].insert(RunName(Digest::of(&header.run_id)).encode());
            expected[1].insert(ByNamespace { namespace, run: number }.encode());
            expected[2].insert(ByPlan { namespace, plan, run: number }.encode());
            if unfinished {
                expected[3].insert(Unfinished(number).encode());
            }
            let name = RunName(Digest::of(&header.run_id)).encode();
            if shelf.get(&name)?.is_none() {
                self.tell(format!("run {:?} is not found by its id", header.run_id));
                batch.put(name.clone(), frame::seal(&name, &number.to_be_bytes()));
            }
        }
        let kinds = [
            (ByNamespace::KIND, &expected[1], "the index by namespace"),
            (ByPlan::KIND, &expected[2], "the index by plan"),
            (Unfinished::KIND, &expected[3], "the index of unfinished runs"),
        ];
        for (kind, expected, what) in kinds {
            let found = keys(shelf, kind)?;
            for missing in expected.difference(&found) {
                self.tell(format!("{what} lacks a run"));
                batch.put(missing.clone(), frame::seal(missing, &[]));
            }
            for dangling in found.difference(expected) {
                self.tell(format!("{what} names a run that is not there, or has ended"));
                batch.remove(dangling.clone());
            }
        }
        if self.more > 0 {
            self.lines.push(format!("and {} more", self.more));
        }
        if mend && !batch.is_empty() {
            shelf.apply(batch)?;
            shelf.sync()?;
        }
        Ok(())
    }

    fn tell(&mut self, line: String) {
        if self.lines.len() < LINES_MAX {
            self.lines.push(line);
        } else {
            self.more += 1;
        }
    }
}

fn numbers(shelf: &dyn Shelf) -> Result<Vec<u64>, Storage> {
    let found = keys(shelf, Header::KIND)?;
    Ok(found.iter().filter_map(|key| Header::decode(key)).map(|header| header.0).collect())
}

fn keys(shelf: &dyn Shelf, kind: u8) -> Result<BTreeSet<Vec<u8>>, Storage> {
    let (from, to) = (vec![kind], vec![kind, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    // Digests may begin with any byte: the end is the next kind.
    let to = if kind == Header::KIND || kind == Unfinished::KIND { to } else { vec![kind + 1] };
    let mut found = BTreeSet::new();
    shelf.scan(Span { from: &from, to: &to, backwards: false }, &mut |key, _| {
        if key.first() == Some(&kind) {
            found.insert(key.to_vec());
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}
