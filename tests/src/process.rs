//! One child process: its log in a file, its end with its owner's.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Lines of the log that a failing test shows.
const TAIL_LINES: usize = 40;
/// Pause between two looks at something that is awaited.
pub const POLL: Duration = Duration::from_millis(20);
/// Longest wait for anything that a loaded machine must manage.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A running child. Killed when it is dropped; a panicking owner prints the end of its log.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program whose output goes to `log`, after what is there already.
    pub fn spawn(name: &str, mut command: Command, log: &Path) -> Result<Self> {
        let file = File::options().create(true).append(true).open(log).context("the log file")?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().context("the log file")?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {:?}", command.get_program()))?;
        Ok(Self { name: name.to_owned(), child, log: log.to_owned() })
    }

    /// The process's id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, and wait until it is gone.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("SIGKILL")?;
        self.child.wait().context("waiting for a killed process")?;
        Ok(())
    }

    /// SIGTERM, and wait until it has ended by itself.
    pub fn terminate(&mut self) -> Result<ExitStatus> {
        self.ask_to_end()?;
        self.ended(PATIENCE)
    }

    /// SIGTERM.
    pub fn ask_to_end(&self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).context("SIGTERM")
    }

    /// Waits until it has ended by itself.
    pub fn ended(&mut self, patience: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().context("waiting for a process")? {
                return Ok(status);
            }
            std::thread::sleep(POLL);
        }
        bail!("{} still runs after {patience:?}", self.name)
    }

    /// How it ended, if it has.
    pub fn exit(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// All that it has written so far.
    pub fn log_text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The last lines that it has written.
    pub fn log_tail(&self) -> String {
        let text = self.log_text();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

impl Drop for Process {
    #[expect(clippy::print_stderr, reason = "a failing test shows the log")]
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _already_waited = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- end of the log of {} ---\n{}", self.name, self.log_tail());
        }
    }
}
