//! Native blobs: executable files named by their digest, each call in a process group and a directory of its own.
//!
//! The file is hashed before every use. The child is the service's own program as `jail`, which bounds itself and then
//! becomes the blob; so no code has to run between fork and exec. Which barriers this kernel offers is found out once, when
//! the service starts; a child that one of those cannot be raised around is not executed.

mod child;
mod door;
mod doorway;
mod files;
mod probe;
mod remains;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Instant,
};

use bytes::Bytes;
use content_digest::Digest;

use crate::{effect::Effect, jail::barrier::Barrier, outcome::Failure};
use remains::Remains;

/// What of the service's environment a child gets.
const INHERITED: [&str; 4] = ["PATH", "LANG", "LC_ALL", "TZ"];
/// Variables that name a child's own directory.
const OWN_DIRECTORY: [&str; 2] = ["HOME", "TMPDIR"];

/// Executes native blobs.
#[derive(Debug)]
pub struct Native {
    files: files::Files,
    remains: Remains,
    work: PathBuf,
    jail: PathBuf,
    read: Vec<PathBuf>,
    barriers: Vec<Barrier>,
    environment: Vec<(OsString, OsString)>,
}

/// Where native blobs live and who jails them.
#[derive(Debug, Clone)]
pub struct NativeSettings {
    /// Directory for blobs and working directories; absent for one of its own under the system's temporary directory.
    pub dir: Option<PathBuf>,
    /// The program that is started as `PROGRAM jail …`.
    pub jail: PathBuf,
    /// Directories and files that blobs may read beside the system's own.
    pub read: Vec<PathBuf>,
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

impl NativeSettings {
    /// Looks whether all is there that blobs may read.
    ///
    /// # Errors
    /// It is not, or cannot be looked at.
    pub fn check(&self) -> Result<(), NativeFault> {
        self.read.iter().try_for_each(|path| {
            let fault = |cause| NativeFault { what: "blobs cannot read (--native-read)", path: path.clone(), cause };
            std::fs::metadata(path).map(drop).map_err(fault)
        })
    }
}

impl Native {
    /// Makes the directories, removes what an earlier service left in them, and finds out what the kernel offers.
    pub fn open(settings: &NativeSettings) -> Result<Self, NativeFault> {
        settings.check()?;
        let files = files::Files::open(settings.dir.as_deref())?;
        let work = files.root().join("work");
        files::private_directory(&work)?;
        let remains = Remains::of(files.root(), &work)?;
        let barriers = probe::barriers(&settings.jail, &files)?;
        let environment = INHERITED.iter().filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
        let (jail, read) = (settings.jail.clone(), settings.read.clone());
        Ok(Self { work, jail, read, barriers, environment: environment.collect(), remains, files })
    }

    /// The names of the barriers that are around every child.
    pub fn isolation(&self) -> Vec<&'static str> {
        self.barriers.iter().map(|barrier| barrier.as_str()).collect()
    }

    /// Executes a blob. Dropping the future kills the whole process group.
    ///
    /// # Errors
    /// The outer error is the service's own; the inner one is the blob's doing.
    pub async fn run(&self, job: NativeJob<'_>) -> Result<Result<String, Failure>, NativeFault> {
        let nobody = self.barriers.contains(&Barrier::UnprivilegedUser);
        self.remains.few(job.ends_at).await;
        let file = self.files.place(job.effect.digest, job.bytes.clone(), nobody).await?;
        let directory = self.work.join(uuid::Uuid::now_v7().simple().to_string());
        files::private_directory(&directory)?;
        let _taken_away = TakeAwayOnDrop(&self.remains, &directory);
        if nobody {
            files::give_to_nobody(&directory)?;
        }
        let door = match &job.effect.egress {
            Some(egress) => Some(door::Door::of(&egress.url, job.ends_at).await),
            None => None,
        };
        let child = child::Child {
            jail: &self.jail,
            file: &file,
            directory: &directory,
            read: &self.read,
            barriers: &self.barriers,
            place: door.as_ref().and_then(|door| door.place.as_ref()),
            environment: self.environment_for(job.effect, door.as_ref(), &directory),
            output_bytes_max: job.output_bytes_max,
            started: job.started,
            ends_at: job.ends_at,
        };
        child.run(&job.effect.input).await
    }

    fn environment_for(
        &self,
        effect: &Effect,
        door: Option<&door::Door>,
        directory: &Path,
    ) -> Vec<(OsString, OsString)> {
        let mut environment = self.environment.clone();
        environment.extend(OWN_DIRECTORY.map(|name| (name.into(), directory.into())));
        let mut set = |name: &str, value: &str| environment.push((name.into(), value.into()));
        set("AREEV_TOOL_NAME", &effect.tool_name);
        set("AREEV_TOOL_HASH", &effect.definition_hash);
        set("AREEV_IDEMPOTENCY_KEY", &effect.idempotency_key);
        set("AREEV_EXECUTOR_URI", &effect.digest.to_uri());
        if let Some((egress, door)) = effect.egress.as_ref().zip(door) {
            set("AREEV_EGRESS_URL", &door.url);
            set("AREEV_EGRESS_TOKEN", egress.token.reveal());
        }
        environment
    }
}

/// Reads the digest of a file's bytes.
fn digest_of(path: &Path) -> std::io::Result<Digest> {
    Ok(Digest::of(std::fs::read(path)?))
}

struct TakeAwayOnDrop<'a>(&'a Remains, &'a Path);

impl Drop for TakeAwayOnDrop<'_> {
    fn drop(&mut self) {
        self.0.take(self.1);
    }
}
