//! Why the journal refuses: one enum a door, a variant for each decision the caller can take.

use std::path::PathBuf;

use super::RunHeader;

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("the data directory {dir} is in use by process {pid}: stop it, or choose another --data-dir")]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// What the other process wrote into the lock file; `unknown` if it could not be read.
        pid: String,
    },
    /// Written by another version.
    #[error(
        "the data directory {dir} has journal format {found}, this program writes format {known}: use the version that wrote it"
    )]
    UnknownFormat {
        /// The directory.
        dir: PathBuf,
        /// The version found.
        found: u32,
        /// The version this program knows.
        known: u32,
    },
    /// Its files do not hold together.
    #[error(
        "RUN-E020: the journal in {dir} is damaged and cannot be opened: {reason}; restore it from a backup (`runner-svc backup` makes one; use its folder as --data-dir), or move {dir}/journal aside to start without its runs"
    )]
    Damaged {
        /// The directory.
        dir: PathBuf,
        /// What was met.
        reason: String,
    },
    /// Its file is damaged, and what lies behind the damage can be read.
    #[error(
        "RUN-E020: the journal in {dir} is damaged: {reason}; `runner-svc fsck --repair {dir}`, or a start of the service, writes it anew from everything that can be read and keeps the damaged one"
    )]
    Mendable {
        /// The directory.
        dir: PathBuf,
        /// What was met.
        reason: String,
    },
    /// Its end is gone: commits that were acknowledged are not there.
    #[error(
        "RUN-E020: the journal in {dir} lacks its last {missing} acknowledged commits: its file was cut off or damaged, and what follows the damage is gone with it; restore it from a backup (`runner-svc backup` makes one; use its folder as --data-dir). Only where there is none: copy {dir} aside and run `runner-svc fsck --repair {dir}`, which accepts the loss: the runs that lack something are named and not driven, all others go on"
    )]
    Lost {
        /// The directory.
        dir: PathBuf,
        /// How many commits are missing at least.
        missing: u64,
    },
    /// A part of its file is gone, and with it something that was acknowledged, though not the last of it.
    #[error(
        "RUN-E020: the journal in {dir} lost a part of its file: {runs} runs lack something that was acknowledged; restore it from a backup (`runner-svc backup` makes one; use its folder as --data-dir). Only where there is none: copy {dir} aside and run `runner-svc fsck --repair {dir}`, which accepts the loss: those runs are named and not driven, all others go on"
    )]
    Cut {
        /// The directory.
        dir: PathBuf,
        /// How many runs lack something at least.
        runs: u64,
    },
    /// The disk does not answer as it should.
    #[error("RUN-E020: cannot open the journal in {dir}: {reason}")]
    Io {
        /// The directory.
        dir: PathBuf,
        /// What was met.
        reason: String,
    },
}

/// Why a run was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// A run of this id is here; whether that is a repeated call is the caller's decision.
    #[error("RUN-E016: run {:?} exists", .0.run_id)]
    AlreadyExists(Box<RunHeader>),
    /// A run of this id is here, and what it is cannot be read.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// Something is over its limit; nothing was written.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// Whether the run was written is unknown until the store is healthy again and the run has been looked up.
    #[error(transparent)]
    Storage(#[from] Storage),
}

/// Why records were not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// No such run.
    #[error("run {0:?} is not here")]
    NotFound(String),
    /// Another fence holds the run: the writer must stop driving it.
    #[error("RUN-E021: the lease of run {run_id:?} was lost: fence {given}, now {current}")]
    LeaseLost {
        /// The run.
        run_id: String,
        /// The writer's fence.
        given: u64,
        /// The run's fence.
        current: u64,
    },
    /// The writer does not know the run's latest records: read them first.
    #[error("run {run_id:?} goes on at sequence {next}, not at {expected}")]
    Conflict {
        /// The run.
        run_id: String,
        /// What the writer expected.
        expected: u64,
        /// The run's next sequence number.
        next: u64,
    },
    /// The run has ended; nothing is written after its end.
    #[error("run {0:?} has finished")]
    Finished(String),
    /// Something is over its limit; nothing was written.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// The run's own bookkeeping is damaged.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// Whether the records were written is unknown until the store is healthy again and the run has been read.
    #[error(transparent)]
    Storage(#[from] Storage),
}

