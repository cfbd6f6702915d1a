//! Copies of a store that is in use, and indexes that are made anew.

use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    os::unix::fs::FileExt as _,
    path::Path,
};

use runner_svc::journal::{CopyError, Journal, ReadError, Update};

use super::{
    Folder, append, claim,
    damage::{copy, end_of_data},
    new_run, open,
    pages::mending,
    patiently, read_all, take,
};

const RUNS: usize = 20;

fn name(run: usize) -> String {
    format!("run-{run}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_made_while_runs_are_written_holds_a_whole_prefix_of_each_and_goes_on_from_there() {
    let folder = Folder::new();
    let journal = folder.journal();
    for run in 0..RUNS {
        journal.create_run(new_run(&name(run))).await.unwrap();
    }
    let writers: Vec<_> = (0..RUNS)
        .map(|run| {
            let journal = journal.clone();
            tokio::spawn(async move {
                for place in 1..60 {
                    journal.append(append(&name(run), place, 1)).await.unwrap();
                }
            })
        })
        .collect();
    let copies = tempfile::tempdir().unwrap();
    for number in 0..3 {
        let dest = copies.path().join(number.to_string());
        let before: Vec<u64> = (0..RUNS).map(|run| journal.run(&name(run)).unwrap().next_sequence).collect();
        assert_eq!(journal.copy_to(&dest).await.unwrap().runs, RUNS as u64);
        let copy = patiently(|| open(&dest));
        assert!(copy.check_indexes(false).await.unwrap().is_empty());
        for (run, before) in before.into_iter().enumerate() {
            let records = read_all(&copy, &name(run));
            let info = copy.run(&name(run)).unwrap();
            assert!(records.len() as u64 == info.next_sequence && info.next_sequence >= before);
            let lease = take(&copy, &name(run), claim("you", 1)).await.unwrap();
            copy.append(append(&name(run), info.next_sequence + 1, lease.fence)).await.unwrap();
            assert_eq!(read_all(&copy, &name(run)).len(), records.len() + 2);
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let taken = journal.copy_to(copies.path()).await.unwrap_err();
    assert!(matches!(&taken, CopyError::Dest { .. }) && taken.to_string().contains("not empty"), "{taken}");
}

#[tokio::test]
async fn an_index_that_lost_a_run_or_names_one_that_is_gone_is_told_and_made_anew() {
    let mut folder = Folder::new();
    for run in 0..3 {
        folder.journal().create_run(new_run(&name(run))).await.unwrap();
    }
    folder.close();
    let store = patiently(|| sled::Config::new().path(folder.dir.path().join("journal")).flush_every_ms(None).open());
    let unfinished = |run: u64| [&[0x30][..], &run.to_be_bytes()].concat();
    store.remove(unfinished(1)).unwrap().unwrap();
    store.insert(unfinished(77), store.get(unfinished(0)).unwrap().unwrap()).unwrap();
    store.flush().unwrap();
    drop(store);
    let journal = folder.reopen();
    let told = journal.check_indexes(false).await.unwrap();
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(journal.check_indexes(true).await.unwrap().len(), 2);
    assert!(journal.check_indexes(false).await.unwrap().is_empty());
    assert_eq!(journal.unfinished(None, 10).unwrap().len(), 3);
}

/// Runs of a damaged copy that lack something; every one of them is among those that the next start reads, and names.
fn lacking(journal: &Journal, runs: usize, records: u64, case: &str) -> BTreeSet<usize> {
    let lacks = |run: usize| match journal.run(&name(run)) {
        Ok(info) => {
            assert_eq!(info.next_sequence, records, "{case}: run {run} seems to be shorter than it was");
            (0..records).any(|place| journal.read(&name(run), place, 1).is_err())
        }
        Err(ReadError::Damaged(_)) => true,
        Err(other) => panic!("{case}, run {run}: {other}"),
    };
    let lacking: BTreeSet<usize> = (0..runs).filter(|run| lacks(*run)).collect();
    let listed = journal.unfinished(None, 1000).unwrap().into_iter().map(|row| row.number);
    let listed: BTreeSet<usize> = listed.map(|number| usize::try_from(number).unwrap()).collect();
    assert!(lacking.is_subset(&listed), "{case}: {lacking:?} lack something, {listed:?} are read at the start");
    lacking
}

/// A copy of a store whose runs have all ended.
async fn ended(runs: usize, records: u64, dest: &Path) {
    let folder = Folder::new();
    let journal = folder.journal();
    for run in 0..runs {
        journal.create_run(new_run(&name(run))).await.unwrap();
        for place in 1..records {
            let mut adding = append(&name(run), place, 1);
            adding.records[0].bytes = format!("{run} {place} ").into_bytes().repeat(40);
            adding.update = Update { finished: place + 1 == records, ..Update::default() };
            journal.append(adding).await.unwrap();
        }
    }
    journal.copy_to(dest).await.unwrap();
}

#[tokio::test]
async fn a_byte_that_is_flipped_anywhere_in_a_copy_costs_at_most_its_own_run_which_is_counted_and_named() {
    let mut most = 0;
    for (runs, step) in [(3, 211), (200, 40_009)] {
        let (copies, records) = (tempfile::tempdir().unwrap(), 7);
        let whole = copies.path().join("whole");
        ended(runs, records, &whole).await;
        let end = end_of_data(&whole.join("journal/db"));
        let (mut mended, mut lost) = (0, 0);
        for place in (0..end).step_by(step) {
            let case = format!("{runs} runs, byte {place} of {end}");
            let dir = copies.path().join("damaged");
            copy(&whole, &dir);
            let log = OpenOptions::new().read(true).write(true).open(dir.join("journal/db")).unwrap();
            let mut byte = [0];
            log.read_exact_at(&mut byte, place).unwrap();
            log.write_all_at(&[byte[0] ^ 0x10], place).unwrap();
            let (journal, done) = mending(&dir, false).unwrap_or_else(|refused| panic!("{case}: {refused}"));
            let lacking = lacking(&journal, runs, records, &case);
            let told = done.as_ref().map_or(0, |done| done.runs_short);
            assert_eq!(told, lacking.len() as u64, "{case}: {done:?}");
            (mended, lost) = (mended + usize::from(done.is_some()), lost.max(lacking.len()));
            drop(journal);
            fs::remove_dir_all(&dir).unwrap();
        }
        assert!(mended > 10 && lost <= 1, "{runs} runs: {mended} were mended, {lost} lack something at most");
        most = most.max(lost);
    }
    assert_eq!(most, 1, "no byte was a run's own");
}
