//! Which process groups this runner has started: what it leaves behind when it is killed is ended before the next one sends
//! the same effects again.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rustix::process::{Pid, Signal, kill_process_group};

/// The variable by which a process of a group is told from one that has its number by chance.
const KEY: &str = "AREEV_IDEMPOTENCY_KEY";
/// Longest key that is read back, in bytes.
const KEY_BYTES_MAX: usize = 128;

/// A folder with a file for each group that runs: its name is the leader's process id, its text the effect's key.
pub(in crate::dispatch) struct Roster {
    dir: PathBuf,
}

/// A group that is noted until this is dropped.
pub(super) struct Noted(Option<PathBuf>);

impl Roster {
    /// Names the folder; it is made when first needed.
    pub(in crate::dispatch) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Notes a group. One that cannot be noted runs all the same.
    pub(super) fn note(&self, leader: Option<u32>, variables: &[(&'static str, String)]) -> Noted {
        let key = variables.iter().find(|(name, _)| *name == KEY).map(|(_, key)| key);
        let (Some(leader), Some(key)) = (leader, key) else { return Noted(None) };
        let path = self.dir.join(leader.to_string());
        match self.write(&path, key) {
            Ok(()) => Noted(Some(path)),
            Err(cause) => {
                tracing::warn!(path = %path.display(), %cause, "a child process is not noted: should this runner be killed, it goes on");
                Noted(None)
            }
        }
    }

    fn write(&self, path: &Path, key: &str) -> io::Result<()> {
        let open = || OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
        let mut file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
                open()?
            }
            opened => opened?,
        };
        file.write_all(key.as_bytes())
    }

    /// Kills the groups that a former runner left behind, and answers how many. Nobody else may use the folder.
    pub(in crate::dispatch) fn sweep(&self) -> usize {
        let Ok(entries) = fs::read_dir(&self.dir) else { return 0 };
        let noted = entries.flatten().filter_map(|entry| {
            let leader = entry.file_name().to_str()?.parse::<i32>().ok().and_then(Pid::from_raw);
            let key = fs::read_to_string(entry.path()).ok().filter(|key| key.len() <= KEY_BYTES_MAX);
            let _gone = fs::remove_file(entry.path());
            Some((leader?, key.filter(|key| !key.is_empty())?))
        });
        noted
            .filter(|(leader, key)| is_of_effect(*leader, key) && kill_process_group(*leader, Signal::KILL).is_ok())
            .count()
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _gone = fs::remove_file(path);
        }
    }
}

/// Whether a process of the group was started for the effect. Those of other users cannot be looked at, and are none.
fn is_of_effect(leader: Pid, key: &str) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    let variable = format!("{KEY}={key}");
    processes.flatten().map(|entry| entry.path()).any(|process| {
        group_of(&process) == Some(leader.as_raw_nonzero().get())
            && fs::read(process.join("environ"))
                .is_ok_and(|variables| variables.split(|byte| *byte == 0).any(|known| known == variable.as_bytes()))
    })
}

/// The fifth field of `stat`; the second is a name in parentheses, which may hold anything.
fn group_of(process: &Path) -> Option<i32> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::{CommandExt as _, ExitStatusExt as _},
        process::Command,
    };

    use super::*;

    #[test]
    fn a_sweep_kills_what_was_noted_and_nothing_that_has_the_number_by_chance() {
        let dir = tempfile::tempdir().unwrap();
        let roster = Roster::new(dir.path().join("children"));
        let started = |key: &str| Command::new("sleep").arg("600").env(KEY, key).process_group(0).spawn().unwrap();
        let (mut left, mut other, mut ended) = (started("left"), started("other"), started("ended"));
        std::mem::forget(roster.note(Some(left.id()), &[(KEY, "left".to_owned())]));
        std::mem::forget(roster.note(Some(other.id()), &[(KEY, "of a former process of this number".to_owned())]));
        drop(roster.note(Some(ended.id()), &[(KEY, "ended".to_owned())]));
        assert_eq!(Roster::new(dir.path().join("children")).sweep(), 1);
        assert_eq!(left.wait().unwrap().signal(), Some(9));
        for spared in [&mut other, &mut ended] {
            assert!(spared.try_wait().unwrap().is_none());
            spared.kill().unwrap();
            spared.wait().unwrap();
        }
        assert_eq!(roster.sweep(), 0, "its notes are gone");
    }
}
