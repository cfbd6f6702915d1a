//! Calls whose request body or answer is an artifact: a blob of the runner's catalogue. The runner makes them, so that the bytes
//! pass neither the guest nor this process; what comes back is durable already.

use content_digest::Digest;
use tokio::sync::mpsc;

use crate::{fetch::FetchAsk, outcome::Failure};

/// Who makes such calls.
pub enum Artifacts {
    /// Nobody; the text says why.
    Nobody(&'static str),
    /// The runner, over the stream of the effect.
    Runner(Relay),
}

/// The way to the runner.
pub struct Relay {
    /// Takes calls.
    pub calls: mpsc::Sender<ArtifactCall>,
    /// Gives what the guest is answered.
    pub replies: mpsc::Receiver<ArtifactReply>,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactCall {
    /// Number of the call within the effect.
    pub ordinal: u32,
    /// Digest of the guest's request.
    pub request_digest: Digest,
    /// What the guest asks.
    pub ask: FetchAsk,
    /// Most bytes of an answer that is no artifact.
    pub response_bytes: u64,
}

/// Its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactReply {
    /// Number of the call within the effect.
    pub ordinal: u32,
    /// What the guest is answered, one JSON text.
    pub reply: Vec<u8>,
}

impl Relay {
    /// Has a call made; it is recorded when this returns.
    ///
    /// # Errors
    /// The runner went away, or answered another call.
    pub async fn call(&mut self, call: ArtifactCall) -> Result<Vec<u8>, Failure> {
        let ordinal = call.ordinal;
        let gone = || Failure::canceled(&format!("the caller ended its stream before it answered call {ordinal}"));
        self.calls.send(call).await.map_err(|_| gone())?;
        match self.replies.recv().await {
            Some(answer) if answer.ordinal == ordinal => Ok(answer.reply),
            Some(other) => {
                Err(Failure::canceled(&format!("the caller answered call {}, not {ordinal}", other.ordinal)))
            }
            None => Err(gone()),
        }
    }
}
