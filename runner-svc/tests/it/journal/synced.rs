//! Durable means that the disk has said so: what the store asks of its disk, in which order, and that the real disk asks the kernel.

use std::{
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt as _},
    path::Path,
    sync::{Arc, Mutex},
};

use runner_svc::journal::{Disk, Durability, Journal, Options, RealDisk, Record};

use super::{CACHE_BYTES, append, new_run};

/// Appends that are looked at, one after the other.
const APPENDS: u64 = 20;

/// What was asked of the disk.
enum Asked {
    /// The buffers are about to go to the kernel.
    Flush,
    /// The log, as the kernel has it when the sync has returned.
    Sync(Vec<u8>),
}

/// The real disk, and what was asked of it.
#[derive(Default)]
struct Watched(Mutex<Vec<Asked>>);

impl Disk for Watched {
    fn before_flush(&self) -> io::Result<()> {
        self.0.lock().unwrap().push(Asked::Flush);
        RealDisk.before_flush()
    }

    fn sync_log(&self, log: &File) -> io::Result<()> {
        RealDisk.sync_log(log)?;
        let mut bytes = vec![0; usize::try_from(log.metadata()?.len()).unwrap()];
        log.read_exact_at(&mut bytes, 0)?;
        self.0.lock().unwrap().push(Asked::Sync(bytes));
        Ok(())
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        RealDisk.free_bytes(dir)
    }
}

fn open(dir: &Path, durability: Durability, disk: &Arc<Watched>) -> Journal {
    let disk: Arc<dyn Disk> = Arc::clone(disk) as _;
    Journal::open(dir, Options { durability, files: Arc::<super::Files>::default(), disk, cache_bytes: CACHE_BYTES })
        .unwrap()
}

/// The words of a record, which stand in the log as they are.
fn words(number: u64) -> String {
    format!("{{\"event\":{number},\"said\":\"words of record {number}.\"}}")
}

#[tokio::test]
async fn each_acknowledged_append_is_in_what_was_synced_behind_its_flush() {
    let (dir, disk) = (tempfile::tempdir().unwrap(), Arc::new(Watched::default()));
    let journal = open(dir.path(), Durability::PowerLoss, &disk);
    journal.create_run(new_run("a")).await.unwrap();
    for number in 1..=APPENDS {
        disk.0.lock().unwrap().clear();
        let mut adding = append("a", number, 1);
        adding.records = vec![Record { bytes: words(number).into_bytes(), payloads: Vec::new() }];
        journal.append(adding).await.unwrap();
        let asked = disk.0.lock().unwrap();
        let [Asked::Flush, Asked::Sync(log)] = &asked[..] else {
            let kinds: Vec<_> = asked.iter().map(|asked| matches!(asked, Asked::Sync(_))).collect();
            panic!("append {number} is a flush and then a sync, not (true: a sync) {kinds:?}");
        };
        let words = words(number).into_bytes();
        assert!(log.windows(words.len()).any(|found| found == words), "what was synced does not hold append {number}");
    }
}

#[tokio::test]
async fn without_the_promise_for_a_loss_of_power_nothing_is_synced() {
    let (dir, disk) = (tempfile::tempdir().unwrap(), Arc::new(Watched::default()));
    let journal = open(dir.path(), Durability::ProcessCrash, &disk);
    journal.create_run(new_run("a")).await.unwrap();
    journal.append(append("a", 1, 1)).await.unwrap();
    let asked = disk.0.lock().unwrap();
    assert!(asked.len() >= 2 && asked.iter().all(|asked| matches!(asked, Asked::Flush)));
}

#[test]
fn the_real_disk_asks_the_kernel_to_sync_and_repeats_its_refusal() {
    // A pipe cannot be synced, and the kernel says so: whoever does not ask it hears nothing.
    let (_reader, writer) = io::pipe().unwrap();
    let pipe = File::from(OwnedFd::from(writer));
    assert_eq!(RealDisk.sync_log(&pipe).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    RealDisk.sync_log(&tempfile::tempfile().unwrap()).unwrap();
}
