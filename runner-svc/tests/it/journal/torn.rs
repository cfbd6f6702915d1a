//! Every torn tail: the last 1 to 4096 bytes of the log cut off, all of them changed, or the first of them changed. What was
//! acknowledged is there, or the store says that it is not.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use runner_svc::journal::{Journal, OpenError, ReadError};

use super::{Folder, append, claim, event, new_run, open, patiently, read_all, take};

const RUNS: [&str; 3] = ["a", "b", "c"];
/// Records of each run.
const RECORDS: u64 = 80;
/// Longest tail that is torn.
const TAIL_BYTES_MAX: usize = 4096;
/// Threads that tear.
const THREADS: usize = 2;
/// A store that opened goes on to be written, once in so many cases.
const WRITTEN_EVERY: usize = 16;
/// The log in a data directory, and the note of what was acknowledged.
const LOG: &str = "journal/db";
const NOTE: &str = "acknowledged";

/// What happens to the last bytes.
#[derive(Debug, Clone, Copy)]
enum Tear {
    /// They are gone.
    Cut,
    /// Each of them is another.
    Scrambled,
    /// The first of them is another.
    Flipped,
}

/// A closed store in memory.
struct Stored {
    files: Vec<(PathBuf, Vec<u8>)>,
    /// Where the log's data end: what follows is filling.
    end: usize,
    /// Records of each run that somebody was told of.
    acknowledged: [u64; RUNS.len()],
}

/// Records are written in turn; when the whole tail is still to come the note of that time is kept, if `all` is false: then
/// the tail is what nobody was told of, as after a crash in the middle of a write.
async fn stored(all: bool) -> Stored {
    let mut folder = Folder::new();
    for run in RUNS {
        folder.journal().create_run(new_run(run)).await.unwrap();
    }
    let log = folder.dir.path().join(LOG);
    let (mut acknowledged, mut note, mut lengths) = ([1; RUNS.len()], Vec::new(), Vec::new());
    for place in 1..RECORDS {
        for (number, run) in RUNS.iter().enumerate() {
            folder.journal().append(append(run, place, 1)).await.unwrap();
            acknowledged[number] += 1;
            lengths.push((end_of_data(&fs::read(&log).unwrap()), acknowledged));
            note.push(fs::read(folder.dir.path().join(NOTE)).unwrap());
        }
    }
    folder.close();
    let mut files = Vec::new();
    collect(folder.dir.path(), folder.dir.path(), &mut files);
    let bytes = &files.iter().find(|(path, _)| path == Path::new(LOG)).unwrap().1;
    let end = end_of_data(bytes);
    if !all {
        let last = lengths.iter().rposition(|(length, _)| length + TAIL_BYTES_MAX < end).unwrap();
        acknowledged = lengths[last].1;
        files.iter_mut().find(|(path, _)| path == Path::new(NOTE)).unwrap().1 = note.swap_remove(last);
    }
    Stored { files, end, acknowledged }
}

fn collect(root: &Path, dir: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, files);
        } else if path.file_name().is_some_and(|name| name != "reserve") {
            files.push((path.strip_prefix(root).unwrap().to_owned(), fs::read(&path).unwrap()));
        }
    }
}

