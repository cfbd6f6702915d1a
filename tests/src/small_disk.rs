//! A disk of a few megabytes that lives in memory and in a mount namespace of its own: it can be filled and made read-only,
//! and goes with the test. Needs root, or a kernel that lets everybody make namespaces.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use rustix::fs::FallocateFlags;

/// Name of the file that takes the room.
const FILLER: &str = "filler";

/// The disk. Its namespace ends with the process that holds it, and that with this value.
pub struct SmallDisk {
    holder: Child,
    place: PathBuf,
}

impl SmallDisk {
    /// Mounts a new disk of so many bytes on a folder, visible only to what [`SmallDisk::wrapper`] starts.
    pub fn mount(place: &Path, bytes: u64) -> Result<Self> {
        std::fs::create_dir_all(place).context("the folder to mount on")?;
        let script = format!("mount -t tmpfs -o size={bytes},mode=700 areev-e2e \"$0\" && echo mounted && exec cat");
        let mut holder = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", &script])
            .arg(place)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start unshare")?;
        let mut said = String::new();
        let stdout = holder.stdout.take().context("its output")?;
        BufReader::new(stdout).read_line(&mut said).context("what it says")?;
        let disk = Self { holder, place: place.to_owned() };
        ensure!(said == "mounted\n", "cannot mount a small disk: run these tests as root");
        Ok(disk)
    }

    /// What a program has to be started behind to see the disk.
    pub fn wrapper(&self) -> Vec<String> {
        vec!["nsenter".to_owned(), format!("--mount=/proc/{}/ns/mnt", self.holder.id()), "--".to_owned()]
    }

    /// The folder's path for those who do not see the disk.
    pub fn from_outside(&self) -> PathBuf {
        let below_root = self.place.strip_prefix("/").unwrap_or(&self.place);
        PathBuf::from(format!("/proc/{}/root", self.holder.id())).join(below_root)
    }

    /// Takes room until only so many bytes are left.
    pub fn fill(&self, left: u64) -> Result<()> {
        let free = self.free_bytes()?;
        let file =
            File::options().create(true).truncate(false).write(true).open(self.filler()).context("the filler")?;
        let held = file.metadata().context("the filler")?.len();
        let wanted = free.saturating_sub(left);
        rustix::fs::fallocate(&file, FallocateFlags::empty(), held, wanted).context("filling the disk")
    }

    /// Gives the room back.
    pub fn free(&self) -> Result<()> {
        std::fs::remove_file(self.filler()).context("the filler")
    }

    /// Bytes that are left.
    pub fn free_bytes(&self) -> Result<u64> {
        let stat = rustix::fs::statvfs(self.from_outside()).context("the disk's room")?;
        Ok(stat.f_bavail * stat.f_frsize)
    }

    /// Makes it read-only, or writable again. Nobody may have a file of it open for writing.
    pub fn read_only(&self, read_only: bool) -> Result<()> {
        let [first, rest @ ..] = &self.wrapper()[..] else { unreachable!("a wrapper has words") };
        let option = if read_only { "remount,ro" } else { "remount,rw" };
        let status = Command::new(first).args(rest).args(["mount", "-o", option]).arg(&self.place).status();
        ensure!(status.context("cannot start nsenter")?.success(), "cannot remount the disk");
        Ok(())
    }

    fn filler(&self) -> PathBuf {
        self.from_outside().join(FILLER)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _already_gone = self.holder.kill();
        let _already_waited = self.holder.wait();
    }
}