/// Why a lease was not given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// No such run.
    #[error("run {0:?} is not here")]
    NotFound(String),
    /// Somebody else drives it.
    #[error("run {run_id:?} is driven by {holder:?} for {left_ms} ms more")]
    Held {
        /// The run.
        run_id: String,
        /// Who drives it.
        holder: String,
        /// How long the lease still lasts by the claimant's clock.
        left_ms: u64,
    },
    /// The lease to renew is no longer the run's.
    #[error("RUN-E021: the lease of run {run_id:?} was lost: fence {given}, now {current}")]
    Lost {
        /// The run.
        run_id: String,
        /// The writer's fence.
        given: u64,
        /// The run's fence.
        current: u64,
    },
    /// The claimant does not know the run's latest records: read them first.
    #[error("run {run_id:?} goes on at sequence {next}, not at {expected}")]
    Conflict {
        /// The run.
        run_id: String,
        /// What the claimant expected.
        expected: u64,
        /// The run's next sequence number.
        next: u64,
    },
    /// The run has ended; nobody needs to drive it.
    #[error("run {0:?} has finished")]
    Finished(String),
    /// The holder's name or the records are over their limit.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// The run's own bookkeeping is damaged.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// The store does not write.
    #[error(transparent)]
    Storage(#[from] Storage),
}

/// Why nothing could be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No such run.
    #[error("run {0:?} is not here")]
    NotFound(String),
    /// A record is damaged: only its run is affected.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// As many runs are watched as may be.
    #[error("{0} runs are watched already: try again when a watcher has gone")]
    TooManyWatched(usize),
    /// The store does not read.
    #[error(transparent)]
    Storage(#[from] Storage),
}

/// Bytes that are not what was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("RUN-E020: run {run_id:?} is damaged at {place}: {reason}; other runs are not affected")]
pub struct Damaged {
    /// The run.
    pub run_id: String,
    /// Where.
    pub place: Place,
    /// What was met.
    pub reason: String,
}

/// Which of a run's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// What it is.
    Header,
    /// Its head, lease and status document.
    State,
    /// The record of this sequence number.
    Record(u64),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Header => f.write_str("its header"),
            Self::State => f.write_str("its state"),
            Self::Record(sequence) => write!(f, "sequence {sequence}"),
        }
    }
}

/// A value over its limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("RUN-E015: {what} is {size} bytes, the limit is {limit}")]
pub struct TooLarge {
    /// What it is.
    pub what: &'static str,
    /// Its size, in bytes unless `what` says otherwise.
    pub size: usize,
    /// The limit.
    pub limit: usize,
}

/// The store does not work now; see [`super::Health`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("RUN-E020: the journal cannot be {}: {reason}", .kind.verb())]
pub struct Storage {
    /// What kind of trouble.
    pub kind: Trouble,
    /// What was met.
    pub reason: String,
    /// Whether it may have been written all the same: known once the store works again.
    pub in_doubt: bool,
}

/// What kind of trouble the store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// No room on the disk: only the ends of runs are written.
    DiskFull,
    /// Writing or syncing fails.
    Write,
    /// Reading fails.
    Read,
    /// What is read is not what was written: it will not be by trying again.
    Corrupt,
    /// It is being closed.
    Closed,
}

impl Trouble {
    /// The kind of an error of the disk.
    pub(super) fn of(error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Self::DiskFull,
            _ => Self::Write,
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Self::DiskFull | Self::Write | Self::Closed => "written",
            Self::Read | Self::Corrupt => "read",
        }
    }
}

impl Storage {
    pub(super) fn new(kind: Trouble, reason: impl std::fmt::Display) -> Self {
        Self { kind, reason: reason.to_string(), in_doubt: false }
    }
}

/// What can go wrong below the doors: bytes that are not what was written, or a store that does not answer.
#[derive(Debug)]
pub(super) enum Fault {
    Damaged(Damaged),
    Storage(Storage),
}

impl Fault {
    /// Of one run's part: bytes that are damaged below the store's own door damage that run only.
    pub(super) fn of_run(storage: Storage, run_id: &str, place: Place) -> Self {
        match storage.kind {
            Trouble::Corrupt => Self::Damaged(Damaged { run_id: run_id.to_owned(), place, reason: storage.reason }),
            _ => Self::Storage(storage),
        }
    }
}

impl From<Storage> for Fault {
    fn from(storage: Storage) -> Self {
        Self::Storage(storage)
    }
}

impl From<Damaged> for Fault {
    fn from(damaged: Damaged) -> Self {
        Self::Damaged(damaged)
    }
}

macro_rules! from_fault {
    ($($door:ident),*) => {
        $(impl From<Fault> for $door {
            fn from(fault: Fault) -> Self {
                match fault {
                    Fault::Damaged(damaged) => Self::Damaged(damaged),
                    Fault::Storage(storage) => Self::Storage(storage),
                }
            }
        })*
    };
}

from_fault!(CreateError, AppendError, LeaseError, ReadError);
