//! Damage: torn tails, flipped bits, missing and foreign files. Never a panic, never a record lost in the middle.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt as _,
    path::Path,
};

use runner_core::payload::Payload;
use runner_svc::journal::{
    AppendError, Damaged, Journal, LeaseError, OpenError, PAYLOAD_INLINE_BYTES_MAX, Place, ReadError,
};

use super::{Folder, append, claim, event, new_run, open, patiently, read_all, take};

const RUNS: [&str; 3] = ["a", "b", "c"];
/// Kind bytes of stored values, as on the disk.
const HEADER: u8 = 0x11;
const STATE: u8 = 0x12;
const RECORD: u8 = 0x20;

/// A closed store with three runs (numbers 0, 1, 2) of fifty records each, written in turn.
async fn filled() -> Folder {
    let mut folder = Folder::new();
    for run in RUNS {
        folder.journal().create_run(new_run(run)).await.unwrap();
    }
    for place in 1..50 {
        for run in RUNS {
            folder.journal().append(append(run, place, 1)).await.unwrap();
        }
    }
    folder.close();
    folder
}

pub(super) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else if entry.file_name() != "reserve" {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The store opens to a valid prefix of each run and goes on from there, or says that it is damaged.
async fn prefix_or_refusal(dir: &Path, case: &str) -> Option<usize> {
    let opened = patiently(|| match open(dir) {
        Err(refused @ OpenError::InUse { .. }) => Err(refused),
        settled => Ok(settled),
    });
    let journal = match opened {
        Ok(journal) => journal,
        Err(OpenError::Damaged { .. } | OpenError::Lost { .. } | OpenError::Io { .. }) => return None,
        Err(other) => panic!("{case}: {other}"),
    };
    let mut kept = 0;
    for run in RUNS {
        match journal.run(run) {
            Ok(info) => {
                let records = read_all(&journal, run);
                assert_eq!(records.len() as u64, info.next_sequence, "{case}");
                for (place, bytes) in (0..).zip(&records) {
                    assert_eq!(*bytes, event(place).bytes, "{case}");
                }
                kept += records.len();
                let fence = take(&journal, run, claim("you", 1)).await.unwrap().fence;
                journal.append(append(run, info.next_sequence + 1, fence)).await.unwrap();
            }
            Err(ReadError::NotFound(_)) => assert!(journal.create_run(new_run(run)).await.is_ok(), "{case}"),
            Err(ReadError::Storage(_) | ReadError::Damaged(_)) => {}
            Err(other) => panic!("{case}: {other}"),
        }
    }
    Some(kept)
}

/// Where the log's data ends: what follows is filling.
pub(super) fn end_of_data(log: &Path) -> u64 {
    let bytes = fs::read(log).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
}

/// A copy of a store whose log is cut by, or flipped at, so many bytes from its end.
fn torn(folder: &Folder, bytes: u64, flip: bool) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    copy(folder.dir.path(), dir.path());
    let log = dir.path().join("journal/db");
    let place = end_of_data(&log) - bytes;
    let log = OpenOptions::new().read(true).write(true).open(log).unwrap();
    if flip {
        let mut byte = [0];
        log.read_exact_at(&mut byte, place).unwrap();
        log.write_all_at(&[byte[0] ^ 0x10], place).unwrap();
    } else {
        log.set_len(place).unwrap();
    }
    dir
}

#[tokio::test]
async fn a_torn_tail_opens_to_a_valid_prefix_when_the_loss_is_accepted() {
    let folder = filled().await;
    let mut shorter = 0;
    for bytes in (1..64).step_by(9).chain((64..=4096).step_by(311)) {
        for flip in [false, true] {
            let torn = torn(&folder, bytes, flip);
            let first = open(torn.path());
            let lost = matches!(first, Err(OpenError::Lost { .. }));
            drop(first);
            if lost {
                fs::remove_file(torn.path().join("acknowledged")).unwrap();
            }
            let kept = prefix_or_refusal(torn.path(), &format!("{bytes} bytes, flip {flip}")).await;
            shorter += usize::from(kept.is_some_and(|kept| kept < 150));
        }
    }
    assert!(shorter > 0, "the cuts hit nothing");
}

#[tokio::test]
async fn a_log_that_is_gone_is_not_taken_for_a_new_store() {
    let folder = filled().await;
    fs::remove_dir_all(folder.dir.path().join("journal")).unwrap();
    let refused = open(folder.dir.path()).err().unwrap();
    assert!(matches!(refused, OpenError::Lost { .. }), "{refused}");
    assert!(refused.to_string().contains("runner-svc backup"), "{refused}");
}

#[tokio::test]
async fn foreign_bytes_in_any_of_its_files_never_panic() {
    let folder = filled().await;
    for name in fs::read_dir(folder.dir.path().join("journal")).unwrap() {
        let name = name.unwrap();
        if name.file_type().unwrap().is_dir() {
            continue;
        }
        for filler in [0, 0xff, b'x'] {
            for len in [0, 1, 40, 70_000] {
                let dir = tempfile::tempdir().unwrap();
                copy(folder.dir.path(), dir.path());
                fs::write(dir.path().join("journal").join(name.file_name()), vec![filler; len]).unwrap();
                prefix_or_refusal(dir.path(), &format!("{:?} {filler} × {len}", name.file_name())).await;
            }
        }
    }
}

