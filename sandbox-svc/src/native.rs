//! Native blobs: executable files named by their digest, each call in a process group and a directory of its own.
//!
//! The file is hashed before every use. The child is the service's own program as `jail`, which bounds itself and then
//! becomes the blob; so no code has to run between fork and exec.

mod child;
mod files;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Instant,
};

use bytes::Bytes;
use content_digest::Digest;

use crate::{effect::Effect, outcome::Failure};

/// What of the service's environment a child gets.
const INHERITED: [&str; 6] = ["PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "TZ"];

/// The isolation of every child, for the log and for `Describe`. Whatever of it cannot be had stops the child.
pub const ISOLATION: [&str; 5] =
    ["process_group", "cleared_environment", "private_directory", "no_new_privs", "rlimits"];

/// Executes native blobs.
#[derive(Debug)]
pub struct Native {
    files: files::Files,
    work: PathBuf,
    jail: PathBuf,
    environment: Vec<(OsString, OsString)>,
}

/// Where native blobs live and who jails them.
#[derive(Debug, Clone)]
pub struct NativeSettings {
    /// Directory for blobs and working directories; absent for one of its own under the system's temporary directory.
    pub dir: Option<PathBuf>,
    /// The program that is started as `PROGRAM jail …`.
    pub jail: PathBuf,
}

/// Native execution failed for a reason of the service's own.
#[derive(Debug, thiserror::Error)]
#[error("{what} {path}: {cause}", path = path.display())]
pub struct NativeFault {
    what: &'static str,
    path: PathBuf,
    cause: std::io::Error,
}

/// One execution.
pub struct NativeJob<'a> {
    /// The effect.
    pub effect: &'a Effect,
    /// The blob.
    pub bytes: Bytes,
    /// Most bytes of output.
    pub output_bytes_max: usize,
    /// When it began to count as running.
    pub started: Instant,
    /// When it is killed.
    pub ends_at: Instant,
}

impl Native {
    /// Makes the directories.
    pub fn open(settings: &NativeSettings) -> Result<Self, NativeFault> {
        let files = files::Files::open(settings.dir.as_deref())?;
        let work = files.root().join("work");
        files::private_directory(&work)?;
        let environment = INHERITED.iter().filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
        Ok(Self { work, jail: settings.jail.clone(), environment: environment.collect(), files })
    }

    /// Executes a blob. Dropping the future kills the whole process group.
    ///
    /// # Errors
    /// The outer error is the service's own; the inner one is the blob's doing.
    pub async fn run(&self, job: NativeJob<'_>) -> Result<Result<String, Failure>, NativeFault> {
        let file = self.files.place(job.effect.digest, job.bytes.clone()).await?;
        let directory = self.work.join(uuid::Uuid::now_v7().simple().to_string());
        files::private_directory(&directory)?;
        let _removed = RemoveOnDrop(&directory);
        let child = child::Child {
            jail: &self.jail,
            file: &file,
            directory: &directory,
            environment: self.environment_for(job.effect),
            output_bytes_max: job.output_bytes_max,
            started: job.started,
            ends_at: job.ends_at,
        };
        child.run(&job.effect.input).await
    }

    fn environment_for(&self, effect: &Effect) -> Vec<(OsString, OsString)> {
        let mut environment = self.environment.clone();
        let mut set = |name: &str, value: &str| environment.push((name.into(), value.into()));
        set("AREEV_TOOL_NAME", &effect.tool_name);
        set("AREEV_TOOL_HASH", &effect.definition_hash);
        set("AREEV_IDEMPOTENCY_KEY", &effect.idempotency_key);
        set("AREEV_EXECUTOR_URI", &effect.digest.to_uri());
        if let Some(egress) = &effect.egress {
            set("AREEV_EGRESS_URL", &egress.url);
            set("AREEV_EGRESS_TOKEN", egress.token.reveal());
        }
        environment
    }
}

/// Reads the digest of a file's bytes.
fn digest_of(path: &Path) -> std::io::Result<Digest> {
    Ok(Digest::of(std::fs::read(path)?))
}

struct RemoveOnDrop<'a>(&'a Path);

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        if let Err(cause) = std::fs::remove_dir_all(self.0) {
            tracing::warn!(path = %self.0.display(), %cause, "cannot remove a working directory");
        }
    }
}
