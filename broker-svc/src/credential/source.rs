//! Reading a value from its place: a variable, a file, Vault, a program.

mod command;
mod vault;

use std::{io::Read as _, os::unix::ffi::OsStringExt as _, path::Path};

use proto::files;
use zeroize::Zeroizing;

use super::{BadSecret, Secret, Shape};
use crate::{
    policy::{Policy, Source},
    send::Courier,
    stamp::Stamp,
};

/// Largest value, in bytes.
pub const SECRET_BYTES_MAX: u64 = 16 * 1024;

/// How often a file that is gone is opened before that is believed.
const OPENS_MAX: usize = 4;

/// Why there is no value. Never says what stands there.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The variable is not set.
    #[error("the environment variable is not set")]
    NotSet,
    /// The file cannot be read.
    #[error("the file cannot be read: {0}")]
    File(std::io::Error),
    /// The value is larger than any credential.
    #[error("the value is over {SECRET_BYTES_MAX} bytes")]
    TooLarge,
    /// The value is no credential.
    #[error(transparent)]
    Bad(#[from] BadSecret),
    /// The program cannot be started.
    #[error("the program cannot be started: {0}")]
    Start(std::io::Error),
    /// The program failed.
    #[error("the program failed ({0})")]
    Failed(std::process::ExitStatus),
    /// The program or server did not answer in time.
    #[error("no answer within {0:?}")]
    Late(std::time::Duration),
    /// The server cannot be asked, or refuses.
    #[error("{0}")]
    Server(String),
}

/// The file's stamp; nothing for what cannot change under its name, or a file that is gone.
pub fn stamp(source: &Source) -> Option<Stamp> {
    match source {
        Source::File(path) => Stamp::of(path),
        Source::Env(_) | Source::Vault { .. } | Source::Command(_) => None,
    }
}

/// Reads and checks a value that is at hand.
pub fn read_near(source: &Source, shape: Shape) -> Result<Secret, Unreadable> {
    let bytes = match source {
        Source::Env(name) => Zeroizing::new(std::env::var_os(name).ok_or(Unreadable::NotSet)?.into_vec()),
        Source::File(path) => read_file(path).map_err(Unreadable::File)?,
        Source::Vault { .. } | Source::Command(_) => {
            return Err(Unreadable::Server("it has to be asked for".to_owned()));
        }
    };
    checked(bytes, shape)
}

/// Reads and checks a value wherever it is. The caller bounds the time.
pub async fn read(source: &Source, shape: Shape, policy: &Policy, courier: &Courier) -> Result<Secret, Unreadable> {
    let bytes = match source {
        Source::Env(_) | Source::File(_) => return read_near(source, shape),
        Source::Vault { path, field } => vault::read(policy, courier, path, field).await?,
        Source::Command(arguments) => command::run(arguments, command::RUN_MAX).await?,
    };
    checked(bytes, shape)
}

fn checked(bytes: Zeroizing<Vec<u8>>, shape: Shape) -> Result<Secret, Unreadable> {
    if bytes.len() as u64 > SECRET_BYTES_MAX {
        return Err(Unreadable::TooLarge);
    }
    Ok(Secret::take(bytes, shape)?)
}

fn read_file(path: &Path) -> std::io::Result<Zeroizing<Vec<u8>>> {
    // The whole room at once: a growing vector would leave copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(SECRET_BYTES_MAX as usize + 1));
    let file = open(path)?;
    file.take(SECRET_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a file whose links may be led elsewhere this moment: between following a link and opening its end, the end may go.
fn open(path: &Path) -> std::io::Result<std::fs::File> {
    let gone = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::NotFound;
    for _ in 1..OPENS_MAX {
        match files::open(path) {
            Err(cause) if gone(&cause) => {}
            opened => return opened,
        }
    }
    files::open(path)
}