/// Changes one stored value behind the journal's back.
fn tamper(dir: &Path, key: &[u8], change: impl FnOnce(Vec<u8>) -> Option<Vec<u8>>) {
    let store = patiently(|| sled::Config::new().path(dir.join("journal")).flush_every_ms(None).open());
    let old = store.get(key).unwrap().unwrap().to_vec();
    match change(old) {
        Some(new) => store.insert(key, new).unwrap(),
        None => store.remove(key).unwrap(),
    };
    store.flush().unwrap();
}

fn flipped(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    *bytes.last_mut().unwrap() ^= 1;
    Some(bytes)
}

fn key(kind: u8, run: u64) -> Vec<u8> {
    [&[kind][..], &run.to_be_bytes()].concat()
}

fn record_key(run: u64, sequence: u64) -> Vec<u8> {
    [key(RECORD, run), sequence.to_be_bytes().to_vec(), vec![0, 0]].concat()
}

fn others_go_on(journal: &Journal) {
    for run in ["a", "c"] {
        assert_eq!(read_all(journal, run).len(), 50);
    }
}

#[tokio::test]
async fn a_damaged_or_missing_record_is_named_and_other_runs_go_on() {
    for change in [flipped, |_| None] {
        let mut folder = filled().await;
        tamper(folder.dir.path(), &record_key(1, 7), change);
        let journal = folder.reopen();
        assert_eq!(journal.read("b", 0, 100).unwrap().records.len(), 7);
        let ReadError::Damaged(damaged) = journal.read("b", 7, 100).unwrap_err() else { panic!() };
        assert_eq!((damaged.run_id.as_str(), damaged.place), ("b", Place::Record(7)));
        assert!(damaged.to_string().contains("sequence 7"));
        assert_eq!(journal.read("b", 8, 100).unwrap().records.len(), 42);
        others_go_on(journal);
    }
}

#[tokio::test]
async fn a_run_with_a_damaged_state_takes_no_append_and_is_listed_as_damaged() {
    let mut folder = filled().await;
    tamper(folder.dir.path(), &key(STATE, 1), flipped);
    let journal = folder.reopen();
    let damaged = |damaged: &Damaged| damaged.run_id == "b" && damaged.place == Place::State;
    assert!(matches!(journal.append(append("b", 50, 1)).await, Err(AppendError::Damaged(found)) if damaged(&found)));
    assert!(matches!(take(journal, "b", claim("you", 1)).await, Err(LeaseError::Damaged(_))));
    assert!(matches!(journal.run("b"), Err(ReadError::Damaged(_))));
    let rows = journal.unfinished(None, 9).unwrap();
    assert_eq!(rows.iter().map(|row| row.run.is_ok()).collect::<Vec<_>>(), [true, false, true]);
    others_go_on(journal);
}

#[tokio::test]
async fn a_run_with_a_damaged_header_is_listed_by_its_number() {
    let mut folder = filled().await;
    tamper(folder.dir.path(), &key(HEADER, 1), flipped);
    let journal = folder.reopen();
    let rows = journal.list_runs("ops", None, 9).unwrap();
    assert_eq!((rows[1].number, rows[1].run.as_ref().unwrap_err().place), (1, Place::Header));
    others_go_on(journal);
}

#[tokio::test]
async fn a_text_whose_file_is_gone_or_changed_damages_its_record_only() {
    let folder = Folder::new();
    let journal = folder.journal();
    journal.create_run(new_run("a")).await.unwrap();
    let large = Payload::new("x".repeat(PAYLOAD_INLINE_BYTES_MAX + 1));
    let mut adding = append("a", 1, 1);
    adding.records[0].payloads = vec![large.clone()];
    journal.append(adding).await.unwrap();
    for bytes in [Some(b"other".to_vec()), None] {
        let mut files = folder.files.0.lock().unwrap();
        match bytes {
            Some(bytes) => files.insert(large.digest(), bytes),
            None => files.remove(&large.digest()),
        };
        drop(files);
        let damaged = journal.read("a", 1, 1).unwrap_err();
        assert!(damaged.to_string().contains(&large.digest().to_hex()), "{damaged}");
        assert_eq!(journal.read("a", 0, 1).unwrap().records.len(), 1);
    }
}

#[tokio::test]
async fn another_versions_store_is_refused_by_its_number() {
    let mut folder = filled().await;
    let format = [0x01, 0x00];
    let version = 77_u32.to_be_bytes();
    tamper(folder.dir.path(), &format, |_| {
        let sum = crc32fast::hash(&[&format[..], &version].concat());
        Some([&[1][..], &sum.to_be_bytes(), &version].concat())
    });
    folder.close();
    let refused = open(folder.dir.path()).err().unwrap();
    assert!(matches!(refused, OpenError::UnknownFormat { found: 77, known: 1, .. }), "{refused}");
}

#[tokio::test]
async fn an_unfinished_snapshot_does_not_stop_the_store_from_opening() {
    let mut folder = filled().await;
    let leftover = folder.dir.path().join("journal/snap.00000000000000AA.generating");
    fs::write(&leftover, b"half").unwrap();
    others_go_on(folder.reopen());
    assert!(!leftover.exists());
}

#[tokio::test]
async fn the_directory_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("new");
    let journal = open(&dir).unwrap();
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    let Err(OpenError::InUse { pid, .. }) = open(&dir) else { panic!("opened twice") };
    assert_eq!(pid, std::process::id().to_string());
    drop(journal);
    patiently(|| open(&dir));
}
