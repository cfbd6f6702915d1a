//! The runner's store: every run's durable records, its lease and its status, on sled or in memory.
//!
//! All writing goes through one committer (`committer`), which makes one durable commit for everything that is ready.
//! An acknowledged write survives what [`Durability`] says. Nothing that is not durable can be read.

mod command;
mod committer;
mod copy;
mod data_dir;
mod disk;
mod error;
mod frame;
mod heads;
mod indexes;
mod key;
mod lane;
mod ledger;
mod limits;
mod list;
mod lookup;
mod memory;
mod payload_files;
mod read;
mod record;
mod reserve;
mod salvage;
mod shared;
mod shelf;
mod sled_shelf;
mod state;
mod watermark;

use std::{path::Path, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot, watch};

use command::{Command, Order, Reply};
use committer::Committer;
use content_digest::Digest;
use data_dir::DataDir;
use lane::Lane;
use shared::Shared;
use sled_shelf::SledShelf;

pub use copy::{Copied, CopyError};
pub use disk::{Disk, RealDisk};
pub use error::{
    AppendError, CreateError, Damaged, LeaseError, OpenError, Place, ReadError, Storage, TooLarge, Trouble,
};
pub use payload_files::PayloadFiles;
pub use record::*;
pub use runner_core::payload::Payload;
pub use salvage::Mended;
pub use shared::{Health, WATCHED_RUNS_MAX};

/// Bytes that wait for the committer, in KiB; an append over it waits for its room.
const QUEUE_KIB_MAX: usize = 64 * 1024;

/// The store. Cheap to clone; it is closed when the last clone is gone.
#[derive(Clone)]
pub struct Journal(Arc<Inner>);

/// Dropped in this order: the committer finishes first, then the store closes, then the directory is free.
struct Inner {
    lane: Lane,
    shared: Arc<Shared>,
    room: Arc<Semaphore>,
}

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Loss of power: the log is synced to the disk before each acknowledgement.
    #[default]
    PowerLoss,
    /// The end of the process by any signal, not of the machine: for tests and throwaway use.
    ProcessCrash,
}

/// How to open a store.
#[derive(Clone)]
pub struct Options {
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// Where large texts go.
    pub files: Arc<dyn PayloadFiles>,
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// Memory for the store's cache, in bytes.
    pub cache_bytes: u64,
}

impl Journal {
    /// Opens the store of a data directory, makes it if it is new, and takes it for this process alone. Blocks.
    ///
    /// What it holds afterwards is durable, whatever the last process did not get to sync.
    pub fn open(dir: &Path, options: Options) -> Result<Self, OpenError> {
        let io = |reason: String| OpenError::Io { dir: dir.to_owned(), reason };
        let Options { durability, files, disk, cache_bytes } = options;
        let shelf = SledShelf::open(DataDir::claim(dir)?, disk, durability, cache_bytes)?;
        let shared = Arc::new(Shared::new(Box::new(shelf), files));
        let committer = Committer::open(Arc::clone(&shared)).map_err(|storage| io(storage.reason))?;
        let lane = Lane::thread(committer, Arc::clone(&shared)).map_err(|error| io(error.to_string()))?;
        Ok(Self::new(shared, lane))
    }

    /// Opens the store; one whose file is damaged is written anew first from everything that can be read past the damage, and
    /// kept beside it. What is lost stops only the runs that it belongs to. Reads the whole file. Blocks.
    ///
    /// With `accept_loss` a store that lost its end is written anew too; the runs that lack something are damaged from there on.
    pub fn open_mending(dir: &Path, options: Options, accept_loss: bool) -> Result<(Self, Option<Mended>), OpenError> {
        let mended = salvage::mend(dir, salvage::When::Damaged, accept_loss)?;
        let again = options.clone();
        let refused = match Self::open(dir, options) {
            Ok(journal) => return Ok((journal, mended)),
            Err(refused) => refused,
        };
        let helps = match &refused {
            OpenError::Damaged { .. } => mended.is_none(),
            OpenError::Lost { .. } => accept_loss,
            OpenError::InUse { .. }
            | OpenError::UnknownFormat { .. }
            | OpenError::Mendable { .. }
            | OpenError::Cut { .. }
            | OpenError::Io { .. } => false,
        };
        if !helps {
            return Err(refused);
        }
        let Some(mended) = salvage::mend(dir, salvage::When::Always, accept_loss)? else { return Err(refused) };
        Self::open(dir, again).map(|journal| (journal, Some(mended)))
    }

    /// Opens the store; one whose file is damaged is refused before anything is changed. Reads the whole file. Blocks.
    pub fn open_whole(dir: &Path, options: Options) -> Result<Self, OpenError> {
        if salvage::needed(dir)? {
            let reason = "something that was acknowledged lies behind bytes that do not read".to_owned();
            return Err(OpenError::Mendable { dir: dir.to_owned(), reason });
        }
        Self::open(dir, options).map_err(|refused| match refused {
            OpenError::Damaged { dir, reason } => OpenError::Mendable { dir, reason },
            other => other,
        })
    }

