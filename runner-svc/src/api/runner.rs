//! `RunnerService`: starting, watching, steering and verifying runs.

mod cancel_run;
mod export_run;
mod fork_run;
mod get_manifest;
mod get_run;
mod list_asks;
mod list_events;
mod list_journal_entries;
mod list_runs;
mod oversight;
mod pause_run;
mod respond_to_ask;
mod shadow_runs;
mod start_run;
mod step_actions;
mod verify_run;
mod wait_run;
mod watch_run;
mod wire;

use std::{pin::Pin, sync::Arc};

use futures::Stream;
use proto::{
    fault::{Domain, Fault, Reason},
    runner::v1::{runner_service_server::RunnerServiceServer, *},
};
use runner_core::{manifest::Durability, state::State};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::{
    access::{Access, Permission, Principal},
    api::{catalog::HostOffer, namespace},
    catalogue::Catalogue,
    evidence::receipt::ReceiptKey,
    journal::{ReadError, RunHeader},
    runs::{RunView, Runs, load},
};

pub use step_actions::RunStepActions;

/// What the service needs from the rest of the runner.
pub struct RunnerParts {
    /// The runs.
    pub runs: Runs,
    /// Plans and definitions.
    pub catalogue: Arc<Catalogue>,
    /// Callers and their permissions.
    pub access: Arc<dyn Access>,
    /// What the host allows now.
    pub host: Box<dyn Fn() -> HostOffer + Send + Sync>,
    /// What an acknowledged write survives: named in each manifest.
    pub durability: Durability,
    /// Signs receipts.
    pub receipts: Arc<ReceiptKey>,
    /// Cancelled when the service drains: waits and watches end then.
    pub drain: CancellationToken,
}

/// The service.
pub struct RunnerApi {
    parts: RunnerParts,
    exports: Arc<Semaphore>,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl RunnerApi {
    /// Builds the service.
    pub fn new(parts: RunnerParts) -> Self {
        Self { parts, exports: Arc::new(Semaphore::new(export_run::EXPORTS_MAX)) }
    }

    /// The service as a server, with its message bounds.
    pub fn into_server(self) -> RunnerServiceServer<Self> {
        RunnerServiceServer::new(self)
            .max_decoding_message_size(proto::serve::MESSAGE_BYTES_MAX)
            .max_encoding_message_size(proto::serve::MESSAGE_BYTES_MAX)
    }

    /// Who calls, if the principal may do this in the namespace.
    fn allowed<T>(&self, request: &Request<T>, namespace: &str, permission: Permission) -> Result<Principal, Fault> {
        let principal = self.parts.access.principal(request.extensions(), request.metadata())?;
        namespace::check(namespace)?;
        self.parts.access.allow(&principal, namespace, permission)?;
        Ok(principal)
    }

    /// The run's header, if it is in the namespace: another namespace's run is not there for the caller.
    fn header(&self, namespace: &str, run_id: &str) -> Result<crate::journal::RunInfo, Fault> {
        match self.parts.runs.shared().journal.run(run_id) {
            Ok(info) if info.header.namespace == namespace => Ok(info),
            Ok(_) | Err(ReadError::NotFound(_)) => Err(not_found(namespace, run_id)),
            Err(error) => Err(read_fault(error)),
        }
    }

    /// A run as it stands, with its receipt once it has ended.
    fn run(&self, header: &RunHeader, view: &RunView) -> Run {
        let mut run = wire::run(header, view);
        let waits = self.parts.runs.shared().dispatcher.waits().of_run(&header.run_id);
        let respond = self.parts.access.holders(&header.namespace, Permission::RunRespond);
        for (told, waiting) in run.waiting.iter_mut().zip(&view.waiting) {
            if !waiting.barred.is_empty() && respond.iter().all(|name| waiting.barred.contains(name)) {
                told.unblocked_by.push_str(NOBODY_ELSE);
            }
        }
        run.waiting.splice(0..0, waits.iter().map(|(key, wait)| wire::wait(key, wait)));
        if view.summary.status.outcome().is_some() {
            run.receipt = Some(wire::receipt(self.parts.receipts.receipt(header, &view.summary)));
        }
        run
    }

    /// The run's state, folded from its journal.
    async fn folded(&self, run_id: &str) -> Result<State, Fault> {
        let (journal, run_id) = (self.parts.runs.shared().journal.clone(), run_id.to_owned());
        let folding = tokio::task::spawn_blocking(move || load::state(&journal, &run_id));
        folding.await.map_err(|panic| Fault::internal(&panic))?.map_err(load_fault)
    }
}

/// What is said of asks that no principal that is known here can answer.
const NOBODY_ELSE: &str = "; no other principal with run.respond is known here: name one in --tokens-file";

fn not_found(namespace: &str, run_id: &str) -> Fault {
    let (run_id, namespace) = (shown(run_id), shown(namespace));
    Fault::new(Reason::RunNotFound, format!("there is no run {run_id} in namespace {namespace}: list its runs"))
}

/// A caller's text for an error: quoted, bounded.
fn shown(text: &str) -> String {
    let mut text = format!("{text:?}");
    proto::fault::cut(&mut text, 160);
    text
}

/// What a wait or a watch ends with when the service drains.
fn draining() -> Fault {
    Fault::new(Reason::Draining, "this service is draining: call another replica or try again")
        .retry_after(std::time::Duration::from_secs(1))
}

fn read_fault(error: ReadError) -> Fault {
    match error {
        ReadError::NotFound(run_id) => Fault::new(Reason::RunNotFound, format!("there is no run {}", shown(&run_id))),
        ReadError::Damaged(damaged) => Fault::new(Reason::Damaged, damaged.to_string()).with("run_id", damaged.run_id),
        ReadError::TooManyWatched(_) => {
            Fault::new(Reason::Busy, error.to_string()).retry_after(std::time::Duration::from_secs(1))
        }
        ReadError::Storage(storage) => Fault::new(Reason::StorageUnavailable, storage.reason),
    }
}

fn load_fault(error: load::LoadError) -> Fault {
    match error {
        load::LoadError::Read(error) => read_fault(error),
        damaged => {
            let text = damaged.to_string();
            coded(&text).unwrap_or_else(|| Fault::new(Reason::Damaged, text))
        }
    }
}

/// A text that begins with a stable code, as a fault of that code's one reason; none of another text.
fn coded(text: &str) -> Option<Fault> {
    let (code, rest) = text.split_once(": ")?;
    let mut reasons = Reason::all().filter(|reason| reason.code() == Some(code));
    let reason = reasons.next().filter(|_| reasons.next().is_none())?;
    Some(Fault::new(reason, rest))
}

fn answer<T>(result: Result<T, Fault>) -> Result<Response<T>, Status> {
    result.map(Response::new).map_err(|fault| fault.into_status(Domain::Runner))
}

#[tonic::async_trait]
impl runner_service_server::RunnerService for RunnerApi {
    type WatchRunStream = Answers<WatchRunResponse>;
    type ExportRunStream = Answers<ExportRunResponse>;

