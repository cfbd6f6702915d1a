//! Makes a run exist: its first events and its lease in one durable commit, then its driver.

use runner_core::{child::ChildRun, entry::Entry, manifest::Manifest, payload::Payload, run::start, state::State};

use super::{Handle, Room, Runs, index::header_of, record, view::Summary};
use crate::journal::{AppendError, CreateError, NewRun, RunHeader, Storage, Urgency};

/// A run that a start found or made.
pub enum Started {
    /// It was made, and is driven.
    New(Handle),
    /// It was there: the caller decides whether this is a repeated call.
    Existing(Box<RunHeader>),
}

/// Why no run was made. Nothing was written, unless the store failed meanwhile: then the run may be found later, and is driven.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// As many runs are unfinished as may be.
    #[error("{0} runs are unfinished, as many as --max-concurrent-runs allows: try again when one has ended")]
    TooMany(usize),
    /// The store.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// A fault of this program.
    #[error("the run could not be begun: {0}")]
    Broken(String),
}

impl Runs {
    /// Starts a run that passed every gate. Returns when its manifest is durable.
    pub async fn start(&self, manifest: &Manifest, input: Payload) -> Result<Started, StartError> {
        let Some(place) = self.place() else { return Err(StartError::TooMany(self.0.concurrent_max)) };
        self.make(manifest, input, Room { _place: Some(place), _memory: None }).await
    }

    /// Starts a child run, or finds that its id is taken. It needs no place: a parent that waits for its child while every
    /// place is taken would wait for ever.
    pub(super) async fn start_child(&self, child: &ChildRun) -> Result<Started, StartError> {
        self.make(&child.manifest, child.input.clone(), Room::default()).await
    }

    async fn make(&self, manifest: &Manifest, input: Payload, room: Room) -> Result<Started, StartError> {
        let shared = self.shared();
        let manifest_payload = manifest.to_payload();
        let header = header_of(manifest, manifest_payload.digest());
        let (state, entries) = start(manifest, input, manifest.started_at_ms)
            .map_err(|corrupt| StartError::Broken(corrupt.to_string()))?;
        let (first, rest) = entries.split_at(record::parts(&entries).first().map_or(0, |part| part.len()));
        // What lists show belongs to the last entry.
        let summary = rest.is_empty().then(|| Summary::of(&state).to_bytes());
        let new = NewRun {
            update: record::update(&header.run_id, first, summary),
            claim: shared.claim(&manifest.principal),
            records: first.iter().map(record::stored).collect(),
            header,
        };
        let (runs, rest) = (self.clone(), rest.to_vec());
        // In a task of its own: whoever asked may go away meanwhile, and a run that exists is driven all the same.
        let making = tokio::spawn(async move { runs.exist((new, rest), state, room).await });
        making.await.unwrap_or_else(|panic| Err(StartError::Broken(panic.to_string())))
    }

    async fn exist(&self, (new, rest): (NewRun, Vec<Entry>), state: State, room: Room) -> Result<Started, StartError> {
        match self.shared().journal.create_run(new).await {
            Ok(created) => {
                self.complete(&state, created.lease.fence, &rest).await?;
                let manifest = state.manifest();
                tracing::info!(run_id = state.run_id(), plan = %manifest.plan_hash, principal = manifest.principal, "run started");
                metrics::counter!("areev_runs_started_total").increment(1);
                Ok(Started::New(self.spawn(state, created.lease.fence, room)))
            }
            Err(CreateError::AlreadyExists(header)) => Ok(Started::Existing(header)),
            Err(CreateError::Storage(storage)) => {
                if storage.in_doubt {
                    self.look_for(state.run_id());
                }
                Err(CreateError::Storage(storage).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The rest of a first step that is more than one append holds, as that of a fork of a run with thousands of nodes ready.
    async fn complete(&self, state: &State, fence: u64, rest: &[Entry]) -> Result<(), StartError> {
        let mut parts = record::parts(rest).into_iter().peekable();
        while let Some(part) = parts.next() {
            let summary = parts.peek().is_none().then(|| Summary::of(state).to_bytes());
            let append = record::append((state.run_id(), fence), Urgency::Work, part, summary);
            match self.shared().journal.append(append).await {
                Ok(_) => {}
                Err(AppendError::Storage(storage)) => {
                    // The run is there: it is driven on from what was written.
                    self.look_for(state.run_id());
                    return Err(StartError::Create(Storage { in_doubt: true, ..storage }.into()));
                }
                Err(error) => return Err(StartError::Broken(error.to_string())),
            }
        }
        Ok(())
    }
}
