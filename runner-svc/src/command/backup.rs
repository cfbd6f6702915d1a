//! `runner-svc backup FOLDER`: by the service that has the data directory, or by this process when none has.

use std::path::PathBuf;

use anyhow::Context as _;

use super::{CLEAN, say, store};
use crate::{
    app::control::{Reply, Request, ask},
    evidence::backup::{Backup, backup},
};

/// Its arguments.
#[derive(Debug, Clone, clap::Args)]
pub struct BackupTo {
    /// Folder to copy to; new or empty. A service that runs writes it, so it is a path of that service's machine
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// The data directory [default: ./areev-data]
    #[arg(
        long = "from",
        value_name = "DIR",
        env = "AREEV_RUN_DATA_DIR",
        default_value = "areev-data",
        hide_default_value = true
    )]
    data_dir: PathBuf,
    /// Write what was copied as one JSON object
    #[arg(long)]
    json: bool,
}

impl BackupTo {
    /// Copies and reports.
    pub(super) fn run(&self) -> anyhow::Result<u8> {
        let folder = std::path::absolute(&self.folder)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let done = runtime.block_on(async {
            match ask(&self.data_dir, &Request::Backup { folder: folder.clone() }).await? {
                Some(Reply::Done(done)) => Ok(done),
                Some(Reply::Failed(cause)) => {
                    anyhow::bail!("the service that runs on {}: {cause}", self.data_dir.display())
                }
                None => {
                    let store = store::open(&self.data_dir, store::Damage::Refuse)?;
                    backup(&store.journal, &self.data_dir, &folder).await.context("no backup was made")
                }
            }
        })?;
        say(&if self.json { serde_json::to_string(&done)? } else { shown(&done) })?;
        Ok(CLEAN)
    }
}

fn shown(done: &Backup) -> String {
    let Backup { folder, runs, files, bytes } = done;
    let folder = folder.display();
    format!(
        "backed up {runs} runs, {files} files of {bytes} bytes to {folder}\ncheck it with `runner-svc fsck {folder}`; restore it by \
         using it, or a copy of it, as --data-dir"
    )
}
