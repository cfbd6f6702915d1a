//! The journal, over its public door: on sled and in memory, healthy, crashed, damaged and full.

mod commit;
mod contract;
mod copy;
mod crash;
mod cuts;
mod damage;
mod full;
mod pages;

mod lease;
mod lists;
mod synced;
mod torn;

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use content_digest::Digest;
use runner_svc::journal::{
    Append, Claim, Disk, Durability, Journal, Lease, LeaseError, NewRun, OpenError, Options, PayloadFiles, RealDisk,
    Record, RunHeader, Update, Urgency,
};

/// Longest wait for something that must happen.
const DEADLINE: Duration = Duration::from_secs(60);
const CACHE_BYTES: u64 = 16 * 1024 * 1024;

/// A store in a folder of its own.
struct Folder {
    journal: Option<Journal>,
    disk: Arc<FakeDisk>,
    files: Arc<Files>,
    dir: tempfile::TempDir,
}

impl Folder {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (disk, files) = (Arc::new(FakeDisk::default()), Arc::new(Files::default()));
        let journal = open_with(dir.path(), Arc::clone(&disk), Arc::clone(&files)).unwrap();
        Self { journal: Some(journal), disk, files, dir }
    }

    fn journal(&self) -> &Journal {
        self.journal.as_ref().unwrap()
    }

    fn close(&mut self) {
        self.journal = None;
    }

    fn reopen(&mut self) -> &Journal {
        self.close();
        let open = || open_with(self.dir.path(), Arc::clone(&self.disk), Arc::clone(&self.files));
        self.journal = Some(patiently(open));
        self.journal()
    }
}

/// Another test may just be starting a process, which holds a copy of a closed lock until it runs its own program.
fn patiently<T, E: std::fmt::Display>(mut open: impl FnMut() -> Result<T, E>) -> T {
    let started = Instant::now();
    loop {
        match open() {
            Ok(opened) => return opened,
            Err(refused) => assert!(started.elapsed() < DEADLINE, "{refused}"),
        }
        std::thread::yield_now();
    }
}

fn open(dir: &Path) -> Result<Journal, OpenError> {
    open_with(dir, Arc::default(), Arc::default())
}

fn open_with(dir: &Path, disk: Arc<FakeDisk>, files: Arc<Files>) -> Result<Journal, OpenError> {
    Journal::open(dir, Options { durability: Durability::PowerLoss, files, disk, cache_bytes: CACHE_BYTES })
}

/// A disk that counts, and fails when it is told to.
struct FakeDisk {
    syncs: AtomicU64,
    fail_sync: AtomicBool,
    fail_flush: AtomicBool,
    free_bytes: AtomicU64,
    on_sync: Mutex<Option<Box<dyn FnMut() + Send>>>,
}

impl Default for FakeDisk {
    fn default() -> Self {
        Self {
            syncs: AtomicU64::new(0),
            fail_sync: AtomicBool::new(false),
            fail_flush: AtomicBool::new(false),
            free_bytes: AtomicU64::new(u64::MAX),
            on_sync: Mutex::new(None),
        }
    }
}

impl Disk for FakeDisk {
    fn before_flush(&self) -> io::Result<()> {
        if self.fail_flush.load(Ordering::SeqCst) { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
    }

    fn sync_log(&self, log: &File) -> io::Result<()> {
        if let Some(act) = &mut *self.on_sync.lock().unwrap() {
            act();
        }
        if self.fail_sync.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(5));
        }
        RealDisk.sync_log(log)?;
        self.syncs.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        Ok(self.free_bytes.load(Ordering::SeqCst))
    }
}

/// Large texts in memory, kept over reopenings.
#[derive(Default)]
struct Files(Mutex<BTreeMap<Digest, Vec<u8>>>);

impl PayloadFiles for Files {
    fn put(&self, digest: &Digest, bytes: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap().insert(*digest, bytes.to_vec());
        Ok(())
    }

    fn get(&self, digest: &Digest) -> io::Result<Vec<u8>> {
        self.0.lock().unwrap().get(digest).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn header(run_id: &str) -> RunHeader {
    RunHeader {
        run_id: run_id.to_owned(),
        namespace: "ops".to_owned(),
        plan_hash: Digest::of("plan"),
        started_at_ms: 1,
        principal: "user:runner".to_owned(),
        manifest_digest: Digest::of("manifest"),
        input_digest: Digest::of("input"),
        parent: None,
    }
}

fn claim(holder: &str, now_ms: u64) -> Claim {
    Claim { holder: holder.to_owned(), ttl_ms: 15_000, now_ms }
}

fn new_run(run_id: &str) -> NewRun {
    NewRun { header: header(run_id), claim: claim("me", 0), records: vec![event(0)], update: Update::default() }
}

/// One record at a place, by a fence.
fn append(run_id: &str, expected_next: u64, fence: u64) -> Append {
    Append {
        run_id: run_id.to_owned(),
        expected_next,
        fence,
        urgency: Urgency::Work,
        records: vec![event(expected_next)],
        update: Update::default(),
    }
}

/// Takes a run's lease as a takeover does: with the record that comes next.
async fn take(journal: &Journal, run_id: &str, claim: Claim) -> Result<Lease, LeaseError> {
    let (next, fence) = journal.run(run_id).map_or((0, 0), |info| (info.next_sequence, info.fence));
    journal.take_over(claim, append(run_id, next, fence + 1)).await
}

fn event(sequence: u64) -> Record {
    Record { bytes: format!("{{\"event\":{sequence}}}").into_bytes(), payloads: Vec::new() }
}

/// All records of a run; asserts that they are numbered without a gap.
fn read_all(journal: &Journal, run_id: &str) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let page = journal.read(run_id, all.len() as u64, 100).unwrap();
        if page.records.is_empty() {
            return all;
        }
        for record in page.records {
            assert_eq!(record.sequence, all.len() as u64);
            all.push(record.bytes);
        }
        assert_eq!(page.next, all.len() as u64);
    }
}

/// Waits until something holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < DEADLINE, "{what} did not happen");
        tokio::task::yield_now().await;
    }
}
