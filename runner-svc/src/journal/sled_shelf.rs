//! The shelf on sled: one tree, blocking flushes by one thread, and a sync of sled's log through our own handle.

mod guard;

use std::{
    fs::{File, OpenOptions},
    io,
    ops::ControlFlow,
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use guard::{caught, failed, guarded, said_by};
use parking_lot::RwLock;

use super::{
    Durability,
    data_dir::DataDir,
    disk::Disk,
    error::{OpenError, Storage, Trouble},
    frame,
    heads::{Heads, Noted},
    key::{Key as _, Meta, Part},
    reserve::{FREE_BYTES_AGAIN, FREE_BYTES_MIN, Reserve},
    shelf::{Batch, Room, Shelf, Span, Visit},
    watermark::Watermark,
};

/// Version of the layout: keys, seals and values. A store of another version is refused.
pub(super) const FORMAT: u32 = 1;
/// Name of sled's log in its folder.
const LOG_NAME: &str = "db";
/// Piece in which the log is written again after a failed sync.
const REWRITE_BYTES: usize = 1024 * 1024;
/// How often, how far apart, and on which of sled's words its own lock is tried again.
const LOCK_TRIES: u32 = 100;
const LOCK_WAIT: Duration = Duration::from_millis(10);
const LOCK_REFUSAL: &str = "could not acquire lock";

/// sled in a data directory.
pub(super) struct SledShelf {
    open: RwLock<Option<Open>>,
    dir: DataDir,
    disk: Arc<dyn Disk>,
    durability: Durability,
    cache_bytes: u64,
    reserve: Reserve,
    /// None where the notes cannot be opened.
    heads: Option<Heads>,
    scarce: AtomicBool,
    /// Commits that are in the store, durable or not.
    commits: AtomicU64,
}

struct Open {
    tree: sled::Db,
    log: File,
    /// Only where the end of the store is promised to survive.
    watermark: Option<Watermark>,
}

/// Why sled did not open.
enum Refused {
    Damaged(String),
    Format(u32),
    Lost(u64),
    Io(Storage),
}

impl SledShelf {
    /// Opens the store; everything it then holds is durable.
    pub(super) fn open(
        dir: DataDir,
        disk: Arc<dyn Disk>,
        durability: Durability,
        cache_bytes: u64,
    ) -> Result<Self, OpenError> {
        let reserve = Reserve::in_dir(dir.path());
        let heads = Heads::open(dir.path());
        let heads =
            heads.inspect_err(|error| tracing::warn!(%error, "how far runs are acknowledged is not noted")).ok();
        let shelf = Self {
            open: RwLock::new(None),
            dir,
            disk,
            durability,
            cache_bytes,
            reserve,
            heads,
            scarce: AtomicBool::new(false),
            commits: AtomicU64::new(0),
        };
        if shelf.free_bytes() < FREE_BYTES_MIN {
            shelf.scarce.store(true, Ordering::Relaxed);
            shelf
                .give_up_reserve()
                .map_err(|storage| OpenError::Io { dir: shelf.dir.path().to_owned(), reason: storage.reason })?;
        }
        let opened = shelf.open_sled().and_then(|open| shelf.is_readable(&open).map(|()| open));
        let open = opened.map_err(|refused| {
            let dir = shelf.dir.path().to_owned();
            match refused {
                Refused::Damaged(reason) => OpenError::Damaged { dir, reason },
                Refused::Format(found) => OpenError::UnknownFormat { dir, found, known: FORMAT },
                Refused::Lost(missing) => OpenError::Lost { dir, missing },
                Refused::Io(storage) => OpenError::Io { dir, reason: storage.reason },
            }
        })?;
        *shelf.open.write() = Some(open);
        if !shelf.scarce.load(Ordering::Relaxed) && !shelf.reserve.is_whole() && shelf.reserve.take().is_err() {
            shelf.scarce.store(true, Ordering::Relaxed);
        }
        Ok(shelf)
    }

    fn open_sled(&self) -> Result<Open, Refused> {
        self.dir.remove_leftovers().map_err(|error| Refused::Io(failed("removing an unfinished snapshot", &error)))?;
        let tree = self.open_tree()?;
        let log = OpenOptions::new().read(true).write(true).open(self.log_path());
        let log = log.map_err(|error| Refused::Io(failed("opening the log", &error)))?;
        let watermark = self.watermark().map_err(|error| Refused::Io(failed("opening the watermark", &error)))?;
        let open = Open { tree, log, watermark };
        let commits = check_format(&open.tree).and_then(|()| commits_in(&open.tree))?;
        let acknowledged = open.watermark.as_ref().map_or(0, Watermark::commits);
        if acknowledged > commits {
            return Err(Refused::Lost(acknowledged - commits));
        }
        self.commits.store(commits, Ordering::Relaxed);
        self.dir.sync_names().map_err(|error| Refused::Io(failed("syncing the directory", &error)))?;
        self.sync_open(&open).map_err(Refused::Io)?;
        Ok(open)
    }

    /// sled opens by what it remembers of its file, whether that is there or not. So what the store keeps beside the records
    /// is read once, which recovery does anyway, and all of it where the file is shorter than it was.
    fn is_readable(&self, open: &Open) -> Result<(), Refused> {
        let noted = open.watermark.as_ref().map(Watermark::length);
        let length =
            open.log.metadata().map_err(|error| Refused::Io(failed("reading the log's length", &error)))?.len();
        let all = noted.is_some_and(|noted| noted.is_none_or(|noted| length < noted));
        let read = guarded("reading", || {
            let (records, behind) = ([Part::KIND], [Part::KIND + 1]);
            let ahead = if all { open.tree.iter() } else { open.tree.range::<&[u8], _>(..&records[..]) };
            ahead.chain(open.tree.range::<&[u8], _>(&behind[..]..)).try_for_each(|entry| entry.map(drop))
        });
        read.map_err(|storage| match storage.kind {
            Trouble::Corrupt => Refused::Damaged(storage.reason),
            _ => Refused::Io(storage),
        })
    }

    fn open_again(&self) -> Result<Open, Storage> {
        self.rewrite_log().map_err(|error| failed("writing the log again", &error))?;
        self.open_sled().map_err(|refused| match refused {
            Refused::Io(storage) => storage,
            Refused::Damaged(reason) => Storage::new(Trouble::Write, format!("{reason}; a restart is needed")),
            Refused::Lost(missing) => Storage::new(
                Trouble::Write,
                format!("its last {missing} acknowledged commits are gone; a restart is needed"),
            ),
            Refused::Format(found) => Storage::new(Trouble::Write, format!("it has format {found} now")),
        })
    }

    /// A sled that was just dropped may hold its files for a moment longer, in a thread that ends; nobody else can, since
    /// the directory is ours.
    fn open_tree(&self) -> Result<sled::Db, Refused> {
        let config = sled::Config::new()
            .path(self.dir.store())
            .cache_capacity(self.cache_bytes)
            .flush_every_ms(None)
            .mode(sled::Mode::HighThroughput);
        let mut tries = 0;
        loop {
            match caught(|| config.open()) {
                Ok(Ok(tree)) => return Ok(tree),
                Ok(Err(sled::Error::Io(error))) if tries < LOCK_TRIES && error.to_string().contains(LOCK_REFUSAL) => {
                    tries += 1;
                    std::thread::sleep(LOCK_WAIT);
                }
                Ok(Err(sled::Error::Io(error))) => return Err(Refused::Io(failed("opening", &error))),
                Ok(Err(error)) => return Err(Refused::Damaged(said_by(&error))),
                Err(panic) => return Err(Refused::Damaged(panic)),
            }
        }
    }

    fn watermark(&self) -> io::Result<Option<Watermark>> {
        match self.durability {
            Durability::PowerLoss => Watermark::open(self.dir.path()).map(Some),
            Durability::ProcessCrash => Watermark::remove(self.dir.path()).map(|()| None),
        }
    }

    fn sync_open(&self, open: &Open) -> Result<(), Storage> {
        self.disk.before_flush().map_err(|error| failed("flushing", &error))?;
        guarded("flushing", || open.tree.flush())?;
        match self.durability {
            Durability::PowerLoss => self.disk.sync_log(&open.log).map_err(|error| failed("syncing the log", &error)),
            Durability::ProcessCrash => Ok(()),
        }
    }

    /// After a failed sync the kernel takes pages for clean that never reached the disk, and the next sync says nothing of
    /// them. So all of the log is written again in place, the same bytes, and synced.
    fn rewrite_log(&self) -> io::Result<()> {
        let log = OpenOptions::new().read(true).write(true).open(self.log_path())?;
        let len = log.metadata()?.len();
        let mut piece = vec![0; REWRITE_BYTES];
        let mut at = 0;
        while at < len {
            let size = usize::try_from(len - at).unwrap_or(usize::MAX).min(REWRITE_BYTES);
            log.read_exact_at(&mut piece[..size], at)?;
            log.write_all_at(&piece[..size], at)?;
            at += size as u64;
        }
        match self.durability {
            Durability::PowerLoss => self.disk.sync_log(&log),
            Durability::ProcessCrash => Ok(()),
        }
    }

    /// Bytes free on the disk; a disk that cannot tell is taken for empty.
    fn free_bytes(&self) -> u64 {
        self.disk.free_bytes(self.dir.path()).unwrap_or(u64::MAX)
    }

    fn give_up_reserve(&self) -> Result<(), Storage> {
        self.scarce.store(true, Ordering::Relaxed);
        self.reserve.give_up().map_err(|error| failed("giving up the reserve", &error))
    }

    fn log_path(&self) -> PathBuf {
        self.dir.store().join(LOG_NAME)
    }

    fn with<T>(&self, what: &'static str, act: impl FnOnce(&Open) -> sled::Result<T>) -> Result<T, Storage> {
        let open = self.open.read();
        let open =
            open.as_ref().ok_or_else(|| Storage::new(Trouble::Read, "the store is being reopened; try again"))?;
        guarded(what, || act(open))
    }
}

impl Shelf for SledShelf {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Storage> {
        self.with("reading", |open| Ok(open.tree.get(key)?.map(|value| value.to_vec())))
    }

    fn scan(&self, span: Span<'_>, visit: &mut Visit<'_>) -> Result<(), Storage> {
        if span.from > span.to {
            return Ok(());
        }
        self.with("reading", |open| {
            let mut range = open.tree.range(span.from..=span.to);
            let mut next = || if span.backwards { range.next_back() } else { range.next() };
            while let Some(entry) = next() {
                let (key, value) = entry?;
                if let ControlFlow::Break(()) = visit(&key, &value) {
                    break;
                }
            }
            Ok(())
        })
    }

    fn apply(&self, batch: Batch) -> Result<(), Storage> {
        let mut writes = sled::Batch::default();
        for (key, value) in batch.writes {
            match value {
                Some(value) => writes.insert(key, value),
                None => writes.remove(key),
            }
        }
        let commits = self.commits.fetch_add(1, Ordering::Relaxed) + 1;
        let key = Meta::Commits.encode();
        let sealed = frame::seal(&key, &commits.to_be_bytes());
        writes.insert(key, sealed);
        self.with("writing", |open| open.tree.apply_batch(writes))
    }

    fn sync(&self) -> Result<(), Storage> {
        let open = self.open.read();
        let open =
            open.as_ref().ok_or_else(|| Storage::new(Trouble::Write, "the store is being reopened; try again"))?;
        self.sync_open(open)?;
        if let Some(watermark) = &open.watermark {
            let length = open.log.metadata().map_or(0, |log| log.len());
            watermark.note(self.commits.load(Ordering::Relaxed), length);
        }
        Ok(())
    }

    fn note(&self, noted: &Noted) {
        if let Some(heads) = &self.heads {
            heads.note(noted);
        }
    }

    fn reopen(&self) -> Result<(), Storage> {
        // Readers are refused meanwhile, not kept waiting.
        let broken = self.open.write().take();
        // sled panics when its last sync fails while it is dropped; its files are closed all the same.
        if let Err(reason) = caught(|| drop(broken)) {
            tracing::warn!(reason, "the store did not close cleanly");
        }
        if self.free_bytes() < FREE_BYTES_MIN {
            self.give_up_reserve()?;
        }
        let opened = match self.open_again() {
            Err(trouble) if trouble.kind == Trouble::DiskFull => {
                self.give_up_reserve()?;
                self.open_again()
            }
            settled => settled,
        };
        *self.open.write() = Some(opened?);
        Ok(())
    }

    fn room(&self) -> Room {
        let free = self.free_bytes();
        let was_scarce = self.scarce.load(Ordering::Relaxed);
        let scarce = if was_scarce {
            free < FREE_BYTES_AGAIN || (!self.reserve.is_whole() && self.reserve.take().is_err())
        } else {
            free < FREE_BYTES_MIN
        };
        self.scarce.store(scarce, Ordering::Relaxed);
        if scarce { Room::Scarce } else { Room::Enough }
    }
}

/// Marks a new store with the layout's version; refuses another version's.
fn check_format(tree: &sled::Db) -> Result<(), Refused> {
    let key = Meta::Format.encode();
    match value_of(tree, Meta::Format)? {
        Some(version) => match version.as_slice().try_into().map(u32::from_be_bytes) {
            Ok(FORMAT) => Ok(()),
            Ok(other) => Err(Refused::Format(other)),
            Err(_) => Err(Refused::Damaged("its format version is cut off".to_owned())),
        },
        None if tree.is_empty() => {
            let sealed = frame::seal(&key, &FORMAT.to_be_bytes());
            guarded("writing", || tree.insert(key, sealed)).map(drop).map_err(Refused::Io)
        }
        None => Err(Refused::Damaged("it has no format version".to_owned())),
    }
}

fn commits_in(tree: &sled::Db) -> Result<u64, Refused> {
    let Some(commits) = value_of(tree, Meta::Commits)? else { return Ok(0) };
    let commits = commits.as_slice().try_into().map(u64::from_be_bytes);
    commits.map_err(|_| Refused::Damaged("its number of commits is cut off".to_owned()))
}

fn value_of(tree: &sled::Db, meta: Meta) -> Result<Option<Vec<u8>>, Refused> {
    let key = meta.encode();
    let sealed = guarded("reading", || tree.get(&key)).map_err(|storage| Refused::Damaged(storage.reason))?;
    let Some(sealed) = sealed else { return Ok(None) };
    let value = frame::unseal(&key, &sealed).map_err(|reason| Refused::Damaged(reason.to_owned()))?;
    Ok(Some(value.to_vec()))
}