fn end_of_data(log: &[u8]) -> usize {
    log.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

impl Stored {
    /// Lays the store out in a folder, its log torn.
    fn torn_in(&self, dir: &Path, tear: Tear, bytes: usize) {
        let _not_there_at_first = fs::remove_dir_all(dir.join("journal"));
        for (path, content) in &self.files {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let log = OpenOptions::new().read(true).write(true).open(dir.join(LOG)).unwrap();
        let from = self.end - bytes;
        let changed = match tear {
            Tear::Cut => return log.set_len(from as u64).unwrap(),
            Tear::Scrambled => bytes,
            Tear::Flipped => 1,
        };
        let mut tail = vec![0; changed];
        log.read_exact_at(&mut tail, from as u64).unwrap();
        tail.iter_mut().for_each(|byte| *byte ^= 0x10);
        log.write_all_at(&tail, from as u64).unwrap();
    }

    /// Opens the torn store. Whether it opened; if so each run is a prefix of what was written, with everything in it that
    /// somebody was told of.
    fn judged(&self, dir: &Path, case: &str) -> Option<Journal> {
        let opened = patiently(|| match open(dir) {
            Err(refused @ OpenError::InUse { .. }) => Err(refused),
            settled => Ok(settled),
        });
        let journal = match opened {
            Ok(journal) => journal,
            Err(refused @ (OpenError::Damaged { .. } | OpenError::Lost { .. } | OpenError::Io { .. })) => {
                let said = refused.to_string();
                assert!(said.starts_with("RUN-E020: ") && said.contains(&*dir.to_string_lossy()), "{case}: {said}");
                return None;
            }
            Err(other) => panic!("{case}: {other}"),
        };
        for (run, acknowledged) in RUNS.iter().zip(self.acknowledged) {
            match journal.run(run) {
                Ok(info) => {
                    let records = read_all(&journal, run);
                    assert_eq!(records.len() as u64, info.next_sequence, "{case}");
                    assert!(info.next_sequence >= acknowledged, "{case}: {run} has {}", info.next_sequence);
                    for (place, bytes) in (0..).zip(&records) {
                        assert_eq!(*bytes, event(place).bytes, "{case}: record {place} of {run}");
                    }
                }
                // By name, and not in silence.
                Err(ReadError::Damaged(damaged)) => assert_eq!(damaged.run_id, *run, "{case}"),
                Err(ReadError::Storage(storage)) => assert!(!storage.to_string().is_empty(), "{case}"),
                Err(other) => panic!("{case}: {run} was lost in silence: {other}"),
            }
        }
        Some(journal)
    }
}

/// A store that opened takes records again.
async fn goes_on(journal: &Journal, case: &str) {
    for run in RUNS {
        let Ok(info) = journal.run(run) else { continue };
        let fence = take(journal, run, claim("you", 1)).await.unwrap().fence;
        let appended = journal.append(append(run, info.next_sequence + 1, fence)).await;
        assert!(appended.is_ok(), "{case}: {appended:?}");
    }
}

/// Where a store can be opened thousands of times: in memory, where there is such a disk.
fn folder() -> tempfile::TempDir {
    let shared_memory = Path::new("/dev/shm");
    if shared_memory.is_dir() { tempfile::tempdir_in(shared_memory) } else { tempfile::tempdir() }.unwrap()
}

/// Tears every tail in every way. Stores that opened, and those that refused.
fn swept(stored: &Stored) -> (usize, usize) {
    let (next, opened, refused) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let tears = [Tear::Cut, Tear::Scrambled, Tear::Flipped];
    let work = || {
        let dir = folder();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= TAIL_BYTES_MAX * tears.len() {
                return;
            }
            let (tear, bytes) = (tears[number % tears.len()], number / tears.len() + 1);
            let case = format!("the last {bytes} bytes: {tear:?}");
            stored.torn_in(dir.path(), tear, bytes);
            match stored.judged(dir.path(), &case) {
                None => refused.fetch_add(1, Ordering::Relaxed),
                Some(journal) => {
                    if number.is_multiple_of(WRITTEN_EVERY) {
                        runtime.block_on(goes_on(&journal, &case));
                    }
                    opened.fetch_add(1, Ordering::Relaxed)
                }
            };
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    (opened.into_inner(), refused.into_inner())
}

#[tokio::test]
async fn every_torn_tail_of_1_to_4096_acknowledged_bytes_is_reported_and_nothing_is_dropped_in_silence() {
    let stored = stored(true).await;
    let (opened, refused) = swept(&stored);
    println!("acknowledged tails: {opened} opened with every record, {refused} refused by name");
    assert!(refused > TAIL_BYTES_MAX, "the tears hit nothing");
}

#[tokio::test]
async fn every_torn_tail_of_1_to_4096_bytes_that_nobody_was_told_of_opens_to_a_valid_prefix_or_is_reported() {
    let stored = stored(false).await;
    let (opened, refused) = swept(&stored);
    println!("unacknowledged tails: {opened} opened to a prefix, {refused} refused by name");
    assert!(opened > TAIL_BYTES_MAX, "a crash in the middle of a write must not stop the next start");
}
