//! A socket in the data directory, for commands of the same user on the same machine while the service has the store.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream},
};
use tokio_util::sync::CancellationToken;

use crate::{
    evidence::backup::{Backup, backup},
    journal::Journal,
};

/// Name of the socket in the data directory.
pub const SOCKET: &str = "control.sock";
/// Longest request, in bytes.
const REQUEST_BYTES_MAX: u64 = 8 * 1024;
/// How long a request may take to come.
const REQUEST_TIME: Duration = Duration::from_secs(10);

/// What can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Copy the data directory to a folder, an absolute path.
    Backup {
        /// The folder.
        folder: PathBuf,
    },
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// It is done.
    Done(Backup),
    /// It is not.
    Failed(String),
}

/// Serves the socket until the drain, one request at a time. A path that is too long for a socket is no reason not to serve.
pub async fn serve(journal: Journal, data_dir: PathBuf, drain: CancellationToken) {
    let path = data_dir.join(SOCKET);
    let listener = match listen(&path) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "no control socket: `runner-svc backup` works only while this is stopped");
            return;
        }
    };
    while let Some(accepted) = drain.run_until_cancelled(listener.accept()).await {
        let Ok((stream, _)) = accepted else { continue };
        // A backup that the drain meets is given up; what it copied so far is no data directory.
        let answered = drain.run_until_cancelled(answer(&journal, &data_dir, stream)).await;
        if let Some(Err(error)) = answered {
            tracing::warn!(%error, "a control request was not answered");
        }
    }
    let _gone_already = fs::remove_file(&path);
}

/// Asks the service that has the data directory; none when no service answers there.
///
/// # Errors
/// It answers and the answer cannot be read.
pub async fn ask(data_dir: &Path, request: &Request) -> io::Result<Option<Reply>> {
    let mut stream = match UnixStream::connect(data_dir.join(SOCKET)).await {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let line = format!("{}\n", serde_json::to_string(request)?);
    stream.write_all(line.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(Some(serde_json::from_str(&text)?))
}

/// A socket that a process before this one left is taken over: the directory is this process's alone.
fn listen(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

async fn answer(journal: &Journal, data_dir: &Path, mut stream: UnixStream) -> io::Result<()> {
    let mut line = String::new();
    let read = async { BufReader::new((&mut stream).take(REQUEST_BYTES_MAX)).read_line(&mut line).await };
    tokio::time::timeout(REQUEST_TIME, read).await??;
    let reply = match serde_json::from_str(&line) {
        Ok(Request::Backup { folder }) if folder.is_absolute() => match backup(journal, data_dir, &folder).await {
            Ok(done) => {
                tracing::info!(folder = %done.folder.display(), done.runs, done.files, done.bytes, "backed up");
                Reply::Done(done)
            }
            Err(cause) => Reply::Failed(cause.to_string()),
        },
        Ok(Request::Backup { folder }) => Reply::Failed(format!("{} is no absolute path", folder.display())),
        Err(cause) => Reply::Failed(format!("the request is not understood: {cause}")),
    };
    stream.write_all(serde_json::to_string(&reply)?.as_bytes()).await
}
