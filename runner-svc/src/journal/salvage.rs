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
/// It is in use, or the disk does not answer or has no room. Nothing was changed then.
pub(super) fn mend(dir: &Path, when: When) -> Result<Option<Mended>, OpenError> {
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
    let acknowledged = acknowledged(dir).map_err(|error| failed("reading the watermark", &error))?;
    if when == When::Damaged && !is_damaged(&log, acknowledged).map_err(|error| failed("reading it", &error))? {
        return Ok(None);
    }
    let heads = Heads::open(dir).and_then(|heads| heads.all());
    let heads = heads.map_err(|error| failed("reading how far runs were acknowledged", &error))?;
    let target = dir.join(REBUILT_NAME);
    remove(&target).map_err(|error| failed("removing an unfinished one", &error))?;
    let rebuild = Rebuild::of(&log).map_err(|error| failed("reading it", &error))?;
    let done = rebuild.write(&log, &heads, (&target, acknowledged.unwrap_or(0)));
    let (values, runs_short) = done.map_err(|error| failed("writing the new one", &error))?;
    let kept = put_in_place(&claimed, dir, &target).map_err(|error| failed("putting it in place", &error))?;
    Ok(Some(Mended { kept, gaps: rebuild.gaps(), values, runs_short }))
}

/// Whether a store has to be written anew.
///
/// # Errors
/// It is in use, or the disk does not answer.
pub(super) fn needed(dir: &Path) -> Result<bool, OpenError> {
    if !dir.join("journal/db").is_file() {
        return Ok(false);
    }
    let claimed = DataDir::claim(dir)?;
    let look = || is_damaged(&Log::open(&claimed.store().join("db"))?, acknowledged(dir)?);
    look().map_err(|error| OpenError::Io { dir: dir.to_owned(), reason: format!("reading its file: {error}") })
}

/// The last commit that was acknowledged; none where that is not noted.
fn acknowledged(dir: &Path) -> io::Result<Option<u64>> {
    if !dir.join(super::watermark::NAME).is_file() {
        return Ok(None);
    }
    Ok(Some(Watermark::open(dir)?.commits()))
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
