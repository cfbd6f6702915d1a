//! What the program does beside serving: each command reads, says what it found, and ends with a code.

mod backup;
mod fsck;
mod store;
mod verify;

use std::process::ExitCode;

use clap::Subcommand;

/// Everything held.
pub const CLEAN: u8 = 0;
/// Something did not hold; the output says what.
pub const FOUND: u8 = 1;
/// The command itself could not be done.
pub const FAILED: u8 = 2;

/// Something else than to serve.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Check a file that ExportRun wrote, offline: chain, decisions, digests, receipt. Exits with 0 when all holds, 1 when
    /// something does not, 2 when the file cannot be read
    Verify(verify::Verify),
    /// Copy the data directory to a new folder, also while the service runs on it; the copy is a data directory
    Backup(backup::BackupTo),
    /// Check a data directory that no service uses: every run's chain and decisions, blobs, indexes. Exits with 0 when all
    /// holds, 1 when something does not, 2 when the directory cannot be opened
    Fsck(fsck::Fsck),
}

impl Command {
    /// Does it. What a person reads goes to the standard output.
    pub fn run(&self) -> ExitCode {
        let done = match self {
            Self::Verify(verify) => verify.run(),
            Self::Backup(backup) => backup.run(),
            Self::Fsck(fsck) => fsck.run(),
        };
        match done {
            Ok(code) => ExitCode::from(code),
            Err(cause) => {
                complain(&cause);
                ExitCode::from(FAILED)
            }
        }
    }
}

fn say(text: &str) -> anyhow::Result<()> {
    Ok(proto::output::print(&format!("{text}\n"))?)
}

#[expect(clippy::print_stderr, reason = "the program ends with this message")]
fn complain(cause: &anyhow::Error) {
    eprintln!("runner-svc: {cause:#}");
}