    /// A store that forgets everything when it is dropped.
    pub fn in_memory() -> Self {
        let files = Arc::new(memory::MemoryFiles::default());
        let shared = Arc::new(Shared::new(Box::new(memory::MemoryShelf::default()), files));
        let committer = Committer::open(Arc::clone(&shared)).expect("memory does not fail");
        Self::new(shared, Lane::Inline(Mutex::new(committer)))
    }

    fn new(shared: Arc<Shared>, lane: Lane) -> Self {
        Self(Arc::new(Inner { shared, room: Arc::new(Semaphore::new(QUEUE_KIB_MAX)), lane }))
    }

    /// Makes a run with its first records and first lease, unless its id is taken. Durable when it returns.
    ///
    /// A dropped future does not undo it.
    pub async fn create_run(&self, new: NewRun) -> Result<Created, CreateError> {
        let header = limits::encode_header(&new.header)?;
        limits::check_claim(&new.claim)?;
        let bytes = limits::check(&new.records, &new.update)? + header.len();
        self.put_files(&new.records).await?;
        let new = Box::new(new);
        self.order(bytes, |reply| Order::Create { new, header, reply }).await?
    }

    /// Adds records to a run. Durable when it returns; on any error but [`AppendError::Storage`] nothing was written.
    ///
    /// A dropped future does not undo it.
    pub async fn append(&self, append: Append) -> Result<Appended, AppendError> {
        let bytes = limits::check(&append.records, &append.update)?;
        self.put_files(&append.records).await?;
        let append = Box::new(append);
        self.order(bytes, |reply| Order::Append { append, reply }).await?
    }

    /// Takes the right to drive a run and adds the records that say so, in one durable commit: a process that is killed
    /// again and again spends no commit on the lease alone. It is given if nobody has it, if it has ended, if it is the
    /// claimant's own already, or if it was taken by a process that is gone (one process opens a store, so any earlier one
    /// is). The append names the fence that the lease will have: the run's and 1 more. On any error but
    /// [`LeaseError::Storage`] nothing was written.
    ///
    /// A dropped future does not undo it.
    pub async fn take_over(&self, claim: Claim, append: Append) -> Result<Lease, LeaseError> {
        limits::check_claim(&claim)?;
        let bytes = limits::check(&append.records, &append.update)?;
        self.put_files(&append.records).await?;
        let with = Box::new(append);
        self.order(bytes, |reply| Order::Take { claim, with, reply }).await?
    }

    /// Makes a lease last until `now_ms + ttl_ms`.
    pub async fn renew_lease(&self, run_id: &str, fence: u64, ttl_ms: u64, now_ms: u64) -> Result<Lease, LeaseError> {
        let (run_id, until_ms) = (run_id.to_owned(), now_ms.saturating_add(ttl_ms));
        self.order(0, |reply| Order::Renew { run_id, fence, until_ms, reply }).await?
    }

    /// A run as it durably stands. Reads in memory or from the disk; so do all calls below.
    pub fn run(&self, run_id: &str) -> Result<RunInfo, ReadError> {
        let not_found = || ReadError::NotFound(run_id.to_owned());
        let number = lookup::number(self.shared().shelf(), run_id)?.ok_or_else(not_found)?;
        list::run(self.shared(), number)?.ok_or_else(not_found)
    }

    /// Records from a sequence number on: at most `limit` (1 to [`PAGE_RECORDS_MAX`]) and about [`PAGE_BYTES_MAX`], one at
    /// least while there is one. A damaged record is an error when it is the first of a page.
    pub fn read(&self, run_id: &str, from: u64, limit: usize) -> Result<Page, ReadError> {
        let not_found = || ReadError::NotFound(run_id.to_owned());
        let number = lookup::number(self.shared().shelf(), run_id)?.ok_or_else(not_found)?;
        let state = self.shared().durable_state(number, run_id)?.ok_or_else(not_found)?;
        let limit = limit.clamp(1, PAGE_RECORDS_MAX) as u64;
        let end = state.next_sequence.min(from.saturating_add(limit));
        Ok(read::page(self.shared(), &read::Stretch { run_id, number, from, end })?)
    }

    /// A namespace's runs, newest first, those with a number below `before`; `limit` 1 to [`LIST_ROWS_MAX`].
    pub fn list_runs(&self, namespace: &str, before: Option<u64>, limit: usize) -> Result<Vec<RunRow>, ReadError> {
        list::by_namespace(self.shared(), namespace, before, limit)
    }

