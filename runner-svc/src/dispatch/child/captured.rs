//! What a child wrote: its output up to a cap and counted beyond it, the end of what it said on stderr.

use std::{future::Future, io};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, ChildStdin},
};

use crate::dispatch::output::OUTPUT_BYTES_MAX;

/// Bytes of output that are kept: the largest result with some white space around it.
const KEPT_BYTES_MAX: usize = OUTPUT_BYTES_MAX + 64 * 1024;
/// Bytes of output that are counted before the child is stopped.
const COUNTED_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Bytes of stderr that are kept, the last ones.
const STDERR_BYTES_MAX: usize = 8 * 1024;
/// One read.
const READ_BYTES: usize = 64 * 1024;

/// What a child wrote.
#[derive(Default)]
pub(in crate::dispatch) struct Captured {
    stdout: Vec<u8>,
    stdout_bytes: u64,
    stderr: Vec<u8>,
}

/// The child wrote more than is even counted.
pub(super) struct Flood;

impl Captured {
    /// Feeds the child its input and reads both outputs to their ends.
    pub(super) fn fill(
        &mut self,
        child: &mut Child,
        input: Vec<u8>,
    ) -> io::Result<impl Future<Output = Result<(), Flood>> + use<'_>> {
        let missing = || io::Error::other("the child was started without pipes");
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = child.stdout.take().ok_or_else(missing)?;
        let stderr = child.stderr.take().ok_or_else(missing)?;
        let Self { stdout: kept, stdout_bytes, stderr: said } = self;
        Ok(async move {
            tokio::try_join!(feed(stdin, input), read_output(stdout, kept, stdout_bytes), read_tail(stderr, said))?;
            Ok(())
        })
    }

    /// The whole output, or its size when it is over the cap.
    pub(in crate::dispatch) fn output(&mut self) -> Result<Vec<u8>, u64> {
        if self.stdout_bytes > KEPT_BYTES_MAX as u64 {
            Err(self.stdout_bytes)
        } else {
            Ok(std::mem::take(&mut self.stdout))
        }
    }

    /// The last bytes of stderr, as text.
    pub(in crate::dispatch) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim().to_owned()
    }
}

/// A child that does not read its input is free not to.
async fn feed(mut stdin: ChildStdin, input: Vec<u8>) -> Result<(), Flood> {
    let _not_read = stdin.write_all(&input).await;
    Ok(())
}

async fn read_output(mut pipe: impl AsyncRead + Unpin, kept: &mut Vec<u8>, bytes: &mut u64) -> Result<(), Flood> {
    let mut buffer = vec![0; READ_BYTES];
    while let Ok(read @ 1..) = pipe.read(&mut buffer).await {
        *bytes += read as u64;
        if *bytes > COUNTED_BYTES_MAX {
            return Err(Flood);
        }
        if *bytes <= KEPT_BYTES_MAX as u64 {
            kept.extend_from_slice(&buffer[..read]);
        } else {
            *kept = Vec::new();
        }
    }
    Ok(())
}

async fn read_tail(mut pipe: impl AsyncRead + Unpin, said: &mut Vec<u8>) -> Result<(), Flood> {
    let mut buffer = vec![0; STDERR_BYTES_MAX];
    while let Ok(read @ 1..) = pipe.read(&mut buffer).await {
        said.extend_from_slice(&buffer[..read]);
        said.drain(..said.len().saturating_sub(STDERR_BYTES_MAX));
    }
    Ok(())
}
