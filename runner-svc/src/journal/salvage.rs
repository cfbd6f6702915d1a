//! A store whose file is damaged in the middle: sled would give up all that was written after the damage. Here everything
//! that can be read is read past it and written into a new store; what is lost stops only the runs that it belongs to.

mod log;
mod message;
mod rebuild;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    data_dir::{DataDir, REBUILT_NAME},
    error::OpenError,
    frame,
    heads::Heads,
    key::{Key as _, Meta},
    watermark::Watermark,
};
use log::{Log, Met};
use rebuild::Rebuild;

/// Folders with damaged stores that are kept, at most.
const KEPT_MAX: u32 = 100;

/// What was done about a damaged store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mended {
    /// Where the damaged store is kept.
    pub kept: PathBuf,
    /// Places in its file that could not be read.
    pub gaps: u64,
    /// Values that were read and are in the new store.
    pub values: u64,
    /// Runs that lack something of what was acknowledged, by what is known of their records' number; each is named when it is read.
    pub runs_short: u64,
}

/// When a store is written anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// When something acknowledged was written behind damage: before sled opens it, which would remove that.
    Damaged,
    /// In any case.
    Always,
}

/// Writes a store anew from what can be read of it; the damaged one is kept beside it. Nobody may have it open.
///
/// # Errors
/// It is in use, or the disk does not answer or has no room; or, unless that is accepted, its last commits or a part of its
/// file are gone. Nothing was changed then.
pub(super) fn mend(dir: &Path, when: When, accept_loss: bool) -> Result<Option<Mended>, OpenError> {
    if !dir.join("journal/db").is_file() {
        return Ok(None);
    }
    let claimed = DataDir::claim(dir)?;
    let failed = |what: &str, error: &io::Error| OpenError::Io {
        dir: dir.to_owned(),
        reason: format!(
            "its file is damaged and it cannot be written anew, {what}: {error}; nothing was changed: free space or mend the \
             disk, then start again"
        ),
    };
    let log = Log::open(&claimed.store().join("db")).map_err(|error| failed("reading it", &error))?;
    let noted = Noted::read(dir).map_err(|error| failed("reading the watermark", &error))?;
    let look = || Ok((noted.missing(&log)?, is_damaged(&log, noted.commits)?, noted.is_cut(&log)?));
    let (missing, damaged, cut) = look().map_err(|error| failed("reading it", &error))?;
    if missing > 0 && !accept_loss {
        return Err(OpenError::Lost { dir: dir.to_owned(), missing });
    }
    if when == When::Damaged && missing == 0 && !damaged && !cut {
        return Ok(None);
    }
    let heads = Heads::open(dir).and_then(|heads| heads.all());
    let heads = heads.map_err(|error| failed("reading how far runs were acknowledged", &error))?;
    let rebuild = Rebuild::of(&log).map_err(|error| failed("reading it", &error))?;
    let amended = rebuild.amended(&log, &heads).map_err(|error| failed("reading it", &error))?;
    let runs_short = amended.runs_short;
    if !damaged && missing == 0 && runs_short == 0 && when == When::Damaged {
        return Ok(None);
    }
    // Bytes that were changed are mended and told of; a part of the file that is gone is somebody's mistake.
    if rebuild.gaps() == 0 && runs_short > 0 && !accept_loss {
        return Err(OpenError::Cut { dir: dir.to_owned(), runs: runs_short });
    }
    let target = dir.join(REBUILT_NAME);
    remove(&target).map_err(|error| failed("removing an unfinished one", &error))?;
    let done = rebuild.write(&log, amended, (&target, noted.commits.unwrap_or(0)));
    let values = done.map_err(|error| failed("writing the new one", &error))?;
    // The new file is shorter, which is no loss.
    if let Some(commits) = noted.commits {
        let forgotten = Watermark::open(dir).map(|watermark| watermark.note(commits, 0));
        forgotten.map_err(|error| failed("noting that its length changes", &error))?;
    }
    let kept = put_in_place(&claimed, dir, &target).map_err(|error| failed("putting it in place", &error))?;
    Ok(Some(Mended { kept, gaps: rebuild.gaps(), values, runs_short }))
}

/// Whether a store has to be written anew.
///
/// # Errors
/// It is in use, or the disk does not answer, or its last commits are gone.
pub(super) fn needed(dir: &Path) -> Result<bool, OpenError> {
    if !dir.join("journal/db").is_file() {
        return Ok(false);
    }
    let claimed = DataDir::claim(dir)?;
    let look = || {
        let (log, noted) = (Log::open(&claimed.store().join("db"))?, Noted::read(dir)?);
        Ok((noted.missing(&log)?, is_damaged(&log, noted.commits)?))
    };
    let looked = look();
    let looked = looked.map_err(|error: io::Error| OpenError::Io {
        dir: dir.to_owned(),
        reason: format!("reading its file: {error}"),
    });
    match looked? {
        (0, damaged) => Ok(damaged),
        (missing, _) => Err(OpenError::Lost { dir: dir.to_owned(), missing }),
    }
}

/// What is noted beside the store; nothing where it does not promise to keep its end.
struct Noted {
    /// The last commit that was acknowledged.
    commits: Option<u64>,
    /// How long the file was then.
    length: Option<u64>,
}

impl Noted {
    fn read(dir: &Path) -> io::Result<Self> {
        if !dir.join(super::watermark::NAME).is_file() {
            return Ok(Self { commits: None, length: None });
        }
        let noted = Watermark::open(dir)?;
        Ok(Self { commits: Some(noted.commits()), length: noted.length() })
    }

    /// How many commits at the end are not in the file.
    fn missing(&self, log: &Log) -> io::Result<u64> {
        let Some(acknowledged) = self.commits else { return Ok(0) };
        Ok(acknowledged.saturating_sub(log.last_commit()?.unwrap_or(0)))
    }

    /// Whether the file is shorter than it was.
    fn is_cut(&self, log: &Log) -> io::Result<bool> {
        let length = log.length()?;
        Ok(self.length.is_some_and(|noted| length < noted))
    }
}

/// Whether something that was acknowledged lies behind damage. What a loss of power tore was acknowledged to nobody.
fn is_damaged(log: &Log, acknowledged: Option<u64>) -> io::Result<bool> {
    if !log.has_gap()? {
        return Ok(false);
    }
    let commits = Meta::Commits.encode();
    let (mut gap, mut damaged) = (false, false);
    log.walk(&mut |met| match met {
        Met::Gap => gap = true,
        Met::Put(key, value) if gap && key == commits => {
            let count = frame::unseal(&key, value.bytes)
                .ok()
                .and_then(|count| Some(u64::from_be_bytes(count.try_into().ok()?)));
            damaged |= count.is_some_and(|count| acknowledged.is_none_or(|acknowledged| count <= acknowledged));
        }
        Met::Put(..) | Met::Removed(_) | Met::Whole { .. } => {}
    })?;
    Ok(damaged)
}

/// The new store takes the damaged one's place. A crash in between is completed by the next [`DataDir::claim`].
fn put_in_place(claimed: &DataDir, dir: &Path, target: &Path) -> io::Result<PathBuf> {
    let free = (1..=KEPT_MAX).map(|number| dir.join(format!("journal.damaged-{number}"))).find(|kept| !kept.exists());
    let kept =
        free.ok_or_else(|| io::Error::other(format!("{KEPT_MAX} damaged ones are kept already: remove some")))?;
    fs::rename(claimed.store(), &kept)?;
    fs::rename(target, claimed.store())?;
    claimed.sync_names()?;
    Ok(kept)
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
