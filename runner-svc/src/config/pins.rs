//! The digests that the operator allows to execute, from flags and from a file that is read again when it changes.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use content_digest::{BadDigest, Digest};
use tokio_util::sync::CancellationToken;

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Most pins in force.
const PINS_MAX: usize = 100_000;

/// The pins in force. A changed file that cannot be used leaves the last good ones.
#[derive(Debug, Clone)]
pub struct Pins {
    flags: Arc<BTreeSet<Digest>>,
    file: Option<PathBuf>,
    current: Arc<ArcSwap<BTreeSet<Digest>>>,
}

/// A pin cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// A flag's value is no digest.
    #[error("--allow-executor: {0}")]
    Flag(BadDigest),
    /// A line of the file is no digest.
    #[error("{path}, line {line}: {cause}", path = path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        cause: BadDigest,
    },
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] proto::settings::SettingsError),
    /// There are too many.
    #[error("{0} pins, over the {PINS_MAX} that one runner takes")]
    TooMany(usize),
}

impl Pins {
    /// Reads flags and file.
    pub fn read(flags: &[String], file: Option<&Path>) -> Result<Self, PinError> {
        let flags = flags.iter().map(|text| text.trim()).filter(|text| !text.is_empty());
        let flags: BTreeSet<Digest> =
            flags.map(|text| text.parse().map_err(PinError::Flag)).collect::<Result<_, _>>()?;
        let all = united(&flags, file)?;
        Ok(Self {
            flags: Arc::new(flags),
            file: file.map(Path::to_owned),
            current: Arc::new(ArcSwap::from_pointee(all)),
        })
    }

    /// The pins in force now.
    pub fn current(&self) -> Arc<BTreeSet<Digest>> {
        self.current.load_full()
    }

    /// Follows the file until the token is cancelled.
    pub async fn follow(self, stop: CancellationToken) {
        let Some(path) = self.file.clone() else { return };
        let mut seen = stamp(&path);
        while stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            let now = stamp(&path);
            if now == seen {
                continue;
            }
            seen = now;
            match united(&self.flags, Some(&path)) {
                Ok(all) => {
                    tracing::info!(pins = all.len(), file = %path.display(), "pins read again");
                    self.current.store(Arc::new(all));
                }
                Err(cause) => {
                    tracing::error!(%cause, "the changed pins cannot be used: the last good ones stay in force")
                }
            }
        }
    }
}

fn united(flags: &BTreeSet<Digest>, file: Option<&Path>) -> Result<BTreeSet<Digest>, PinError> {
    let mut all = flags.clone();
    if let Some(path) = file {
        let text = proto::settings::read(path)?;
        for (index, line) in text.lines().enumerate() {
            let pin = line.split('#').next().unwrap_or_default().trim();
            if !pin.is_empty() {
                let wrong = |cause| PinError::Line { path: path.to_owned(), line: index + 1, cause };
                all.insert(pin.parse().map_err(wrong)?);
            }
        }
    }
    if all.len() > PINS_MAX { Err(PinError::TooMany(all.len())) } else { Ok(all) }
}

/// Follows symbolic links, as a mounted ConfigMap swaps them.
fn stamp(path: &Path) -> Option<(SystemTime, u64, PathBuf)> {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.modified().ok()?, meta.len(), std::fs::canonicalize(path).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_come_from_flags_and_file_in_either_spelling() {
        let (a, b) = (Digest::of("a"), Digest::of("b"));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(
            file.path(),
            format!(
                "# code of the team\n{}  # b\n\n",
                b.to_uri().to_uppercase().replace("CAS://SHA256", "cas://sha256")
            ),
        )
        .unwrap();
        let pins = Pins::read(&[a.to_hex().to_uppercase()], Some(file.path())).unwrap();
        assert_eq!(*pins.current(), BTreeSet::from([a, b]));
    }

    #[test]
    fn a_bad_pin_is_named_with_its_place() {
        let text = Pins::read(&["latest".to_owned()], None).unwrap_err().to_string();
        assert!(text.contains("--allow-executor") && text.contains("latest"), "{text}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "\nnope\n").unwrap();
        let text = Pins::read(&[], Some(file.path())).unwrap_err().to_string();
        assert!(text.contains("line 2") && text.contains("nope"), "{text}");
    }
}