    async fn start_run(&self, request: Request<StartRunRequest>) -> Result<Response<StartRunResponse>, Status> {
        answer(start_run::handle(self, request).await)
    }

    async fn wait_run(&self, request: Request<WaitRunRequest>) -> Result<Response<WaitRunResponse>, Status> {
        answer(wait_run::handle(self, request).await)
    }

    async fn get_run(&self, request: Request<GetRunRequest>) -> Result<Response<GetRunResponse>, Status> {
        answer(get_run::handle(self, request).await)
    }

    async fn list_runs(&self, request: Request<ListRunsRequest>) -> Result<Response<ListRunsResponse>, Status> {
        answer(list_runs::handle(self, request).await)
    }

    async fn get_manifest(
        &self,
        request: Request<GetManifestRequest>,
    ) -> Result<Response<GetManifestResponse>, Status> {
        answer(get_manifest::handle(self, request).await)
    }

    async fn list_journal_entries(
        &self,
        request: Request<ListJournalEntriesRequest>,
    ) -> Result<Response<ListJournalEntriesResponse>, Status> {
        answer(list_journal_entries::handle(self, request).await)
    }

    async fn list_events(&self, request: Request<ListEventsRequest>) -> Result<Response<ListEventsResponse>, Status> {
        answer(list_events::handle(self, request).await)
    }

    async fn list_asks(&self, request: Request<ListAsksRequest>) -> Result<Response<ListAsksResponse>, Status> {
        answer(list_asks::handle(self, request).await)
    }

    async fn respond_to_ask(
        &self,
        request: Request<RespondToAskRequest>,
    ) -> Result<Response<RespondToAskResponse>, Status> {
        answer(respond_to_ask::handle(self, request).await)
    }

    async fn cancel_run(&self, request: Request<CancelRunRequest>) -> Result<Response<CancelRunResponse>, Status> {
        answer(cancel_run::handle(self, request).await)
    }

    async fn verify_run(&self, request: Request<VerifyRunRequest>) -> Result<Response<VerifyRunResponse>, Status> {
        answer(verify_run::handle(self, request).await)
    }

    async fn watch_run(&self, request: Request<WatchRunRequest>) -> Result<Response<Self::WatchRunStream>, Status> {
        answer(watch_run::handle(self, request).await)
    }

    async fn pause_run(&self, request: Request<PauseRunRequest>) -> Result<Response<PauseRunResponse>, Status> {
        answer(pause_run::pause(self, request).await)
    }

    async fn resume_run(&self, request: Request<ResumeRunRequest>) -> Result<Response<ResumeRunResponse>, Status> {
        answer(pause_run::resume(self, request).await)
    }

    async fn fork_run(&self, request: Request<ForkRunRequest>) -> Result<Response<ForkRunResponse>, Status> {
        answer(fork_run::handle(self, request).await)
    }

    async fn shadow_runs(&self, request: Request<ShadowRunsRequest>) -> Result<Response<ShadowRunsResponse>, Status> {
        answer(shadow_runs::handle(self, request).await)
    }

    async fn get_oversight_report(
        &self,
        request: Request<GetOversightReportRequest>,
    ) -> Result<Response<GetOversightReportResponse>, Status> {
        answer(oversight::handle(self, request).await)
    }

    async fn export_run(&self, request: Request<ExportRunRequest>) -> Result<Response<Self::ExportRunStream>, Status> {
        answer(export_run::handle(self, request).await)
    }
}
