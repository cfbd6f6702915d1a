//! A program that prints a value: started without a shell, with an empty environment, bounded in time and output.

use std::{process::Stdio, time::Duration};

use tokio::{
    io::AsyncReadExt as _,
    process::{Child, Command},
};
use zeroize::Zeroizing;

use super::{SECRET_BYTES_MAX, Unreadable};

/// Longest run of a program.
pub const RUN_MAX: Duration = Duration::from_secs(10);
/// Where the programs that it may start itself are looked for.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The program and what it started; all of it ends with this.
struct Group(Child);

/// Runs the program and takes what it prints. What it says on standard error is dropped: it may be the secret.
pub async fn run(arguments: &[String], run_max: Duration) -> Result<Zeroizing<Vec<u8>>, Unreadable> {
    let Some((program, arguments)) = arguments.split_first() else {
        return Err(Unreadable::Start(std::io::ErrorKind::NotFound.into()));
    };
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("PATH", PATH).current_dir("/").process_group(0).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut group = Group(command.spawn().map_err(Unreadable::Start)?);
    let late = |_| Err(Unreadable::Late(run_max));
    tokio::time::timeout(run_max, group.output()).await.unwrap_or_else(late)
}

impl Group {
    async fn output(&mut self) -> Result<Zeroizing<Vec<u8>>, Unreadable> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(SECRET_BYTES_MAX as usize + 1));
        if let Some(stdout) = self.0.stdout.take() {
            stdout.take(SECRET_BYTES_MAX + 1).read_to_end(&mut bytes).await.map_err(Unreadable::Start)?;
        }
        if bytes.len() as u64 > SECRET_BYTES_MAX {
            return Err(Unreadable::TooLarge);
        }
        let status = self.0.wait().await.map_err(Unreadable::Start)?;
        if status.success() { Ok(bytes) } else { Err(Unreadable::Failed(status)) }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A child that was waited for has no id any more, and its group is not ours to end.
        let pid = self.0.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(pid) = pid {
            let _already_ended = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn what_a_program_prints_is_taken_and_its_failure_is_named() {
        assert_eq!(run(&words("/bin/echo tok $HOME"), RUN_MAX).await.ok().unwrap()[..], b"tok $HOME\n"[..]);
        assert!(matches!(run(&words("/bin/false"), RUN_MAX).await, Err(Unreadable::Failed(_))));
        assert!(matches!(run(&words("/no/such/program"), RUN_MAX).await, Err(Unreadable::Start(_))));
        assert!(matches!(run(&words("/usr/bin/yes"), RUN_MAX).await, Err(Unreadable::TooLarge)));
    }

    #[tokio::test]
    async fn a_program_is_told_nothing_of_the_services_environment() {
        let printed = run(&words("/usr/bin/env"), RUN_MAX).await.ok().unwrap();
        assert_eq!(String::from_utf8_lossy(&printed), format!("PATH={PATH}\n"));
    }

    #[tokio::test]
    async fn a_program_that_does_not_end_is_ended() {
        let limit = Duration::from_millis(20);
        assert!(matches!(run(&words("/bin/sleep 1000"), limit).await, Err(Unreadable::Late(late)) if late == limit));
    }
}