    /// A plan's runs in a namespace, newest first, those with a number below `before`; `limit` 1 to [`LIST_ROWS_MAX`].
    pub fn list_runs_of_plan(
        &self,
        namespace: &str,
        plan: Digest,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<RunRow>, ReadError> {
        list::by_plan(self.shared(), (namespace, plan), before, limit)
    }

    /// Runs that have not ended, oldest first, those with a number above `after`; `limit` 1 to [`LIST_ROWS_MAX`]. Costs
    /// nothing for runs that have ended.
    pub fn unfinished(&self, after: Option<u64>, limit: usize) -> Result<Vec<RunRow>, ReadError> {
        list::unfinished(self.shared(), after, limit)
    }

    /// Every run, oldest first, those with a number above `after`; `limit` 1 to [`LIST_ROWS_MAX`].
    pub fn all_runs(&self, after: Option<u64>, limit: usize) -> Result<Vec<RunRow>, ReadError> {
        list::all(self.shared(), after, limit)
    }

    /// Copies the store into a folder that is new or empty, as it durably stands, while it is in use. Writing waits only while
    /// the runs' bookkeeping is copied; records are never changed, so they are copied beside it.
    pub async fn copy_to(&self, dest: &Path) -> Result<Copied, CopyError> {
        let copy = Arc::new(Mutex::new(copy::Copy::begin(dest)?));
        let still = Arc::clone(&copy);
        let act = Box::new(move |shelf: &dyn shelf::Shelf| still.lock().bookkeeping(shelf));
        self.order(0, |reply| Order::Still { act, reply }).await??;
        let journal = self.clone();
        let copying = tokio::task::spawn_blocking(move || copy.lock().records(journal.shared().shelf()));
        copying.await.map_err(|panic| CopyError::Dest { path: dest.to_owned(), cause: panic.to_string() })?
    }

    /// Compares the indexes of runs with the runs themselves; what differs, a line each. With `mend` the indexes are written
    /// anew: nobody else may use the store meanwhile.
    pub async fn check_indexes(&self, mend: bool) -> Result<Vec<String>, ReadError> {
        let found = Arc::new(Mutex::new(indexes::Differences::default()));
        let still = Arc::clone(&found);
        let act = Box::new(move |shelf: &dyn shelf::Shelf| still.lock().look(shelf, mend));
        self.order(0, |reply| Order::Still { act, reply }).await??;
        let lines = std::mem::take(&mut found.lock().lines);
        Ok(lines)
    }

    /// A namespace's pending asks by run and id, those behind `after` (run number, ask id); `limit` 1 to [`LIST_ROWS_MAX`].
    pub fn open_asks(
        &self,
        namespace: &str,
        after: Option<(u64, Digest)>,
        limit: usize,
    ) -> Result<Vec<OpenAsk>, ReadError> {
        list::open_asks(self.shared(), namespace, after, limit)
    }

    /// Follows a run's durable next sequence number. A slow receiver sees the latest only and slows nobody.
    pub fn watch(&self, run_id: &str) -> Result<watch::Receiver<u64>, ReadError> {
        let not_found = || ReadError::NotFound(run_id.to_owned());
        let number = lookup::number(self.shared().shelf(), run_id)?.ok_or_else(not_found)?;
        self.shared().durable_state(number, run_id)?.ok_or_else(not_found)?;
        self.shared().watch(number, run_id)
    }

    /// Follows whether the store works.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.shared().health()
    }

    fn shared(&self) -> &Shared {
        &self.0.shared
    }

    /// Writes large texts to their files: they are durable before the event that names them.
    async fn put_files(&self, records: &[Record]) -> Result<(), Storage> {
        let large = records.iter().flat_map(|record| &record.payloads).filter(|payload| frame::is_file(payload));
        let large = large.cloned().collect::<Vec<_>>();
        if large.is_empty() {
            return Ok(());
        }
        let files = Arc::clone(self.shared().files());
        let written = tokio::task::spawn_blocking(move || {
            large.iter().try_for_each(|payload| files.put(&payload.digest(), payload.text().as_bytes()))
        });
        match written.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Storage::new(Trouble::of(&error), format!("a text's file: {error}"))),
            Err(error) => Err(Storage::new(Trouble::Write, format!("a text's file: {error}"))),
        }
    }

    async fn order<T, E: From<Storage>>(
        &self,
        bytes: usize,
        order: impl FnOnce(Reply<T, E>) -> Order,
    ) -> Result<Result<T, E>, E> {
        let closed = || E::from(Storage::new(Trouble::Closed, "it is being closed"));
        let (reply, answer) = oneshot::channel();
        let kib = u32::try_from(bytes / 1024 + 1).expect("an append's size is limited before");
        let permit = Arc::clone(&self.0.room).acquire_many_owned(kib).await.map_err(|_| closed())?;
        let command = Command { order: order(reply), bytes, permit: Some(permit) };
        self.0.lane.send(command).map_err(|_| closed())?;
        answer.await.map_err(|_| closed())
    }
}
