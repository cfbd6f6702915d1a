//! Damage in the middle of the store's file: everything that can be read is kept, and what is lost stops only its own runs.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::Arc,
};

use runner_svc::journal::{CreateError, Durability, Journal, Mended, OpenError, Options, ReadError, Update};

use super::{
    FakeDisk, Files, Folder, append, claim,
    damage::{copy, end_of_data},
    new_run, open, patiently, take,
};

pub(super) const RUNS: usize = 100;
const RECORDS: u64 = 8;

fn name(run: usize) -> String {
    format!("run-{run:03}")
}

/// A hundred runs of so many records each, written in turn; with `often` the store was opened and closed in between, so that
/// sled has snapshots of it. Every tenth run has ended.
pub(super) async fn filled(often: bool, records: u64) -> Folder {
    let mut folder = Folder::new();
    for run in 0..RUNS {
        folder.journal().create_run(new_run(&name(run))).await.unwrap();
    }
    for place in 1..records {
        for run in 0..RUNS {
            let mut adding = append(&name(run), place, 1);
            adding.records[0].bytes = record(run, place);
            adding.update = Update { finished: place + 1 == records && run % 10 == 0, ..Update::default() };
            folder.journal().append(adding).await.unwrap();
        }
        if often {
            folder.reopen();
        }
    }
    folder.close();
    folder
}

fn record(run: usize, place: u64) -> Vec<u8> {
    format!("{run} {place} ").into_bytes().repeat(80)
}

pub(super) fn mending(dir: &Path, accept_loss: bool) -> Result<(Journal, Option<Mended>), OpenError> {
    let options = Options {
        durability: Durability::PowerLoss,
        files: Arc::new(Files::default()),
        disk: Arc::new(FakeDisk::default()),
        cache_bytes: 16 * 1024 * 1024,
    };
    patiently(|| match Journal::open_mending(dir, options.clone(), accept_loss) {
        Err(refused @ OpenError::InUse { .. }) => Err(refused),
        settled => Ok(settled),
    })
}

/// How many runs are as they were; every other one says that it is damaged.
pub(super) fn whole(journal: &Journal, case: &str, records: u64) -> usize {
    let damaged = |run: usize| {
        let info = match journal.run(&name(run)) {
            Ok(info) => info,
            Err(ReadError::Damaged(_)) => return true,
            Err(other) => panic!("{case}, run {run}: {other}"),
        };
        assert_eq!(info.next_sequence, records, "{case}, run {run} seems to be shorter than it was");
        (0..records).any(|place| match journal.read(&name(run), place, 1) {
            Ok(page) => {
                let expected = if place == 0 { super::event(0).bytes } else { record(run, place) };
                assert_eq!(page.records[0].bytes, expected, "{case}");
                false
            }
            Err(ReadError::Damaged(_)) => true,
            Err(other) => panic!("{case}, run {run}: {other}"),
        })
    };
    let bad = (0..RUNS).filter(|run| damaged(*run)).count();
    let listed = journal.unfinished(None, 1000).unwrap();
    assert!(listed.len() >= 90, "{case}: every unfinished run is listed, found {}", listed.len());
    RUNS - bad
}

/// A copy of a store with some bytes of its log replaced.
fn damaged(folder: &Folder, place: u64, len: usize, change: impl Fn(u8) -> u8) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    copy(folder.dir.path(), dir.path());
    let log = OpenOptions::new().read(true).write(true).open(dir.path().join("journal/db")).unwrap();
    let mut bytes = vec![0; len];
    log.read_exact_at(&mut bytes, place).unwrap();
    bytes.iter_mut().for_each(|byte| *byte = change(*byte));
    log.write_all_at(&bytes, place).unwrap();
    dir
}

#[tokio::test]
async fn bytes_that_are_flipped_anywhere_but_at_the_end_cost_at_most_their_own_runs() {
    for often in [false, true] {
        let folder = filled(often, RECORDS).await;
        let end = end_of_data(&folder.dir.path().join("journal/db"));
        let (mut mended, mut least) = (0, RUNS);
        for step in 0..16 {
            let place = end * step / 16 + 7;
            let case = format!("often {often}, 8 bytes at {place} of {end}");
            let dir = damaged(&folder, place, 8, |byte| byte ^ 0x10);
            let (journal, done) = match mending(dir.path(), false) {
                Ok(opened) => opened,
                Err(refused) => panic!("{case}: {refused}"),
            };
            mended += usize::from(done.is_some());
            least = least.min(whole(&journal, &case, RECORDS));
            drop(journal);
            let (journal, again) = mending(dir.path(), false).unwrap();
            assert_eq!(again, None, "{case}: it was mended for good");
            whole(&journal, &case, RECORDS);
        }
        assert!(mended > 4, "often {often}: the flips hit nothing: {mended}");
        assert!(least >= RUNS - 2, "often {often}: {least} runs are whole in the worst case");
    }
}

