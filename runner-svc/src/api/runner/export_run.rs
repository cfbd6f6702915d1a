//! `ExportRun`: one file, written piece by piece as the caller takes it.

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use proto::{
    fault::{Domain, Fault, Reason},
    runner::v1::{ExportRunRequest, ExportRunResponse},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Request;

use super::{Answers, RunnerApi, load_fault, read_fault};
use crate::{
    access::Permission,
    evidence::export::{Export, ExportError},
    runs::load::LoadError,
};

/// Exports that are being written at once: each holds a thread, and a page of a journal in memory.
pub const EXPORTS_MAX: usize = 8;
/// Messages that wait for the caller.
const WAITING_MAX: usize = 4;
/// Bytes from which a message is sent.
const MESSAGE_BYTES: usize = 256 * 1024;

/// The run as it stands now.
pub async fn handle(api: &RunnerApi, request: Request<ExportRunRequest>) -> Result<Answers<ExportRunResponse>, Fault> {
    let asked = request.get_ref();
    api.allowed(&request, &asked.namespace, Permission::RunRead)?;
    let info = api.header(&asked.namespace, &asked.run_id)?;
    let Ok(turn) = Arc::clone(&api.exports).try_acquire_owned() else {
        let text = format!("{EXPORTS_MAX} runs are being exported already: try again");
        return Err(Fault::new(Reason::Busy, text).retry_after(Duration::from_secs(1)));
    };
    let with_blobs = asked.with_blobs;
    let (journal, catalogue) = (api.parts.runs.shared().journal.clone(), Arc::clone(&api.parts.catalogue));
    let (key, now_ms) = (Arc::clone(&api.parts.receipts), api.parts.runs.shared().now_ms());
    let (sender, answers) = mpsc::channel(WAITING_MAX);
    tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let export = Export { journal: &journal, catalogue: &catalogue, key: &key, info: &info, with_blobs, now_ms };
        let mut message = Vec::with_capacity(MESSAGE_BYTES);
        let written = export.write(&mut |text| {
            message.extend_from_slice(text.as_bytes());
            message.len() < MESSAGE_BYTES || sender.blocking_send(Ok(std::mem::take(&mut message))).is_ok()
        });
        // Whoever asked may be gone by now.
        let _sent = match written {
            Ok(()) => sender.blocking_send(Ok(message)),
            Err(cause) => sender.blocking_send(Err(fault(cause).into_status(Domain::Runner))),
        };
    });
    let answers = ReceiverStream::new(answers).map(|piece| piece.map(|chunk| ExportRunResponse { chunk }));
    Ok(Box::pin(answers))
}

fn fault(cause: ExportError) -> Fault {
    match cause {
        ExportError::Load(LoadError::Read(cause)) => read_fault(cause),
        ExportError::Load(cause) => load_fault(cause),
        ExportError::Gone => Fault::internal(&cause),
        ExportError::TooManyChildren { .. } => Fault::new(Reason::TooLarge, cause.to_string()),
        ExportError::Missing { .. } | ExportError::Damaged { .. } | ExportError::Catalogue(_) => {
            Fault::new(Reason::Damaged, cause.to_string())
        }
    }
}
