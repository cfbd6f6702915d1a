//! Counts how often loading a run ended the process: a run that does it again and again is left alone.

use std::{fs, io, path::PathBuf};

use content_digest::Digest;

/// A run that ended the process so often while it was loaded is not loaded any more.
pub const CRASHES_MAX: u32 = 3;
/// Folder of the marks in the data directory, one file for each run that is being loaded.
const FOLDER: &str = "loading";

/// The marks of runs that are being loaded. A mark is made before a run's journal is folded and removed after, so that one
/// that is found at a start tells of a load that did not come to its end. It survives the process, which is all it has to.
#[derive(Debug, Default)]
pub struct Attempts {
    folder: Option<PathBuf>,
}

/// A run that is being loaded.
#[derive(Debug)]
pub struct Loading {
    mark: Option<PathBuf>,
}

impl Attempts {
    /// Marks in a data directory, made when it is first needed. Without one nothing is counted.
    pub fn in_dir(data_dir: &std::path::Path) -> Self {
        Self { folder: Some(data_dir.join(FOLDER)) }
    }

    /// How many loads of the run did not come to their end.
    pub fn crashes(&self, run_id: &str) -> u32 {
        let text = self.mark(run_id).and_then(|mark| fs::read_to_string(mark).ok()).unwrap_or_default();
        text.lines().next().and_then(|line| line.parse().ok()).unwrap_or_default()
    }

    /// Marks one more load, until the answer is dropped.
    ///
    /// # Errors
    /// The mark cannot be written.
    pub fn begin(&self, run_id: &str) -> io::Result<Loading> {
        let mark = self.mark(run_id);
        if let (Some(folder), Some(mark)) = (&self.folder, &mark) {
            fs::create_dir_all(folder)?;
            fs::write(mark, format!("{}\n{run_id}\n", self.crashes(run_id).saturating_add(1)))?;
        }
        Ok(Loading { mark })
    }

    fn mark(&self, run_id: &str) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(Digest::of(run_id).to_hex()))
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        if let Some(mark) = &self.mark
            && let Err(error) = fs::remove_file(mark)
        {
            tracing::warn!(mark = %mark.display(), %error, "the mark of a loaded run stays: it counts as a crash");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_came_to_its_end_counts_for_nothing_and_one_that_did_not_counts() {
        let dir = tempfile::tempdir().unwrap();
        let attempts = Attempts::in_dir(dir.path());
        drop(attempts.begin("a").unwrap());
        assert_eq!(attempts.crashes("a"), 0);
        for crashes in 1..=3 {
            // What a killed process does not get to.
            std::mem::forget(attempts.begin("a").unwrap());
            assert_eq!((attempts.crashes("a"), attempts.crashes("b")), (crashes, 0));
        }
        drop(attempts.begin("a").unwrap());
        assert_eq!(attempts.crashes("a"), 0);
    }
}