#[tokio::test]
async fn a_page_that_is_lost_costs_the_runs_that_were_in_it_and_each_says_so() {
    for often in [false, true] {
        let folder = filled(often, RECORDS).await;
        let end = end_of_data(&folder.dir.path().join("journal/db"));
        for step in 0..6 {
            let place = (end - 8192) * step / 6 / 4096 * 4096;
            let case = format!("often {often}, a page at {place} of {end}");
            let dir = damaged(&folder, place, 4096, |_| 0);
            let (journal, done) = mending(dir.path(), false).unwrap_or_else(|refused| panic!("{case}: {refused}"));
            let whole = whole(&journal, &case, RECORDS);
            assert!(whole >= RUNS - 20, "{case}: {whole} runs are whole");
            if let Some(done) = done {
                assert!(done.kept.join("db").is_file(), "{case}: the damaged one is kept");
                assert!(done.runs_short <= (RUNS - whole) as u64, "{case}: {done:?}, {whole} are whole");
            }
        }
    }
}

#[tokio::test]
async fn a_run_that_lost_its_end_goes_on_nowhere_and_its_id_is_not_given_to_another() {
    let folder = filled(false, RECORDS).await;
    let end = end_of_data(&folder.dir.path().join("journal/db"));
    // What was written last, and nothing behind it.
    let dir = damaged(&folder, end - 3000, 3000, |_| 0);
    let refused = patiently(|| match open(dir.path()) {
        Err(refused @ OpenError::InUse { .. }) => Err(refused),
        settled => Ok(settled),
    });
    let refused = refused.err().unwrap();
    assert!(matches!(refused, OpenError::Lost { .. }), "{refused}");
    assert!(refused.to_string().contains("runner-svc fsck --repair"), "{refused}");
    let (journal, mended) = mending(dir.path(), true).unwrap();
    let short = usize::try_from(mended.unwrap().runs_short).unwrap();
    assert!(short > 0 && whole(&journal, "its end", RECORDS) == RUNS - short);
    for run in RUNS - short..RUNS {
        let taken = journal.create_run(new_run(&name(run))).await;
        assert!(matches!(taken, Err(CreateError::AlreadyExists(_) | CreateError::Damaged(_))), "{run}");
        assert!(journal.append(append(&name(run), RECORDS - 1, 1)).await.is_err(), "{run}");
    }
    let lease = take(&journal, &name(1), claim("you", 1)).await.unwrap();
    journal.append(append(&name(1), RECORDS + 1, lease.fence)).await.unwrap();
}

#[tokio::test]
async fn a_store_that_holds_together_is_never_written_anew() {
    for often in [false, true] {
        let mut folder = filled(often, RECORDS).await;
        assert_eq!(mending(folder.dir.path(), false).unwrap().1, None, "often {often}");
        // Overwritten again and again: sled uses its segments anew.
        let journal = folder.reopen();
        for now_ms in 0..400 {
            for run in 1..9 {
                journal.renew_lease(&name(run), 1, 15_000, now_ms).await.unwrap();
            }
        }
        folder.close();
        assert_eq!(mending(folder.dir.path(), false).unwrap().1, None, "often {often}, written often");
    }
}

#[tokio::test]
async fn a_snapshot_that_does_not_read_is_done_without() {
    let folder = filled(true, RECORDS).await;
    let snapshots = |dir: &Path| {
        let names = fs::read_dir(dir.join("journal")).unwrap().map(|entry| entry.unwrap().path());
        names.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("snap.")).collect::<Vec<_>>()
    };
    let dir = tempfile::tempdir().unwrap();
    copy(folder.dir.path(), dir.path());
    let found = snapshots(dir.path());
    assert!(!found.is_empty());
    for snapshot in found {
        fs::write(snapshot, [0xff; 100]).unwrap();
    }
    let (journal, mended) = mending(dir.path(), false).unwrap();
    assert!(mended.is_some());
    assert_eq!(whole(&journal, "snapshot", RECORDS), RUNS);
}

#[tokio::test]
async fn a_new_store_that_was_not_put_in_place_yet_is_found_again() {
    let mut folder = filled(false, RECORDS).await;
    let (store, rebuilt) = (folder.dir.path().join("journal"), folder.dir.path().join("journal.rebuilt"));
    fs::rename(store, &rebuilt).unwrap();
    assert_eq!(whole(folder.reopen(), "renamed", RECORDS), RUNS);
    assert!(!rebuilt.exists());
}
